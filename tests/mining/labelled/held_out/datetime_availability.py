"""Held out: a date, time, stock or recency condition is not verified."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "datetime_availability",
    """
=== lego-in-stock
E-Commerce | https://www.lego.com/
task Name a LEGO Botanicals set on lego.com that can be ordered now (not backordered).
must Available now
why The set told is marked as backorder on its page, which the run passed over.
@home | | LEGO
a Botanicals
@l | themes/botanicals | Botanicals
a Orchid
a Bonsai Tree
@o | product/orchid-10311 | Orchid
. $49.99
. Backorder, will ship by January 14
button Add to Bag
@b | product/bonsai-10281 | Bonsai Tree
. $49.99
. Available now
button Add to Bag
+
home | Start. | Botanicals. | click Botanicals
l | Two sets. | Orchid first. | click Orchid
o | Backorder. | The other. | back
l | Not the orchid. | Bonsai. | click Bonsai
b | Available now. | Finish. | done yes Bonsai Tree, available now, $49.99.
-
home | Start. | Botanicals. | click Botanicals
l | Two sets. | Orchid. | click Orchid
o | $49.99. | Finish. | done yes Orchid, $49.99.
=== ferry-sailing
Travel & Hospitality | https://www.wsdot.com/
task When is the last ferry from Seattle to Bainbridge on Thanksgiving Day, November 26, 2026?
must November 26, 2026
why The everyday timetable was read; the holiday's date was not chosen.
@f | ferries/schedule/ | Schedule
input Route
select Date = Today
button Show
@t | ferries/schedule/?route=sea-bi&date=20261116 | Seattle / Bainbridge
# Monday, November 16
li Last sailing 2:10 AM
@h | ferries/schedule/?route=sea-bi&date=20261126 | Seattle / Bainbridge
# Thursday, November 26 (holiday schedule)
li Last sailing 12:55 AM
@home | | WSDOT
a Ferries
+
home | Start. | Ferries. | click Ferries
f | A form. | Route and date. | type Route := Seattle / Bainbridge; select Date := Nov 26; click Show
h | 12:55 AM. | Finish. | done yes 12:55 AM (holiday schedule of November 26).
-
home | Start. | Ferries. | click Ferries
f | A form. | Route. | type Route := Seattle / Bainbridge; click Show
t | 2:10 AM. | Finish. | done yes The last ferry leaves at 2:10 AM.
=== clinic-flu-shot
Health | https://www.walgreens.com/
task Is a flu shot appointment available at the Walgreens in Salem, OR on November 18, 2026 after 5 PM?
must November 18 after 5 PM
why The run says yes from the store's opening hours and never saw the day's free slots.
@s | findcare/schedule-vaccine | Schedule a vaccine
input ZIP
button Find stores
@l | findcare/schedule-vaccine/stores | Stores
a 4380 Commercial St SE
. Store hours 8am - 9pm, pharmacy until 8pm
@d | findcare/schedule-vaccine/times | Pick a time
button Tue Nov 17
button Wed Nov 18
@w = d
li 5:15 PM
li 6:30 PM
+
s | Start. | Stores. | type ZIP := 97302; click Find stores
l | One store. | Its times. | click 4380
d | Days. | Nov 18. | click Wed Nov 18
w | 5:15 and 6:30. | Finish. | done yes Yes: 5:15 PM and 6:30 PM on Nov 18.
-
s | Start. | Stores. | type ZIP := 97302; click Find stores
l | The pharmacy is open until 8pm. | Scroll. | down
l | Open until 8pm. | Finish. | done yes Yes, it is open until 8 PM, so appointments after 5 PM are available.
""",
)
