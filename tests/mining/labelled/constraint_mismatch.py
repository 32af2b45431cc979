"""What was chosen violates a required attribute, is another object, or misses a numeric threshold."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "constraint_mismatch",
    """
=== amazon-monitor-over-budget
E-Commerce | https://www.amazon.com/
task Find a 27-inch 4K monitor with at least 4.5 stars under $250 and give its name and price.
must 27 inches
must 4K
must At least 4.5 stars
must Under $250
why The named monitor costs $279.99, above the limit of $250.
@home | | Amazon.com
input Search Amazon
@res | s?k=27+inch+4k+monitor | Amazon.com : 27 inch 4k monitor
a LG 27UP650 27" 4K 4.6 stars $279.99
a Dell S2725QS 27" 4K 4.5 stars $249.99
a KTC H27T22 27" QHD 4.4 stars $159.99
@dell | dp/B0DELL | Dell S2725QS
. $249.99
. 4.5 out of 5 stars
@lg | dp/B0LG | LG 27UP650
. $279.99
. 4.6 out of 5 stars
+
home | Start. | Search. | type Search Amazon := 27 inch 4k monitor; key Enter
res | The Dell has 4.5 and $249.99. | Open it. | click Dell
dell | $249.99, 4.5. | Finish. | done yes Dell S2725QS, $249.99, 4.5 stars.
-
home | Start. | Search. | type Search Amazon := 27 inch 4k monitor; key Enter
res | The LG has the best rating. | Open it. | click LG
lg | $279.99, 4.6 stars. | Finish. | done yes LG 27UP650, 27 inch 4K, 4.6 stars, $279.99.
=== airbnb-pets
Travel & Hospitality | https://www.airbnb.com/
task Find an entire place in Asheville for 4 guests with a hot tub, pets allowed, below $200 a night, Dec
 11-13.
must Entire place
must Hot tub
must Pets allowed
must Below $200 a night
why The chosen cabin says that no pets are allowed; the dates, although in the task, are right.
@res | s/Asheville/homes?checkin=2026-12-11&checkout=2026-12-13&adults=4&amenities=hot_tub | Asheville
a Cabin with hot tub $172 night
a Ridge house, hot tub, pets welcome $189 night
. Dec 11 - 13
@cabin | rooms/11 | Cabin with hot tub
. Entire cabin, 4 guests, hot tub
. House rules: No pets
. $172 night, Dec 11 - 13
@ridge | rooms/12 | Ridge house
. Entire home, 6 guests, hot tub
. House rules: Pets allowed
. $189 night, Dec 11 - 13
@home | | Airbnb
input Search destinations
+
home | Start. | Search with all. | go
 https://www.airbnb.com/s/Asheville/homes?checkin=2026-12-11&checkout=2026-12-13&adults=4&amenities=hot_tub
res | Two with hot tubs. | The ridge house takes pets. | click Ridge house
ridge | Pets allowed, $189. | Finish. | done yes Ridge house, $189 a night, hot tub, pets allowed.
-
& 1
res | The cabin is cheapest. | Open it. | click Cabin
cabin | Hot tub, 4 guests, $172. | Finish. | done yes Cabin with hot tub, entire cabin, $172 a night, Dec
 11-13.
