"""The run times out, crashes, or leaves no actions that can be read."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "runtime_evaluation",
    """
=== argos-time-limit
E-Commerce | https://www.argos.co.uk/
task Find the cheapest air fryer of at least 6 litres at Argos.
must 6 litres or more
why The run was on its way and was cut off by the time limit; nothing else went wrong.
@ck | | Argos
button Accept all
@home | | Argos
input Search
@res | search/air-fryer/?capacity=6l+&sort=price | Air fryers
a Cookworks 6L Air Fryer GBP 50
a Ninja 6.2L Air Fryer GBP 149
@load | search/air-fryer/ | Air fryers
. Loading results
+
ck | Cookies. | Accept. | click Accept all
home | Start. | Search. | type Search := air fryer 6 litre; key Enter
res | Cookworks GBP 50. | Finish. | done yes Cookworks 6L, GBP 50.
- timeout
ck | Cookies. | Accept. | click Accept all
home | Start. | Search. | type Search := air fryer; key Enter
load | Results come slowly. | Wait. | wait 30
load | Results come slowly. | Wait. | wait 30
load | Results come slowly. | Wait. | wait 30
=== broken-json-flights
Travel & Hospitality | https://www.skyscanner.net/
task Find the cheapest direct flight from Oslo to Berlin on December 2, 2026.
why Three replies in a row could not be read as JSON, so no action was carried out.
@ro | https://www.skyscanner.net/sttc/px/captcha | Skyscanner
# Are you a person or a robot?
div PRESS & HOLD
@home | | Skyscanner
input From
input To
date Depart
button Search
@res | transport/flights/osl/ber/261202/ | OSL to BER
li Norwegian 08:10-09:45 Direct NOK 612
li SAS 12:30-16:55 1 stop NOK 580
+
ro | A check. | Press and hold. | click PRESS
home | Start. | Search. | type From := Oslo; type To := Berlin; type Depart := 2026-12-02; click Search
res | Norwegian NOK 612. | Finish. | done yes Norwegian, 08:10, NOK 612, direct.
- failures
ro | A check. | Press and hold. | click PRESS
home | Start. | Search. | type From := Oslo; type To := Berlin; type Depart := 2026-12-02; click Search
res | - | - | invalid I will now look at the results. The cheapest direct flight seems to be
res | - | - | invalid <tool_call>read_page</tool_call>
res | - | - | invalid The page lists Norwegian and SAS flights,
res | - | - | invalid done: Norwegian NOK 612
=== crashed-before-start
Finance | https://www.xe.com/
task Convert 250 CAD to JPY on xe.com.
why The browser crashed before the first step, so there is no trace at all.
@home | | Xe
input Amount
select From = CAD
select To = JPY
button Convert
@res | currencyconverter/convert/?Amount=250&From=CAD&To=JPY | 250 CAD to JPY
. 250.00 Canadian Dollars = 27,412.55 Japanese Yen
+
home | Start. | Convert. | type Amount := 250; select From := CAD; select To := JPY; click Convert
res | 27,412.55. | Finish. | done yes 250 CAD = 27,412.55 JPY.
- crashed | the browser was lost 3 times: chrome not reachable
=== crashed-half-way
Real Estate | https://www.apartments.com/
task Find a pet-friendly studio in Tulsa under $900.
must Pets allowed
must Under $900
why The browser was lost half way through a run that was doing well.
@home | | Apartments.com
input Location
@tulsa | tulsa-ok/ | Apartments in Tulsa
button All filters
a The Vue, studios from $845
@f | tulsa-ok/studios-under-900-pet-friendly/ | Pet friendly studios
a The Vue, studio $845, cats and dogs
+
home | Start. | Search. | type Location := Tulsa, OK; key Enter
tulsa | Tulsa. | Filtered list. | go https://www.apartments.com/tulsa-ok/studios-under-900-pet-friendly/
f | The Vue. | Finish. | done yes The Vue: studio $845, cats and dogs.
- crashed | tab crashed: session deleted as the browser has closed the connection
& 1
tulsa | Tulsa. | Open the filters. | click All filters !Failed: tab crashed
=== model-cut-off
Health | https://www.mayoclinic.org/
task List the self-care steps that Mayo Clinic gives for plantar fasciitis.
why The model's replies were cut off every time; the judge could not find a trace of actions.
@mc | https://www.mayoclinic.org/diseases-conditions | Diseases
a Mayo Clinic home
@home | | Mayo Clinic
input Search
@pf | diseases-conditions/plantar-fasciitis/diagnosis-treatment/drc-20354851 | Plantar fasciitis
# Lifestyle and home remedies
li Maintain a healthy weight
li Choose supportive shoes
li Apply ice
+
mc | An index. | Home. | click Mayo Clinic home
home | Start. | Search. | go
 https://www.mayoclinic.org/diseases-conditions/plantar-fasciitis/diagnosis-treatment/drc-20354851
