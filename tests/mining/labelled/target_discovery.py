"""Repeated searches or navigation choices do not reach the target page."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "target_discovery",
    """
=== usgs-streamgage
Government | https://www.usgs.gov/
task Find the USGS page of the stream gage "Boise River at Glenwood Bridge" and tell its site number.
why Six searches with nearly the same words in the wrong search box never lead to the gage.
@home | | USGS
input Search
a Water data
@s1 | search?keywords=boise+river | Search USGS
a Geology of the Boise basin
a Boise River publications
@s2 | search?keywords=boise+river+glenwood | Search USGS
a Boise River publications
@water | https://waterdata.usgs.gov/nwis | Water Data for the Nation
input Site name
@gage | https://waterdata.usgs.gov/monitoring-location/13206000/ | Boise River at Glenwood Bridge
# Boise River at Glenwood Bridge, USGS-13206000
+
home | Start. | Water data. | click Water data
water | A search by site name. | Search there. | type Site name := Boise River at Glenwood; key Enter
gage | 13206000. | Finish. | done yes 13206000
- max_steps
home | Start. | Search. | type Search := boise river; key Enter
s1 | Publications only. | Search. | go https://www.usgs.gov/search?keywords=boise+river+glenwood
s2 | Publications only. | Search. | go https://www.usgs.gov/search?keywords=boise+river
s1 | Publications only. | Search. | go https://www.usgs.gov/search?keywords=boise+river+glenwood
s2 | Publications only. | Open one. | click Boise River publications
s1 | Publications only. | Search. | go https://www.usgs.gov/search?keywords=boise+river+glenwood
=== ikea-spare-part
E-Commerce | https://www.ikea.com/us/en/
task Find IKEA's page to order free spare screws and give its address.
why The run searches for screws among products again and again and never comes upon the spare parts page.
@home | | IKEA US
input Search
a Customer service
@p | search/?q=screws | screws
# 6 results: FIXA screw set
@p2 | search/?q=spare+screws | spare screws
# No results for spare screws
@cs | customer-service/ | Customer service
a Returns
a Spare parts
@sp | customer-service/spare-parts/ | Spare parts
# Order free spare parts
+
home | Start. | Customer service. | click Customer service
cs | Spare parts. | Open it. | click Spare parts
sp | Found. | Finish. | done yes https://www.ikea.com/us/en/customer-service/spare-parts/
-
home | Start. | Search. | type Search := screws; key Enter
p | Products only. | Search. | go https://www.ikea.com/us/en/search/?q=spare+screws
p2 | No results. | Search. | go https://www.ikea.com/us/en/search/?q=screws
p | Products only. | Search. | go https://www.ikea.com/us/en/search/?q=spare+screws
p2 | No results. | Give up. | done no I could not find a page for spare screws after several searches.
=== mit-course-notes
Education | https://ocw.mit.edu/
task Find the lecture notes of MIT's 6.046J on dynamic programming.
why The agent goes round in web searches and blogs and never reaches the course on the site.
@home | | MIT OpenCourseWare
input Search OCW
@d1 | https://duckduckgo.com/?q=dynamic+programming+lecture+notes | DuckDuckGo
a Dynamic programming - GeeksforGeeks
a Notes on DP - medium.com
@d2 | https://duckduckgo.com/?q=mit+dynamic+programming+notes | DuckDuckGo
a Best notes on DP - medium.com
@blog | https://medium.com/dp-notes | DP notes
. Fibonacci and knapsack
@res | search/?q=6.046J | Search OCW
a Design and Analysis of Algorithms 6.046J
@c | courses/6-046j-spring-2015/ | Design and Analysis of Algorithms
a Lecture Notes
@n | courses/6-046j-spring-2015/pages/lecture-notes/ | Lecture Notes
a Lecture 10: Dynamic Programming
+
home | Start. | Search the number. | type Search OCW := 6.046J; key Enter
res | Found. | Open it. | click Design
c | Notes. | Open. | click Lecture Notes
n | Lecture 10. | Finish. | done yes Lecture 10: Dynamic Programming, on the lecture notes page of 6.046J.
- max_steps
home | Start. | Search. | search dynamic programming lecture notes
d1 | Blogs. | Search again. | search mit dynamic programming notes
d2 | Blogs. | Open one. | click Best notes
blog | Not MIT. | Search again. | search dynamic programming lecture notes
d1 | Blogs. | Search again. | search mit dynamic programming notes
d2 | Blogs. | Search again. | search dynamic programming lecture notes
d1 | Blogs. | Open one. | click Notes on DP
=== tsuruya-official-site
Travel & Hospitality | https://www.japan.travel/en/
task Find the official site of the ryokan "Tsuruya Kichinosa" and its check-in time.
why The wrong inns are opened one after another; the target is never reached.
@home | | Travel Japan
input Search
@s | search/?q=Tsuruya | Search results
a Tsuruya Ryokan, Karuizawa
a Tsuruya Hotel, Beppu
@a | spot/1 | Tsuruya Ryokan, Karuizawa
. In Karuizawa since 1688
@b | spot/2 | Tsuruya Hotel, Beppu
. Hot springs in Beppu
@d | https://duckduckgo.com/?q=tsuruya+kichinosa+official | DuckDuckGo
a Tsuruya Kichinosa official site
@o | https://www.tsuruyakichinosa.example/en/ | Tsuruya Kichinosa
. Check-in 15:00
+
home | Start. | Search its full name. | search tsuruya kichinosa official
d | The official site. | Open. | click Tsuruya Kichinosa
o | 15:00. | Finish. | done yes Check-in at 15:00 (official site).
- done
home | Start. | Search. | type Search := Tsuruya; key Enter
s | Two inns. | The first. | click Tsuruya Ryokan
a | Not it. | Back. | back
s | Two inns. | The second. | click Tsuruya Hotel
b | Not it. | Back. | back
s | Neither is it. | Search. | type 1 := Kichinosa !Element [1] takes no text
s | Neither is it. | Give up. | done no I could not find the ryokan's official site.
=== drug-trial-lookup
Health | https://clinicaltrials.gov/
task Find the trial NCT05555555 on ClinicalTrials.gov and name its sponsor.
why The number is searched as a condition and as free words; the study's own page is not found.
@home | | ClinicalTrials.gov
input Condition or disease
input Other terms
button Search
@n | search?cond=NCT05555555 | Search results
. No studies found for: NCT05555555
@n2 | search?cond=NCT+05555555 | Search results
. No studies found for: NCT 05555555
@st | study/NCT05555555 | Study NCT05555555
. Sponsor: University of Utah
+
home | Start. | Open the study's address. | go https://clinicaltrials.gov/study/NCT05555555
st | University of Utah. | Check. | extract sponsor => University of Utah
st | University of Utah. | Finish. | done yes University of Utah.
-
home | Start. | Search. | type Condition := NCT05555555; click Search
n | No studies. | Search. | go https://clinicaltrials.gov/search?cond=NCT+05555555
n2 | No studies. | Search. | go https://clinicaltrials.gov/search?cond=NCT05555555
n | No studies. | Search. | go https://clinicaltrials.gov/search?cond=NCT+05555555
n2 | No studies found. | Give up. | done no No study with this number could be found.
=== irs-form-8606
Finance | https://www.irs.gov/
task Find the IRS instructions for Form 8606 and tell where Part II begins about conversions.
why Menus of the site are opened in turn, and the form's page is not found.
@home | | IRS
a File
a Pay
a Refunds
a Forms and Instructions
@file | filing | File your taxes
a Who needs to file
@pay | payments | Make a payment
a Pay by card
@ref | refunds | Refunds
a Where's my refund
@forms | forms-instructions | Forms and Instructions
input Search forms
@i | instructions/i8606 | Instructions for Form 8606
# Part II: Conversions From Traditional IRAs to Roth IRAs
+
home | Start. | Forms. | click Forms
forms | A search. | 8606. | type Search forms := 8606; key Enter
i | Part II. | Finish. | done yes In the Instructions for Form 8606, section "Part II: Conversions From
 Traditional IRAs".
