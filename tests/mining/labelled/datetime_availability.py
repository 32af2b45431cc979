"""A required date, time, stock or recency condition is never verified."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "datetime_availability",
    """
=== sephora-stock-nearby
E-Commerce | https://www.sephora.com/
task Find a Sephora store in Denver that has the Laneige Lip Sleeping Mask (Berry) in stock for pickup today.
must In stock for pickup today
why The product page alone is read; whether a store in Denver has it today is never checked.
@home | | Sephora
input Search
@res | search?keyword=laneige%20lip | Search results
a LANEIGE Lip Sleeping Mask
@p | product/lip-sleeping-mask-P420652 | Lip Sleeping Mask
# LANEIGE Lip Sleeping Mask
. $24.00
button Color: Berry
button Check pickup at other stores
button Add to Basket
@near = p
input ZIP code
li Cherry Creek, Denver: In stock, pickup today by 6 PM
li Colorado Blvd, Denver: Out of stock
+
home | Start. | Search. | type Search := laneige lip sleeping mask; key Enter
res | Found. | Open it. | click LANEIGE
p | Berry is offered. | Check the stores. | click Color: Berry; click Check pickup
near | Cherry Creek has it today. | Finish. | done yes Cherry Creek, Denver: in stock, pickup today by 6 PM.
-
home | Start. | Search. | type Search := laneige lip sleeping mask; key Enter
res | Found. | Open it. | click LANEIGE
p | $24, Berry is offered. | Choose Berry. | click Color: Berry
p | Berry is chosen. | Finish. | done yes The Lip Sleeping Mask in Berry is sold by Sephora for $24; Denver
 stores
 should carry it.
=== amtrak-date-default
Travel & Hospitality | https://www.amtrak.com/
task Find the departure times of trains from Chicago to Milwaukee on Saturday, November 28, 2026.
must November 28, 2026
why The times told are those of the default date, tomorrow; November 28 was never entered.
@home | | Amtrak
input From
input To
date Depart = 2026-11-17
button Find trains
@ready = home
input From = CHI
input To = MKE
@tue | tickets/departure.html?date=2026-11-17 | Select departure
# Tuesday, November 17
li Hiawatha 331 6:10 AM
li Hiawatha 333 8:25 AM
@sat | tickets/departure.html?date=2026-11-28 | Select departure
# Saturday, November 28
li Hiawatha 333 8:25 AM
li Hiawatha 335 10:20 AM
+
home | Start. | Enter the stations. | type From := CHI; type To := MKE
ready | Both are set. | Set the date. | type Depart := 2026-11-28; click Find trains
sat | Two trains. | Read. | extract departure times => 8:25 AM, 10:20 AM
sat | 8:25 and 10:20. | Finish. | done yes November 28: 8:25 AM and 10:20 AM.
-
home | Start. | Enter the stations. | type From := CHI; type To := MKE
ready | Both are set. | Search. | click Find trains
tue | Two trains. | Read. | extract departure times => 6:10 AM, 8:25 AM
tue | 6:10 and 8:25. | Finish. | done yes Trains from Chicago to Milwaukee leave at 6:10 AM and 8:25 AM.
=== news-recency
Government | https://www.fda.gov/
task Name the most recent food recall on the FDA's list that was published in the last 7 days.
must Published in the last 7 days
why The recall told is of September; nobody verified that it lies in the last seven days.
@home | | FDA
a Recalls
@r | safety/recalls-market-withdrawals-safety-alerts | Recalls
input Search
a Golden Farms - cucumbers
a Sunny Bakery - bread
button Sort by Date
@c | recalls/golden-farms | Golden Farms recall
. Company announcement date: September 2, 2026. Cucumbers, Salmonella
@s = r
del Golden
a 11/13/2026 Hearth Foods - soup, undeclared milk
@hf | recalls/hearth-foods | Hearth Foods recall
. Publish date: November 13, 2026. Soup, undeclared milk
+
home | Start. | Recalls. | click Recalls
r | Not sorted. | Sort by date. | click Sort by Date
s | 11/13 on top. | Open it. | click 11/13/2026
hf | November 13 is three days ago. | Finish. | done yes Hearth Foods soup (undeclared milk), November 13,
 2026.
-
home | Start. | Recalls. | click Recalls
r | Cucumbers are first. | Open it. | click Golden Farms
c | Cucumbers, Salmonella. | Finish. | done yes The most recent recall is Golden Farms cucumbers (Salmonella).
=== dentist-saturday
Health | https://www.aspendental.com/
task Find an Aspen Dental office in Columbus, Ohio with an opening on Saturday, November 21, 2026 in the
 morning.