pf | Three steps. | Finish. | done yes Healthy weight, supportive shoes, ice.
- failures
mc | An index. | Home. | click Mayo Clinic home
home | - | - | invalid {"evaluation_previous_goal":"Start","memory":"The user wants the self-care ste
home | - | - | invalid {"evaluation_previous_goal":"Unknown","memory":"The user wants the self-c
home | - | - | invalid {"evaluation_previous_goal":"Unknown","memory":"The user wan
home | - | - | invalid {"evaluation_previous_goal":"Unknown
=== timeout-in-search-form
Government | https://www.usajobs.gov/
task Find a park ranger job in Montana on USAJOBS and give its closing date.
why The page took so long for each action that the wall clock ran out.
@nag | ?alert=1 | USAJOBS
. Scheduled maintenance on Sunday
button Close alert
@home | | USAJOBS
input Keywords
input Location
button Search
@list | Search/Results?k=park%20ranger&l=Montana | Results
a Park Ranger (I), Glacier National Park, closes 12/01/2026
+
nag | An alert. | Close it. | click Close alert
home | Start. | Search. | type Keywords := park ranger; type Location := Montana; click Search
list | Glacier. | Finish. | done yes Park Ranger (I), Glacier National Park, closes 12/01/2026.
- timeout
nag | An alert. | Close it. | click Close alert
home | Start. | Search. | type Keywords := park ranger !The page did not answer in time
home | No answer. | Search. | type Keywords := park ranger; type Location := Montana; click Search
list | A ranger job at Glacier. | Open it. | click Park Ranger
=== wrong-verdict
Education | https://www.edx.org/
task How many weeks does edX's "CS50's Introduction to Computer Science" take?
why Runs agree and the answer is right; the evaluation lost the final page and so could not pass it.
@ex | https://www.edx.org/search?q=cs50 | Search
a CS50's Introduction to Programming with Python
button Browse home
@c | learn/computer-science/cs50 | CS50
# CS50's Introduction to Computer Science
. 11 weeks, 6-18 hours per week
@home | | edX
input What do you want to learn?
+
ex | Other courses. | Home. | click Browse home
home | Start. | Search. | type What do := cs50; key Enter
c | 11 weeks. | Finish. | done yes 11 weeks.
-
ex | Other courses. | Home. | click Browse home
home | Start. | Open it. | go https://www.edx.org/learn/computer-science/cs50
c | 11 weeks. | Finish. | done yes CS50 takes 11 weeks.
judge The judge could not be read: no screenshots were stored for this run. UNKNOWN
=== unknown-actions
Entertainment & Gaming | https://www.chess.com/
task Who is ranked first in blitz on chess.com's leaderboard?
why The agent kept asking for an action that does not exist, so nothing it did can be interpreted.
@cc | | Chess.com
a Leaderboards
a Play
@home | leaderboard | Leaderboards
a Blitz
a Rapid
@blitz | leaderboard/live | Blitz leaderboard
td 1 MagnusCarlsen 3361
+
cc | Start. | Leaderboards. | click Leaderboards
home | Start. | Blitz. | click Blitz
blitz | MagnusCarlsen. | Finish. | done yes MagnusCarlsen, 3361.
- failures
cc | Start. | Leaderboards. | click Leaderboards
home | - | - | invalid
 {"evaluation_previous_goal":"Start","memory":"","next_goal":"Hover","action":[{"hover":{"index":1}}]}
home | - | - | invalid
 {"evaluation_previous_goal":"Start","memory":"","next_goal":"Hover","action":[{"hover":{"index":1}}]}
home | - | - | invalid
 {"evaluation_previous_goal":"Start","memory":"","next_goal":"Drag","action":[{"drag":{"from":1}}]}
home | - | - | invalid
 {"evaluation_previous_goal":"Start","memory":"","next_goal":"Look","action":[{"look":{}}]}
=== worker-lost
Corporate & Careers | https://www.dice.com/
task Find a contract Go developer job on Dice that is fully remote and name the company.
must Remote
why The machine that ran the episode was lost after some good steps; an early covered click was put right.
@dd | dashboard | Dice
a Find jobs
@home | | Dice
button Close
input Job title
button Search
@clear = home
del Close
@list | jobs?q=go+developer&filters.workplaceTypes=Remote | Go developer jobs
a Go Developer - Contract - Remote - Apex Systems
+
dd | Start. | Find jobs. | click Find jobs
home | Start. | Search. | type Job title := go developer; click Search
list | Apex Systems. | Finish. | done yes Apex Systems.
- crashed | the worker process died: exit code -9
dd | Start. | Find jobs. | click Find jobs
home | Start. | Search. | click Search !Element [3] is covered or hidden
home | A box covers it. | Close it. | click Close
clear | The box is gone. | Search. | type Job title := go developer; click Search
list | One remote contract. | Read it. | extract company of the first remote contract job => Apex Systems
=== empty-model-reply
Local & Home Services | https://www.yellowpages.com/
task Find a locksmith open now in Omaha and its phone number.
why Replies came back empty from the model's service until the run was ended.
@home | | Yellow Pages
input What
input Where
@list | omaha-ne/locksmiths | Locksmiths in Omaha
li AAA Locksmith, Open now, (402) 555-0133
+
home | Start. | Search. | type What := locksmith; type Where := Omaha, NE; key Enter
list | AAA, open now. | Finish. | done yes AAA Locksmith, (402) 555-0133, open now.
- failures
& 1
list | - | - | invalid null
list | - | - | invalid null
list | - | - | invalid null
list | - | - | invalid null
""",
)
