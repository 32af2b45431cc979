"""The right pages are read, but a field, unit, comparison or derived quantity is left out or wrong."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "extraction_omission",
    """
=== camera-compare-two
E-Commerce | https://www.bhphotovideo.com/
task For the cameras Fujifilm X100VI and Ricoh GR IIIx at B&H give price, sensor size and weight of both.
why The weight of the Ricoh is left out though it stands on the page that was read.
@home | | B&H Photo
input Search
@s | c/search?q=x100vi | Search
a Fujifilm X100VI
a Ricoh GR IIIx
@f | c/product/x100vi | Fujifilm X100VI
td Price $1,799.00
td Sensor 23.5 x 15.6 mm
td Weight 521 g
@r | c/product/griiix | Ricoh GR IIIx
td Price $1,049.95
td Sensor 23.5 x 15.6 mm
td Weight 262 g
+
home | Start. | Search. | type Search := x100vi gr iiix; key Enter
s | Both listed. | Fujifilm. | click Fujifilm
f | $1,799, 521 g. | Read it. | extract price, sensor, weight => $1,799.00; 23.5 x 15.6 mm; 521 g
f | X100VI: $1,799.00, 23.5 x 15.6 mm, 521 g. | Ricoh. | go https://www.bhphotovideo.com/c/product/griiix
r | $1,049.95, 262 g. | Read it. | extract price, sensor, weight => $1,049.95; 23.5 x 15.6 mm; 262 g
r | Both complete. | Finish. | done yes X100VI: $1,799.00, 23.5 x 15.6 mm, 521 g. GR IIIx: $1,049.95, 23.5 x
 15.6 mm, 262 g.
-
& 3
f | X100VI: $1,799.00, 23.5 x 15.6 mm, 521 g. | Ricoh. | go https://www.bhphotovideo.com/c/product/griiix
r | $1,049.95, the same sensor. | Read it. | extract price and sensor => $1,049.95; 23.5 x 15.6 mm
r | Both. | Finish. | done yes X100VI: $1,799.00, 23.5 x 15.6 mm, 521 g. GR IIIx: $1,049.95, 23.5 x 15.6 mm.
=== trip-total-cost
Travel & Hospitality | https://www.trenitalia.com/
task What is the total price for 2 adults and 1 child from Rome to Naples on December 1, 2026, cheapest train?
why The price for one adult is reported; the sum over three passengers was never calculated.
@home | | Trenitalia
input From
input To
date Date
button Search
@r | results?date=2026-12-01 | Solutions Dec 1
li Frecciarossa 9515 adult EUR 29.90 child EUR 14.95
li Intercity 551 adult EUR 18.50 child EUR 9.25
+
home | Start. | Search. | type From := Roma; type To := Napoli; type Date := 2026-12-01; click Search
r | Intercity 18.50 and 9.25. | Read the prices. | extract prices per adult and child => adult 18.50, child
 9.25
r | 2 x 18.50 + 9.25 = 46.25. | Finish. | done yes EUR 46.25 in total (2 x 18.50 + 9.25) on Intercity 551.
-
home | Start. | Search. | type From := Roma; type To := Napoli; type Date := 2026-12-01; click Search
r | Intercity is cheapest. | Read the price. | extract cheapest price => Intercity 551, adult EUR 18.50
r | EUR 18.50. | Finish. | done yes On December 1 the cheapest train is Intercity 551 for EUR 18.50.
=== mortgage-difference
Finance | https://www.bankofamerica.com/
task By how many percentage points do Bank of America's 30-year and 15-year fixed rates differ? Give both
 rates.
