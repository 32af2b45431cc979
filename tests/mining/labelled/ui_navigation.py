"""A needed detail page, tab, date picker, menu or dropdown is not reached or not operated."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "ui_navigation",
    """
=== kayak-calendar-stuck
Travel & Hospitality | https://www.kayak.com/
task Find the cheapest round trip from Denver to Seattle leaving December 4 and returning December 9, 2026.
why The calendar is never operated: the run clicks its covered field and types into a picker that takes no
 text.
@home | | KAYAK
input From?
input To?
div Departure
div Return
button Search
@cal = home
# December 2026
button December 4
button December 9
button Next month
@set = home
div Fri 12/4
div Wed 12/9
@res | flights/DEN-SEA/2026-12-04/2026-12-09?sort=price_a | DEN to SEA
li Frontier $118 round trip, 2h 58m
li Alaska $176 round trip, 2h 51m
@fields = home
input From? = Denver (DEN)
input To? = Seattle (SEA)
+
home | Start. | Enter both cities. | type From? := Denver; type To? := Seattle
fields | Cities set. | Open the calendar. | click Departure
cal | December is shown. | Pick both days. | click December 4; click December 9
set | Both dates set. | Search. | click Search
res | Frontier $118. | Finish. | done yes Frontier, $118 round trip.
- failures
home | Start. | Enter both cities. | type From? := Denver; type To? := Seattle
fields | Cities set. | Type the departure. | type Departure := 12/04/2026 !Element [3] takes no text
fields | The field takes no text. | Type it again. | type Departure := Dec 4 !Element [3] takes no text
fields | It still does not work. | Click it. | click Departure !Element [3] is covered or hidden
fields | The picker does not open. | Search without it. | click Search
=== rei-spec-tab
E-Commerce | https://www.rei.com/
task What is the packed weight of the REI Co-op Half Dome 2 tent according to its specs tab?
why The specs tab is never opened: the run scrolls up and down past it and ends without the weight.
@home | | REI
input Search for great gear
@p | product/190455/half-dome-2 | Half Dome 2 Tent | REI | 4.0
# REI Co-op Half Dome 2 Tent with Footprint
. $279.00
tab Details
tab Specs
tab Reviews
@low | product/190455/half-dome-2 | Half Dome 2 Tent | REI | 2.0
. Frequently bought together
a MSR stove
@spec = p
td Packed weight
td 4 lbs. 14.5 oz.
+
home | Start. | Search the tent. | type Search := half dome 2; key Enter
p | Start. | Open the specs. | click Specs
spec | 4 lbs 14.5 oz. | Finish. | done yes Packed weight: 4 lbs. 14.5 oz.
- max_steps
home | Start. | Search the tent. | type Search := half dome 2; key Enter
p | Start. | Look for the specs. | down 1
low | No specs here. | Further down. | down 2
low | No specs here. | Back up. | up 2
p | The top of the page again. | Find the weight. | find Packed weight ~
p | Not found. | Scroll. | down 1
low | No specs here. | Tell what I saw. | up 1
=== nhs-accordion
Health | https://www.nhs.uk/
task On nhs.uk, what does the page on the MMR vaccine list as common side effects?
why The closed section with the side effects is never opened; the run returns to the index instead.
@az | conditions/ | Health A to Z
a Vaccinations
a Cookies settings
@cov = az
button Accept analytics cookies
@v | vaccinations/mmr-vaccine/ | MMR vaccine - NHS
# MMR vaccine
button Who should have it
button How to get it
button Side effects of the MMR vaccine
a Vaccinations
@open = v
li swelling or pain where the injection was given
li a high temperature
@index | vaccinations/ | Vaccinations - NHS
a MMR vaccine
a Flu vaccine
+
cov | A cookie bar. | Accept. | click Accept
az | A to Z. | Open the vaccine. | go https://www.nhs.uk/vaccinations/mmr-vaccine/
v | The page has sections. | Open the side effects. | click Side effects
open | Swelling or pain, temperature. | Finish. | done yes Swelling or pain at the injection site; high
 temperature.