- max_steps
home | Start. | File. | click File
file | Not here. | Back. | back
home | Next menu. | Pay. | click Pay
pay | Not here. | Back. | back
home | Next menu. | Refunds. | click Refunds
ref | Not here. | Back. | back
home | Next menu. | File. | click File
=== speedrun-board
Entertainment & Gaming | https://www.speedrun.com/
task What is the world record for Celeste Any% on speedrun.com?
why The search is repeated with variations of words; the game's board is never opened.
@home | | speedrun.com
input Search
@u | search?q=celeste+any+record | Search
. Users: celeste_any
@u2 | search?q=celeste+world+record+any | Search
. Nothing found
@g | celeste | Celeste - speedrun.com
tab Any%
. 1. secureaccount 25m 07s
+
home | Start. | The game's name only. | type Search := Celeste; key Enter
g | Celeste. | Any%. | click Any%
g | 25m 07s. | Finish. | done yes 25m 07s by secureaccount.
-
home | Start. | Search. | type Search := celeste any record; key Enter
u | Users only. | Search. | go https://www.speedrun.com/search?q=celeste+world+record+any
u2 | Nothing found. | Search. | go https://www.speedrun.com/search?q=celeste+any+record
u | Users only. | Search. | go https://www.speedrun.com/search?q=celeste+world+record+any
u2 | Nothing found. | Give up. | done no The leaderboard could not be found.
=== mls-number
Real Estate | https://www.compass.com/
task Find the Compass listing with the MLS number 41098812 and tell its price.
why The number is put into the city field time after time, and the listing page is not found.
@home | | Compass
input City, Neighborhood, ZIP
a Advanced
@none | homes-for-sale/41098812/ | No homes found
. We could not find "41098812". Did you mean a ZIP code?
@adv | advanced-search/ | Advanced search
input MLS number
@li | listing/41098812 | 18 Vista Ct
. $1,145,000
+
home | Start. | Advanced. | click Advanced
adv | A field for the number. | Search. | type MLS := 41098812; key Enter
li | $1,145,000. | Finish. | done yes $1,145,000
- max_steps
home | Start. | Search. | type City := 41098812; key Enter
none | Not found. | Back. | back
home | Another form of it. | Search. | type City := MLS 41098812; key Enter
none | Not found. | Back. | back
home | Another form. | Search. | type City := MLS# 41098812; key Enter
none | Not found. | Back. | back
=== careers-subsidiary
Corporate & Careers | https://www.volvogroup.com/
task Find an open position at Mack Trucks in Allentown, Pennsylvania.
why A recovered click aside, the run keeps to news and brand pages and does not reach the careers search.
@home | | Volvo Group
button Accept
a About us
a Careers
a Newsroom
@ok = home
del Accept
@about | about | About us
a Mack Trucks
@mack | brands/mack | Mack Trucks
a About us
@news | news | Newsroom
a Mack opens new line
@jobs | careers/jobs | Jobs
input Search jobs
@j | careers/jobs/?q=allentown | Jobs
a Mack Trucks - Process Engineer - Allentown, PA
+
home | A bar. | Accept. | click Accept
ok | Menus. | Careers. | click Careers
jobs | A job search. | Search. | type Search jobs := Mack Allentown; key Enter
j | One. | Finish. | done yes Process Engineer, Mack Trucks, Allentown, PA.
- max_steps
home | Menus. | About. | click About us !Element [2] is covered or hidden
home | A bar covers it. | Accept. | click Accept
ok | Menus. | About. | click About us
about | Mack is listed. | Open. | click Mack Trucks
mack | No jobs. | Back. | click About us
about | No jobs. | Open again. | click Mack Trucks
mack | No jobs. | Newsroom. | go https://www.volvogroup.com/news
news | No jobs. | Search. | search mack trucks news allentown
=== transit-lost-found
Local & Home Services | https://www.sfmta.com/
task Find where to report an item lost on a Muni bus and the phone number.
why The web is searched over and over with the same words; the city's page is never opened.
@home | | SFMTA
a Contact
a Getting around
@q | https://duckduckgo.com/?q=lost+item+muni | DuckDuckGo
a Lost my phone on Muni - Reddit
a Lost on BART - bart.gov
@q2 | https://duckduckgo.com/?q=muni+lost+item+report | DuckDuckGo
a Lost my phone on Muni - Reddit
@con | contact-us | Contact us
a Lost and found
@lf | lost-found | Lost and Found
. Call 415.701.2311
+
home | Start. | Contact. | click Contact
con | Lost and found. | Open. | click Lost and found
lf | 415.701.2311. | Finish. | done yes SFMTA Lost and Found, 415.701.2311.
-
home | Start. | Search. | search lost item muni
q | Reddit and BART. | Search. | search muni lost item report
q2 | Reddit. | Search. | search lost item muni
q | Reddit and BART. | Search. | search muni lost item report
q2 | Reddit. | Search. | search lost item muni
q | Nothing official. | Give up. | done no I did not find the official page in the search results.
""",
)