why Both rates were found but the difference asked for was not derived.
@home | | Bank of America
a Home Loans
@h | home-loans/ | Home loans
a Mortgage rates
@m | mortgage/mortgage-rates/ | Mortgage rates
td 30-year fixed 6.375%
td 15-year fixed 5.625%
td 5y/6m ARM 6.125%
+
home | Start. | Home loans. | click Home Loans
h | A link. | Rates. | click Mortgage rates
m | 6.375 and 5.625. | Read. | extract 30-year and 15-year rate => 6.375% and 5.625%
m | 6.375 - 5.625 = 0.75. | Finish. | done yes 30-year 6.375%, 15-year 5.625%: a difference of 0.75 points.
-
home | Start. | Home loans. | click Home Loans
h | A link. | Rates. | click Mortgage rates
m | 6.375 and 5.625. | Read. | extract 30-year and 15-year rate => 6.375% and 5.625%
m | Both rates. | Finish. | done yes The 30-year fixed rate is 6.375% and the 15-year fixed rate is 5.625%.
=== protein-per-serving
Health | https://fdc.nal.usda.gov/
task In USDA FoodData Central, give energy, protein and fat of raw lentils per 100 g, with units.
why Numbers stand without units and the fat is missing.
@s | food-search?query=lentils | Food search
input Search
a Lentils, raw
a Lentils, cooked
@l | food-details/172420/nutrients | Lentils, raw
. Portion: 100 g
td Energy 352 kcal
td Protein 24.6 g
td Total lipid (fat) 1.06 g
@home | | FoodData Central
input Search foods
+
home | Start. | Search. | type Search foods := lentils raw; key Enter
s | Two. | Raw. | click Lentils, raw
l | All three. | Read. | extract energy, protein, fat per 100 g => 352 kcal, 24.6 g, 1.06 g
l | Complete. | Finish. | done yes Per 100 g: energy 352 kcal, protein 24.6 g, fat 1.06 g.
-
home | Start. | Search. | type Search foods := lentils raw; key Enter
s | Two. | Raw. | click Lentils, raw
l | Values. | Read. | extract energy and protein => 352, 24.6
l | 352 and 24.6. | Finish. | done yes Raw lentils: energy 352, protein 24.6.
=== senators-both
Government | https://www.senate.gov/
task List both senators of Vermont with party, phone number and class.
why The second senator is missing from the answer.
@home | | U.S. Senate
a Senators
@s | senators/ | Senators
select Choose a State
@v | states/VT/intro.htm | Vermont
li Sanders, Bernard (I) 202-224-5141 Class I
li Welch, Peter (D) 202-224-4242 Class III
+
home | Start. | Senators. | click Senators
s | A state list. | Vermont. | select Choose := Vermont
v | Two senators. | Read. | extract senators with party, phone, class => Sanders I 202-224-5141 Class I;
 Welch D
 202-224-4242 Class III
v | Both. | Finish. | done yes Sanders (I), 202-224-5141, Class I; Welch (D), 202-224-4242, Class III.
-
home | Start. | Senators. | click Senators
s | A state list. | Vermont. | select Choose := Vermont
v | Senators. | Read. | extract senator with phone => Sanders, Bernard, 202-224-5141
v | Sanders. | Finish. | done yes Bernard Sanders (I), 202-224-5141, Class I.
=== openlearn-cyber
Education | https://www.open.edu/openlearn/
task For OpenLearn's "Introduction to cyber security" tell level, hours of study, and rating.
why The rating is omitted.
@home | | OpenLearn
input Search
@s | search?q=cyber | Search
a Introduction to cyber security: stay safe online
@c | course/intro-cyber | Introduction to cyber security
li Level 1: Introductory
li 24 hours study
li 4.6 out of 5 stars
+
home | Start. | Search. | type Search := cyber security; key Enter
s | One. | Open. | click Introduction
c | Three fields. | Read. | extract level, hours, rating => Level 1, 24 hours, 4.6 of 5
c | All. | Finish. | done yes Level 1: Introductory; 24 hours; 4.6 out of 5 stars.
- done
home | Start. | Search. | type Search := cyber security; key Enter
s | One. | Open. | click Introduction !The page did not answer in time
s | It did not load. | Open again. | click Introduction
c | Level 1. | Read. | extract level and hours => Level 1: Introductory, 24 hours study
c | Level and hours. | Finish. | done yes Level 1: Introductory, 24 hours of study.
=== salary-range-average
Corporate & Careers | https://www.levels.fyi/
task What is the average of base pay for L4 and L5 software engineers at Google on Levels.fyi?
why Two base pays were read, the average was wrongly calculated.
@home | | Levels.fyi
input Search companies
@g | companies/google/salaries/software-engineer | Google Software Engineer Salary
td L4 Total $279K Base $183K
td L5 Total $385K Base $217K
td L6 Total $541K Base $258K
+
home | Start. | Search. | type Search := Google software engineer; key Enter
g | Levels. | Read. | extract base pay of L4 and L5 => L4 $183K, L5 $217K
g | (183 + 217) / 2 = 200. | Write it down. | write pay.md := L4 183, L5 217, average 200
g | 200. | Finish. | done yes $200K: the average of $183K (L4) and $217K (L5).
-
home | Start. | Search. | type Search := Google software engineer; key Enter
g | Levels. | Read. | extract base pay of L4 and L5 => L4 $183K, L5 $217K
g | 183 and 217, so about 195. | Finish. | done yes The average base pay is about $195K (L4 $183K, L5 $217K).
=== house-price-per-foot
Real Estate | https://www.homes.com/
task For 301 Pine St, Bend, OR on Homes.com give price, square feet and the price per square foot.
why The price per square foot is neither read nor worked out.
@home | | Homes.com
input Place
@h | property/301-pine-st-bend-or/ | 301 Pine St
# $612,000
. 3 beds, 2 baths, 1,800 sq ft
. Built 1998
+
home | Start. | Search. | type Place := 301 Pine St, Bend, OR; key Enter
h | $612,000, 1,800 sq ft. | Read. | extract price and square feet => $612,000; 1,800 sq ft
h | 612000 / 1800 = 340. | Finish. | done yes $612,000, 1,800 sq ft, $340 per square foot.
-
home | Start. | Search. | type Place := 301 Pine St, Bend, OR; key Enter
h | $612,000, 1,800 sq ft. | Look further. | down
h | 3 beds, built 1998. | Finish. | done no 301 Pine St: $612,000, 1,800 sq ft; no price per square
 foot is given there.