=== jobs-wrong-level
Corporate & Careers | https://careers.google.com/
task Find an entry-level (0-1 years) software engineering job at Google in Zurich and give its title.
must Entry level
must Zurich
why The job given asks for five years of experience, so it is no entry-level job.
@gc | | Google Careers
input What do you want to do?
input Location
@home | jobs/results/?location=Zurich&q=software | Jobs
a Software Engineer III, Zurich
a Software Engineer, Early Career, Zurich
a Staff Engineer, Zurich
@iii | jobs/results/1 | Software Engineer III
li 5 years of experience with software development
@early | jobs/results/2 | Software Engineer, Early Career
li Up to 1 year of experience
+
gc | Start. | Search. | type What do := software engineer; type Location := Zurich; key Enter
home | Three jobs. | Early career fits. | click Software Engineer, Early
early | Up to 1 year. | Finish. | done yes Software Engineer, Early Career, Zurich.
-
gc | Start. | Search. | type What do := software engineer; type Location := Zurich; key Enter
home | Three jobs. | The first. | click Software Engineer III
iii | In Zurich. | Read it. | down
iii | In Zurich, software. | Finish. | done yes Software Engineer III, Zurich.
=== recipe-calories
Health | https://www.eatingwell.com/
task Find a vegetarian dinner recipe on EatingWell with at most 400 calories and at least 15 g protein.
must Vegetarian
must At most 400 calories
must At least 15 g protein
why The recipe has only 9 g of protein; the threshold is 15 g.
@ew | | EatingWell
button No thanks
a Vegetarian dinner
@ew2 = ew
del No thanks
@l | recipes/vegetarian-dinner/ | Vegetarian dinner recipes
a Stuffed sweet potatoes
a Black bean chili
a Chicken skillet
@sp | recipe/stuffed-sweet-potatoes | Stuffed sweet potatoes
td Calories 324
td Protein 9g
@bb | recipe/black-bean-chili | Black bean chili
td Calories 368
td Protein 18g
+
ew | A newsletter box. | Close it. | click No thanks
ew2 | It is closed. | The dinners. | click Vegetarian
l | A list. | Open chili. | click Black bean
bb | 368 calories, 18 g. | Finish. | done yes Black bean chili: 368 calories, 18 g protein.
-
ew | A newsletter box. | Close it. | click No thanks
ew2 | It is closed. | The dinners. | click Vegetarian
l | A list. | Open the potatoes. | click Stuffed
sp | 324 calories, 9 g. | Read it. | extract calories and protein => 324 calories, 9 g protein
sp | Below 400 calories. | Finish. | done yes Stuffed sweet potatoes: vegetarian, 324 calories, 9 g protein.
=== rent-bedrooms
Real Estate | https://www.trulia.com/
task Find an apartment for rent in Tempe, AZ with 2+ bedrooms and in-unit laundry, at most $1,700 a month.
must 2 or more bedrooms
must In-unit laundry
must At most $1,700
why The result has one bedroom, although two were required.
@tr | | Trulia
input Enter an address or city
@list | for_rent/Tempe,AZ/ | Tempe apartments
button Beds
a 1bd Rio Paradise $1,395 in-unit laundry
a 2bd Lakeside Drive $1,650 in-unit laundry
a 2bd Mill Ave $1,890
@rio | rental/rio | Rio Paradise
. 1 bd, 1 ba, $1,395, washer and dryer in unit
@lake | rental/lakeside | Lakeside Drive
. 2 bd, 2 ba, $1,650, washer and dryer in unit
+
tr | Start. | Search Tempe. | type Enter := Tempe, AZ; key Enter
list | Prices here. | Lakeside fits. | click 2bd Lakeside
lake | 2 bd, $1,650. | Finish. | done yes Lakeside Drive: 2 bd, $1,650, in-unit laundry.
-
tr | Start. | Search Tempe. | type Enter := Tempe, AZ; key Enter
list | Rio is cheapest. | Open it. | click 1bd Rio
rio | Washer in unit, $1,395. | Finish. | done yes Rio Paradise: $1,395 a month with in-unit laundry.
=== nerdwallet-no-fee-card
Finance | https://www.nerdwallet.com/
task Find a travel credit card with no annual fee and no foreign transaction fee on NerdWallet.
must No annual fee
must No foreign transaction fee
why The card told has an annual fee of $95; an early failed click was put right and is not the cause.
@l | best/credit-cards/travel | Best travel cards
button Close offer
a Venture Rewards - annual fee $95
a VentureOne Rewards - annual fee $0
@l2 = l
del Close offer
@v | cards/venture | Venture Rewards
td Annual fee $95
td Foreign transaction fee: none
@v1 | cards/ventureone | VentureOne Rewards
td Annual fee $0
td Foreign transaction fee: none
+
l | An offer covers it. | Close. | click Close offer
l2 | Two cards. | VentureOne. | click VentureOne
v1 | $0, none. | Finish. | done yes VentureOne Rewards: $0 annual fee, no foreign transaction fee.
-
l | Two cards. | Open Venture. | click Venture Rewards !Element [2] is covered or hidden
l | An offer covers it. | Close. | click Close offer
l2 | Two cards. | Open Venture. | click Venture Rewards
v | No foreign fee. | Finish. | done yes Venture Rewards: no foreign transaction fee, annual fee $95.
=== futurelearn-weeks
Education | https://www.futurelearn.com/
task Find a free FutureLearn course about climate that takes at most 4 weeks.
must At most 4 weeks
must Free
why The course takes six weeks; the limit is four.
@s | search?q=climate | climate - FutureLearn
a Climate Change: The Science - 6 weeks, free
a Climate Action Basics - 3 weeks, free
@six | courses/climate-science | Climate Change: The Science
. Duration 6 weeks. Free
@three | courses/climate-action | Climate Action Basics
. Duration 3 weeks. Free
@home | | FutureLearn
input Search courses
+
home | Start. | Search. | type Search := climate; key Enter
s | Two. | Basics. | click Climate Action
three | 3 weeks, free. | Finish. | done yes Climate Action Basics: 3 weeks, free.
-
home | Start. | Search. | type Search := climate; key Enter
s | Two. | The first. | click Climate Change
six | Free, by Exeter. | Finish. | done yes Climate Change: The Science. Free, 6 weeks.
=== steam-linux-coop
Entertainment & Gaming | https://store.steampowered.com/
task Find a co-op game on Steam for Linux under $15 with "Very Positive" reviews or better.
must Co-op
must Linux
must Under $15
must Very Positive or better
why The game settled on runs on Windows alone, the platform required is Linux.
@age | agecheck | Age check
select Year = 2026
button View page
@st | | Steam
input search the store
@l | search/?term=co-op&maxprice=15 | Steam Search
a Overcook Pals $11.99 Very Positive Windows
a Barony $14.99 Very Positive Windows macOS Linux
@pals | app/11 | Overcook Pals
. Very Positive (8,221)
. SYSTEM REQUIREMENTS Windows 10
@bar | app/12 | Barony
. Very Positive (9,110)
. SYSTEM REQUIREMENTS Windows, macOS, SteamOS + Linux
+
age | An age check. | Pass it. | select Year := 1990; click View page
st | The shop. | Search with a price limit. | go https://store.steampowered.com/search/?term=co-op&maxprice=15
l | Two. | Barony has Linux. | click Barony
bar | Linux is there. | Finish. | done yes Barony, $14.99, Very Positive, Linux.
- max_steps
age | An age check. | Pass it. | select Year := 1990; click View page
st | The shop. | Search with a price limit. | go https://store.steampowered.com/search/?term=co-op&maxprice=15
l | Two. | Cheapest. | click Overcook
pals | Very positive. | Add to the list. | write game.md := Overcook Pals $11.99
pals | Noted: Overcook Pals it is. | Look at its pictures. | down 1
=== library-wrong-edition
Government | https://www.loc.gov/
task In the Library of Congress catalogue, find the 1855 first edition of "Leaves of Grass" and give its
 control number.