-
cov | A cookie bar. | Accept. | click Accept
az | A to Z. | Open the vaccine. | go https://www.nhs.uk/vaccinations/mmr-vaccine/
v | The page is short. | Look in the index. | click Vaccinations
index | The vaccine is listed. | Open it. | click MMR vaccine
v | The same short page. | Back. | back
index | Nothing more here. | Open it again. | click MMR vaccine
v | The same page. | Give up. | done no I could not reach the side effects section of the page.
=== gov-dropdown-year
Government | https://www.census.gov/
task On census.gov QuickFacts, add Travis County, Texas and show the population per square mile for it.
why The list of facts is a custom dropdown that the run cannot open or operate, so the fact is never shown.
@cen | | Census.gov
a QuickFacts
a Data
@qq | quickfacts/ | QuickFacts
input Enter state, county, city
@q | quickfacts/traviscountytexas | QuickFacts: Travis County, Texas
# QuickFacts Travis County, Texas
div Select a fact
td Population, 2025
td 1,363,767
@list = q
opt Population per square mile
opt Median household income
@fact = q
td Population per square mile
td 1,301.4
+
cen | Start. | QuickFacts. | click QuickFacts
qq | A field for the place. | Enter it. | type Enter := Travis County, Texas; key Enter
q | The county is set. | Open the facts. | click Select a fact
list | The list is open. | Choose. | click Population per
fact | 1,301.4. | Finish. | done yes 1,301.4 people per square mile.
-
cen | Start. | QuickFacts. | click QuickFacts
qq | A field for the place. | Enter it. | type Enter := Travis County, Texas; key Enter
q | The county is set. | Choose the fact. | select Select a fact := Population density !Element [1] has no
 options