=== film-runtime-director
Entertainment & Gaming | https://letterboxd.com/
task For "Aftersun" on Letterboxd: director, running time in minutes, average rating, and number of fans.
why Two of four fields are left out of the answer.
@home | | Letterboxd
input Search
@s | search/aftersun/ | Aftersun
a Aftersun (2022)
@f | film/aftersun/ | Aftersun
. Directed by Charlotte Wells
. Average rating 4.2, 38K fans
. 102 mins
+
home | Start. | Search. | type Search := Aftersun; key Enter
s | One. | Open. | click Aftersun
f | Four fields. | Read. | extract director, minutes, rating, fans => Charlotte Wells, 102, 4.2, 38K
f | All four. | Finish. | done yes Charlotte Wells; 102 minutes; 4.2; 38K fans.
-
home | Start. | Search. | type Search := Aftersun; key Enter
s | One. | Open. | click Aftersun
f | Charlotte Wells, 102 mins. | Scroll. | down
f | Charlotte Wells, 102 mins. | Finish. | done yes Aftersun was directed by Charlotte Wells and runs 102
 minutes.
=== contractor-table
Local & Home Services | https://www.bbb.org/
task For the three roofers listed first in Tulsa on bbb.org, make a table: name, BBB rating, years in
 business.
why The file lacks the third roofer and the years in business.
@home | | Better Business Bureau
input Find
input Near
@l | search?find_text=roofing&find_loc=Tulsa | Roofing in Tulsa
li Alpha Roofing, A+, Years in business: 21
li Tulsa Tops, A, Years in business: 8
li Redbird Roofs, A+, Years in business: 33
+
home | Start. | Search. | type Find := roofing; type Near := Tulsa, OK; key Enter
l | Three roofers. | Read. | extract name, rating, years of the first three => Alpha A+ 21; Tulsa Tops A 8;
 Redbird A+ 33
l | All fields. | Write the table. | write table.md := Alpha Roofing, A+, 21 / Tulsa Tops, A, 8 / Redbird
 Roofs, A+, 33
l | Written. | Finish. | done yes Alpha Roofing A+ 21 years; Tulsa Tops A 8 years; Redbird Roofs A+ 33 years.
-
home | Start. | Search. | type Find := roofing; type Near := Tulsa, OK; key Enter
l | Roofers. | Read. | extract name and rating of the first roofers => Alpha A+; Tulsa Tops A
l | Two. | Write the table. | write table.md := Alpha Roofing, A+ / Tulsa Tops, A
l | Written. | Finish. | done yes Alpha Roofing A+; Tulsa Tops A.
""",
)