must The edition of 1855
why Another object was taken: the control number belongs to the 1860 edition.
@lc | | Library of Congress
input Search everything
@s | search/?q=leaves+of+grass+whitman | Search results
a Leaves of grass. 1860-61
a Leaves of grass. Brooklyn, N.Y. 1855
@e60 | item/06006235/ | Leaves of grass. 1860
td Created / Published Boston, 1860
td LCCN 06006235
@e55 | item/98161063/ | Leaves of grass. 1855
td Created / Published Brooklyn, 1855
td LCCN 98161063
+
lc | Start. | Search. | type Search := leaves of grass whitman; key Enter
s | Two editions. | The one of 1855. | click Leaves of grass. Brooklyn
e55 | LCCN 98161063. | Finish. | done yes LCCN 98161063 (Brooklyn, 1855).
-
lc | Start. | Search. | type Search := leaves of grass whitman; key Enter
s | Two editions. | The first hit. | click Leaves of grass. 1860
e60 | LCCN 06006235. | Finish. | done yes The control number of Leaves of Grass is 06006235.
=== rover-giant-dog
Local & Home Services | https://www.rover.com/
task Find a dog sitter in Portland who takes dogs over 100 lbs for at most $60 a night.
must Dogs over 100 lbs
must At most $60 a night
why The sitter takes dogs only up to 40 lbs, so the requirement is violated.
@rv | | Rover
input Address
date Drop off
button Search
@l | search/?location=Portland | Dog boarding in Portland
a Jess R. $45 per night
a Tom K. $58 per night
@jess | members/jess | Jess R.
. $45 per night. Accepts small dogs 0-15, medium dogs 16-40 lbs
@tom | members/tom | Tom K.
. $58 per night. Accepts large and giant dogs, 101+ lbs
+
rv | Start. | Search. | type Address := Portland, OR; click Search
l | Two sitters. | See Tom. | click Tom
tom | $58, 101+ lbs. | Finish. | done yes Tom K., $58 per night, takes dogs of 101+ lbs.
-
rv | Start. | Search. | click Search !Element [3] is covered or hidden
rv | A box was in the way. | Search again. | type Address := Portland, OR; click Search
l | Two sitters. | See Jess, the cheapest. | click Jess
jess | $45. | Look further down. | down 2
jess | $45, good reviews. | Finish. | done yes Jess R., $45 per night, takes dogs up to 40 lbs.
""",
)