q | It has no options. | Choose again. | select Select a fact := Density !Element [1] has no options
q | It has no options. | List them. | options Select a fact !Element [1] has no options
q | The dropdown does not open. | Give up. | done no The fact dropdown could not be operated.
=== imdb-season-selector
Entertainment & Gaming | https://www.imdb.com/
task On IMDb, which episode of "The Bear" season 3 has the highest rating?
must Season 3
why The season selector was never changed, so the season's list of episodes was not reached.
@eps | title/tt14452776/episodes/ | The Bear - Episodes | IMDb
tab 1
tab 2
tab 3
li S1.E1 System 8.3
li S1.E7 Review 9.6
@s3 = eps | title/tt14452776/episodes/?season=3
del S1.E1
del S1.E7
li S3.E1 Tomorrow 7.9
li S3.E6 Napkins 9.4
@title | title/tt14452776/ | The Bear | IMDb
a Episode guide
+
title | Start. | Episodes. | click Episode guide
eps | Season 1 is shown. | Season 3. | click 3
s3 | Napkins 9.4. | Finish. | done yes S3.E6 Napkins, 9.4.
-
title | Start. | Episodes. | click Episode guide
eps | A list is shown. | Click the season. | click 3 !Element [3] is covered or hidden
eps | A banner covers it. | Again. | click 3 !Element [3] is covered or hidden
eps | I cannot open it. | Finish. | done no I could not switch to season 3 as its tab cannot be clicked.
=== rightmove-floorplan
Real Estate | https://www.rightmove.co.uk/
task Open the floor plan of the first result for 2-bed flats to rent in Hove and read the size of bedroom 1.
why The run looks at photos and never gets to the floor plan view.
@list | property-to-rent/find.html?locationIdentifier=Hove&minBedrooms=2 | Flats to rent in Hove
a 2 bedroom flat, Wilbury Road GBP 1,650 pcm
a 2 bedroom flat, Church Road GBP 1,500 pcm
@flat | properties/1480 | 2 bedroom flat, Wilbury Road | 3.0
# Wilbury Road, Hove
button Photos 1/14
button Floorplan
@photo = flat
# Photo 2 of 14
button Next photo
button Close
@photo3 = photo
del Photo 2
# Photo 3 of 14
@photo4 = photo
del Photo 2
# Photo 4 of 14
@plan | properties/1480#/floorplan | Floorplan
# Floorplan
. Bedroom 1: 4.2m x 3.6m
+
list | The first is Wilbury Road. | Open it. | click 2 bedroom flat, Wilbury
flat | A Floorplan button. | Open it. | click Floorplan
plan | 4.2 x 3.6 m. | Finish. | done yes Bedroom 1: 4.2m x 3.6m.
- max_steps
list | The first is Wilbury Road. | Open it. | click 2 bedroom flat, Wilbury
flat | Pictures. | Open the photos. | click Photos 1/14
photo | A kitchen. | Next. | click Next photo
photo3 | A bathroom. | Next. | click Next photo
photo4 | A living room. | Next. | click Next photo ~
photo4 | No floor plan yet. | Close. | click Close
flat | Back at the flat. | Open the photos. | click Photos 1/14
=== workday-country-menu
Corporate & Careers | https://nvidia.wd5.myworkdayjobs.com/
task On NVIDIA's career site, limit the jobs to Finland and tell how many there are.
why Its location menu closes whenever it is clicked; the run never operates it and stays on the full list.
@jobs | NVIDIAExternalCareerSite | NVIDIA Careers
. 2,011 JOBS FOUND
button Location
button Job Category
@menu = jobs
input Search locations
check Finland (8)
@fin | NVIDIAExternalCareerSite?location=FI | NVIDIA Careers
. 8 JOBS FOUND
+
jobs | A location menu. | Open it. | click Location
menu | Finland is listed. | Tick it. | click Finland (8)
fin | 8 jobs. | Finish. | done yes 8 jobs in Finland.
-
jobs | A location menu. | Open it. | click Location; click Location
jobs | The menu closed. | Open it. | click Location; wait 3; click Location
jobs | Closed again. | Press a key. | key Enter ~
jobs | Still closed. | Open it. | click 1 !Element [1] has changed
jobs | The menu does not stay open. | Give up. | done no The location menu could not be opened.
=== recipe-servings-slider
Other | https://www.allrecipes.com/
task On Allrecipes, scale the "World's Best Lasagna" recipe to 2x and tell the amount of ground beef.
why The button that scales the recipe is not found or operated; the run wanders to other pages.
@all | | Allrecipes
input Find a recipe
@ls | search?q=lasagna | lasagna
a World's Best Lasagna, 4.8, 20,000 ratings
@r | recipe/23600/worlds-best-lasagna/ | World's Best Lasagna | 6.0
# World's Best Lasagna
a Jump to recipe
a Print
@ing | recipe/23600/worlds-best-lasagna/#ingredients | World's Best Lasagna | 2.0
button 1/2X
button 1X
button 2X
li 3/4 pound lean ground beef
@two = ing
del 3/4 pound
li 1 1/2 pounds lean ground beef
@print | recipe/23600/worlds-best-lasagna/?print | Print: World's Best Lasagna
li 3/4 pound lean ground beef
+
all | Start. | Search. | type Find := world's best lasagna; key Enter
ls | It is first. | Open it. | click World's Best
r | The recipe. | Jump to it. | click Jump to recipe
ing | Scaling buttons. | 2X. | click 2X
two | 1 1/2 pounds. | Finish. | done yes 1 1/2 pounds of lean ground beef.
-
all | Start. | Search. | type Find := world's best lasagna; key Enter
ls | It is first. | Open it. | click World's Best
r | The recipe. | Open the print view. | click Print
print | No scaling here. | Back. | back
r | The recipe. | Open the print view. | click Print
print | No scaling here. | Find it. | find Servings ~
print | Not found. | Give up. | done no I could not find the control that scales the recipe.
=== khan-hover-menu
Education | https://www.khanacademy.org/
task On Khan Academy, open the AP Physics 1 course and name its third unit.
why The courses menu must be clicked, but the run types into it and scrolls; the course page is never reached.
@home | | Khan Academy | 2.0
button Learn
input Search
@menu = home
a AP/College Physics 1
a Chemistry
@phy | science/ap-physics-1 | AP/College Physics 1
li Unit 1: Kinematics
li Unit 2: Force and translational dynamics
li Unit 3: Work, energy, and power
+
home | Start. | Open Learn. | click Learn
menu | Physics is there. | Open it. | click AP/College
phy | Unit 3. | Finish. | done yes Unit 3: Work, energy, and power.
- max_steps
home | Start. | Hover Learn. | type Learn := Physics !Element [1] takes no text
home | It takes no text. | Open Learn. | click Learn
menu | A menu. | Scroll it. | down 1
home | The menu has closed. | Open Learn. | click Learn
menu | A menu. | Scroll to physics. | find Physics 1
home | The menu has closed. | Open Learn. | click Learn
=== morningstar-portfolio
Finance | https://www.morningstar.com/
task On Morningstar, open the Portfolio tab of the fund VTSAX and name its largest holding.
why The wrong tab is opened again and again; the Portfolio tab is never reached.
@home | | Morningstar
input Search quotes
@f | funds/xnas/vtsax/quote | VTSAX Quote
# Vanguard Total Stock Market Index Admiral VTSAX
tab Quote
tab Performance
tab Portfolio
tab Price
@perf = f | funds/xnas/vtsax/performance
td 1-Year 14.02
@port = f | funds/xnas/vtsax/portfolio
td NVIDIA Corp 6.71
@price = f | funds/xnas/vtsax/price
td Expense ratio 0.040%
+
home | Start. | Search the fund. | type Search := VTSAX; key Enter
f | The fund. | Portfolio. | click Portfolio
port | NVIDIA 6.71. | Finish. | done yes NVIDIA Corp, 6.71%.
-
home | Start. | Search the fund. | type Search := VTSAX; key Enter
f | The fund. | Open the tab. | click 2
perf | It is Performance. | The next tab. | click 4
price | It is Price. | Another. | click 2
perf | Performance again. | Back. | back
price | Price again. | Give up. | done no I could not get to the holdings tab.
""",
)
