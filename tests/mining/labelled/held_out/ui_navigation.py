"""Held out: a tab, picker, menu or dropdown is not operated."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "ui_navigation",
    """
=== uniqlo-size-chart
E-Commerce | https://www.uniqlo.com/
task On uniqlo.com, open the size chart of the men's Ultra Light Down jacket and tell the chest width of size
 L.
why The size chart link is never opened; the run clicks sizes instead.
@ul | us/en/search?q=ultra+light | Search
a Men's Ultra Light Down Jacket
@p | us/en/products/E469871-000 | Ultra Light Down Jacket
button S
button M
button L
a Size chart
@l = p
. Size L selected
@chart | us/en/products/E469871-000#size | Size chart
td L
td Body width 22.5 in
+
ul | One jacket. | Open it. | click Men's Ultra
p | The jacket. | Size chart. | click Size chart
chart | 22.5 in. | Finish. | done yes 22.5 inches.
- max_steps
ul | One jacket. | Open it. | click Men's Ultra
p | The jacket. | Choose L. | click L
l | L is chosen. | Look for measures. | down 2
l | None. | Choose L again. | click L ~
l | None. | Scroll. | down 2
l | None. | Scroll back. | up 2
=== translink-time-picker
Travel & Hospitality | https://www.translink.ca/
task On translink.ca, plan a trip from Waterfront Station to YVR arriving by 8:00 AM tomorrow.
why The trip planner's time list cannot be operated by the run, so the plan is never made.
@plan | trip-planner | Trip Planner
input Start
input End
div Leave now
button Plan my trip
@more = plan
opt Arrive by
opt Leave at
@arr = plan
del Leave now
div Arrive by
input Time
@res | trip-planner/results | Your trip
li Canada Line 7:22 AM to 7:48 AM
+
plan | Start. | Enter places and open the list. | type Start := Waterfront Station; type End := YVR; click
 Leave now
more | A list. | Arrive by. | click Arrive by
arr | A time field. | Enter the time. | type Time := 8:00 AM; click Plan
res | 7:22 to 7:48. | Finish. | done yes Canada Line 7:22 AM, arriving 7:48 AM.
- failures
plan | Start. | Choose the time. | select Leave now := Arrive by !Element [3] has no options
plan | It has no options. | Type it. | type Leave now := 8:00 AM !Element [3] takes no text
plan | It takes no text. | Select again. | select Leave now := Arrive by 8:00 !Element [3] has no options
plan | Nothing worked. | Try once more. | click Leave now
=== met-object-number
Education | https://www.metmuseum.org/
task On metmuseum.org, open the page of the object "Wheat Field with Cypresses" and read its accession number.
why The object's detail section stays closed and the run goes back and forth between list and page.
@list | art/collection/search?q=wheat+field | Search the collection
a Wheat Field with Cypresses
@obj | art/collection/search/436535 | Wheat Field with Cypresses
# Wheat Field with Cypresses
button Artwork details
@det = obj
td Object Number: 1993.132
+
list | One result. | Open it. | click Wheat Field
obj | A closed section. | Open it. | click Artwork details
det | 1993.132. | Finish. | done yes 1993.132
-
list | One result. | Open it. | click Wheat Field
obj | No number here. | Back. | back
list | One result. | Open it. | click Wheat Field
obj | No number here. | Back. | back
list | One result. | Give up. | done no The details of the object could not be opened.
""",
)
