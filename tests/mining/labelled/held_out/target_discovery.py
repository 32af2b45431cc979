"""Held out: searching and wandering do not reach the target."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "target_discovery",
    """
=== bosch-manual
E-Commerce | https://www.bosch-home.com/us/
task Find the user manual page of the Bosch dishwasher SHE3AEM2N.
why Product lists are searched again and again; the manuals page is not found.
@home | | Bosch
input Search
a Owner support
@l | search?q=dishwasher | dishwasher
a 300 Series
a 500 Series
@l2 | search?q=dishwasher+manual | dishwasher manual
a 500 Series
@sup | owner-support/manuals | Manuals
input Model number
@m | owner-support/manuals/SHE3AEM2N | SHE3AEM2N manuals
a User manual (PDF)
+
home | Start. | Owner support. | click Owner support
sup | A field for the model. | Enter it. | type Model := SHE3AEM2N; key Enter
m | The manual. | Finish. | done yes https://www.bosch-home.com/us/owner-support/manuals/SHE3AEM2N
- max_steps
home | Start. | Search. | type Search := dishwasher; key Enter
l | Series. | Search. | go https://www.bosch-home.com/us/search?q=dishwasher+manual
l2 | Series. | Open. | click 500 Series
l | Series again. | Search. | go https://www.bosch-home.com/us/search?q=dishwasher+manual
l2 | Series. | Search. | go https://www.bosch-home.com/us/search?q=dishwasher
=== podcast-episode
Entertainment & Gaming | https://www.npr.org/
task Find the NPR Planet Money episode about "the invention of paper money in China".
why Each query brings news; the programme's archive is never opened.
@home | | NPR
input Search
a Podcasts
@n | search/?query=paper+money | Search
a China's economy slows
@n2 | search/?query=paper+money+china | Search
a China bans crypto
@pm | podcasts/510289/planet-money | Planet Money
a Archive
@ar | podcasts/510289/planet-money/archive | Planet Money archive
a The invention of paper money
+
home | Start. | Planet Money. | go https://www.npr.org/podcasts/510289/planet-money
pm | An archive. | Open it. | click Archive
ar | Found. | Finish. | done yes "The invention of paper money", in the Planet Money archive.
-
home | Start. | Search. | type Search := paper money; key Enter
n | News. | Search. | go https://www.npr.org/search/?query=paper+money+china
n2 | News. | Search. | go https://www.npr.org/search/?query=paper+money
n | News. | Search. | go https://www.npr.org/search/?query=paper+money+china
n2 | News. | Give up. | done no The episode was not found.
=== city-tree-permit
Government | https://www.seattle.gov/
task Find Seattle's page on permits for removing a tree on private property.
why Wrong departments are opened one after the other.
@home | | Seattle.gov
a Parks
a Transportation
a Construction & Inspections
@p | parks | Parks
a Trees in parks
@t | transportation | Transportation
a Street trees
@tt | transportation/trees | Street trees
a Transportation
@c | sdci | Construction & Inspections
a Tree removal on private property
@x | sdci/codes/tree-removal | Tree removal
# Do you need a permit?
+
home | Start. | Construction. | click Construction
c | Tree removal. | Open. | click Tree removal
x | Found. | Finish. | done yes https://www.seattle.gov/sdci/codes/tree-removal
- max_steps
home | Start. | Parks. | click Parks
p | Not private. | Back. | back
home | Another. | Transportation. | click Transportation
t | Street trees. | Open. | click Street trees
tt | Not private. | Back up. | click Transportation
t | Street trees. | Open. | click Street trees
""",
)