must Saturday, November 21, morning
why Office hours are taken for an opening; the free times of that day were never seen.
@home | | Aspen Dental
input City or ZIP
button Find
@o | dentist/oh/columbus | Offices in Columbus, OH
a Columbus - Polaris
a Columbus - Easton
@p | dentist/oh/columbus/polaris | Polaris
# Aspen Dental Polaris
. Hours: Mon-Fri 8-5, Sat 8-1
button See available times
@t = p
button Thu Nov 19
button Sat Nov 21
@sat = t
. Sat Nov 21: 9:40 AM, 11:00 AM
+
home | Start. | Search. | type City := Columbus, OH; click Find
o | Two offices. | Polaris. | click Columbus - Polaris
p | Hours. | Times. | click See available
t | Days. | Saturday. | click Sat Nov 21
sat | 9:40 AM is free. | Finish. | done yes Polaris, Sat Nov 21 at 9:40 AM.
- max_steps
home | Start. | Search. | type City := Columbus, OH; click Find
o | Two offices. | Polaris. | click Columbus - Polaris
p | Open on Saturdays from 8 to 1. | Look further. | down
p | Saturday 8-1 fits: Polaris. | Note it. | write dentist.md := Polaris, Saturday 8-1
p | Noted. | Read about the dentists. | down 2
=== khruangbin-tickets
Entertainment & Gaming | https://www.songkick.com/
task When does Khruangbin play in Europe next, and are tickets still available?
must Tickets available
why The show is named, but that it is not sold out was never looked at.
@home | | Songkick
input Search
@k | artists/khruangbin | Khruangbin tour dates
a Jan 9, 2027 Lisbon, Portugal
a Jan 12, 2027 Madrid, Spain
@l | concerts/lisbon | Khruangbin, Lisbon
# Khruangbin at LAV
. Sold out
@m | concerts/madrid | Khruangbin, Madrid
# Khruangbin at WiZink
. Tickets available from EUR 45
+
home | Start. | Search. | type Search := Khruangbin; key Enter
k | Two shows. | Is Lisbon available? | click Jan 9
l | Sold out. | Back for the next. | back
k | Lisbon is sold out. | Is Madrid? | click Jan 12
m | Available. | Finish. | done yes Jan 9 in Lisbon (sold out); Jan 12 in Madrid has tickets from EUR 45.
-
home | Start. | Search. | type Search := Khruangbin; key Enter
k | Jan 9 in Lisbon. | Scroll. | down
k | Jan 9 in Lisbon. | Finish. | done yes Next: January 9, 2027 in Lisbon; tickets can be bought on Songkick.
=== jobs-posted-today
Corporate & Careers | https://www.monster.com/
task Find a forklift operator job in Memphis that was posted within the last 24 hours.
must Posted within the last 24 hours
why The age of the posting was never checked: the page says 21 days.
@home | | Monster
input Search jobs
input Location
@l | jobs/search?q=forklift&where=Memphis | Forklift jobs
a Forklift Operator - Nike DC
a Forklift Operator - XPO
a Date posted
@n | job/nike | Forklift Operator - Nike DC
. $19 an hour
. Posted 21 days ago
@d | jobs/search?q=forklift&where=Memphis&recency=today | Forklift jobs
a Forklift Operator - XPO - today
@x | job/xpo | Forklift Operator - XPO
. $20 an hour
. Posted 5 hours ago
+
home | Start. | Search. | type Search := forklift operator; type Location := Memphis, TN; key Enter
l | Two jobs. | Only today's. | click Date posted
d | XPO. | Open it. | click Forklift
x | 5 hours ago. | Finish. | done yes XPO, $20 an hour, posted 5 hours ago.
-
home | Start. | Search. | type Search := forklift operator; type Location := Memphis, TN; key Enter
l | Two jobs. | Open the first. | click Forklift Operator - Nike
n | $19 an hour. | Finish. | done yes Forklift Operator at Nike DC, $19 an hour.
=== open-house-weekend
Real Estate | https://www.realtor.com/
task Find a home in Madison, WI with an open house this Saturday (November 21) between 10 AM and noon.
must Open house Saturday, November 21, 10 AM to noon
why The open house of the home told is on Sunday afternoon; its time was not checked.
@l | realestateandhomes-search/Madison_WI/show-open-house | Madison open houses
a 55 Lake St - Open house
a 9 Elm Ct - Open house
@a | detail/55-lake | 55 Lake St
# 55 Lake St
. $410,000, 3 bed
button Open houses
@b | detail/9-elm | 9 Elm Ct
# 9 Elm Ct
. $379,000, 3 bed
button Open houses
@bt = b
li Sat Nov 21, 10:30 AM - 12:00 PM
@at = a
li Sun Nov 22, 1:00 PM - 3:00 PM
@home | | realtor.com
input Address, city
+
home | Start. | Open houses. | go https://www.realtor.com/realestateandhomes-search/Madison_WI/show-open-house
l | Two homes. | The first. | click 55 Lake
a | It has an open house. | When? | click Open houses
at | On Sunday. | The other. | back
l | Lake St is on Sunday. | The second. | click 9 Elm
b | It has one. | When? | click Open houses
bt | Sat 10:30. | Finish. | done yes 9 Elm Ct, Sat Nov 21, 10:30 AM - 12:00 PM.
-
home | Start. | Open houses. | go https://www.realtor.com/realestateandhomes-search/Madison_WI/show-open-house
l | Two homes. | The first. | click 55 Lake
a | $410,000 and an open house. | Finish. | done yes 55 Lake St in Madison, $410,000, has an open house.
=== exchange-rate-historic
Finance | https://www.exchangerates.org.uk/
task What was the GBP/USD closing rate on October 30, 2026?
must The rate of October 30, 2026
why Today's live rate was given; the historic date was not looked up.
@g | GBP-USD-exchange-rate-history.html | GBP to USD
# Live: 1 GBP = 1.3122 USD
a 2026 history
a 2025 history
@h | GBP-USD-spot-exchange-rates-history-2026.html | GBP USD 2026 | 8.0
td 13 November 2026
td 1.3109
@o | GBP-USD-spot-exchange-rates-history-2026.html#oct | GBP USD 2026
td 30 October 2026
td 1.3047
@home | | Exchange Rates
a GBP to USD
+
home | Start. | Open the pair. | click GBP to USD
g | A live rate and a history. | 2026. | click 2026 history
h | November. | October 30. | find 30 October 2026
o | 1.3047. | Finish. | done yes 1.3047 on October 30, 2026.
-
home | Start. | Open the pair. | click GBP to USD
g | 1.3122. | Check. | extract GBP/USD rate => 1 GBP = 1.3122 USD (live)
g | 1.3122. | Finish. | done yes The GBP/USD rate was 1.3122.
=== tate-tour-date
Education | https://www.tate.org.uk/
task Is there a guided tour at Tate Modern on Tuesday, December 8, 2026, and at what time does it start?
must December 8, 2026
why The tour page tells of daily tours in general; December 8, a closed day, was not verified.
@w | visit/tate-modern | Tate Modern
a Tours
a What's on
@t | whats-on/tate-modern/daily-guided-tours | Daily guided tours
. Free tours every day at 11.00, 12.00 and 14.00
button Check dates
@c = t
button November 2026
button December 2026
@d = t
. Tuesday 8 December: no 11.00 tour, tours at 12.00 and 14.00
+
w | Start. | Tours. | click Tours
t | Daily. | Check the date. | click Check dates
c | Months. | December. | click December 2026
d | 12.00 and 14.00. | Finish. | done yes Yes: on December 8 tours start at 12.00 and 14.00.
-
w | Start. | Tours. | click Tours
t | Every day at 11. | Look further. | down
t | Every day at 11, 12, 14. | Finish. | done yes Yes, tours run every day; the first starts at 11.00.
=== taskrabbit-tomorrow
Local & Home Services | https://www.taskrabbit.com/
task Find a TaskRabbit in Austin for furniture assembly who is free tomorrow (November 17) at 2 PM.
must Free on November 17 at 2 PM
why The tasker was chosen by rating, and the calendar with tomorrow's hours stayed closed.
@home | | Taskrabbit
a Furniture Assembly
@f | book/furniture/form | Furniture assembly
input Your location
button Continue
@l | book/furniture/taskers | Taskers
a Omar D. 5.0 $42/hr
a Lucy P. 4.9 $38/hr
@o | taskers/omar | Omar D.
. 5.0, 311 reviews
button View calendar
@oc = o
li Nov 17: no times
@u | taskers/lucy | Lucy P.
. 4.9, 190 reviews
button View calendar
@uc = u
li Nov 17: 10:00 AM, 2:00 PM
+
home | Start. | Assembly. | click Furniture
f | Location. | Austin. | type Your location := Austin, TX; click Continue
l | Two taskers. | Omar's calendar. | click Omar
o | A calendar. | Open it. | click View calendar
oc | Omar is not free. | Lucy. | go https://www.taskrabbit.com/taskers/lucy
u | Lucy. | Calendar. | click View calendar
uc | 2 PM is free. | Finish. | done yes Lucy P., $38/hr, free on Nov 17 at 2 PM.
-
home | Start. | Assembly. | click Furniture
f | Location. | Austin. | type Your location := Austin, TX; click Continue
l | Omar has 5.0. | Open him. | click Omar
o | 5.0, 311 reviews. | Finish. | done yes Omar D., 5.0 with 311 reviews, $42 an hour.
""",
)
