"""Held out: a captcha, a refusal or a dead control."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "access_obstruction",
    """
=== bestbuy-country-gate
E-Commerce | https://www.bestbuy.com/
task Find the price of the Sony WH-1000XM5 at Best Buy.
why Requests are refused ("HTTP ERROR 403") and the run reloads until it is stopped.
@gate | site/sony-wh1000xm5/6505727.p | www.bestbuy.com
# Access to www.bestbuy.com was denied
. You don't have authorization to view this page. HTTP ERROR 403
button Reload
@menu | ?intl=nosplash | Best Buy
input What can we help you find
@res | site/searchpage.jsp?st=wh-1000xm5 | Search
a Sony WH-1000XM5 $329.99
+
gate | Refused. | Enter by the start page. | go https://www.bestbuy.com/?intl=nosplash
menu | It opens. | Search. | type What can := wh-1000xm5; key Enter
res | $329.99. | Finish. | done yes $329.99
- blocked
gate | 403. | Reload. | click Reload
gate | 403. | Reload. | click Reload
gate | 403. | Wait. | wait 5
gate | 403. | Reload. | click Reload
=== court-records-recaptcha
Government | https://www.courts.ca.gov/
task Find the next hearing date of case 24CV-03319 in the Superior Court of Yolo County.
why The case search needs a reCAPTCHA that is never passed, and the run ends with nothing.
@cal0 | | California Courts
a Find my court
@yo | https://www.yolo.courts.ca.gov/ | Yolo Superior Court
a Case search
@s | https://portal.yolo.courts.ca.gov/search | Case search
input Case number
check I'm not a robot
button Search
@bad = s
. The reCAPTCHA was not completed. Please try again.
@cal | https://www.yolo.courts.ca.gov/calendar?case=24CV-03319 | Court calendar
td 24CV-03319
td Hearing 2026-12-03 9:00 AM, Dept 14
+
cal0 | Start. | Yolo's court. | go https://www.yolo.courts.ca.gov/
yo | The court's site. | Case search. | click Case search
s | A reCAPTCHA guards the search. | The public calendar is open. | go
 https://www.yolo.courts.ca.gov/calendar?case=24CV-03319
cal | Dec 3, 9:00. | Finish. | done yes December 3, 2026, 9:00 AM, Dept 14.
-
cal0 | Start. | Yolo's court. | go https://www.yolo.courts.ca.gov/
yo | The court's site. | Case search. | click Case search
s | A search form. | Search. | type Case := 24CV-03319; click Search
bad | The captcha is needed. | Tick it. | click I'm not ~
bad | Not ticked. | Search. | click Search
bad | The captcha is needed. | Give up. | done no I could not complete the reCAPTCHA of the court's search.
=== fifa-ranking-stub
Entertainment & Gaming | https://www.fifa.com/
task Who leads the FIFA men's ranking and with how many points?
why The page shows a bot-protection stub that wants JavaScript; the run waits in vain.
@ff | https://www.fifa.com/en/home | FIFA
a World ranking
@stub | fifa-world-ranking/men | fifa.com
. Please enable JS and disable any ad blocker
@mob | https://inside.fifa.com/fifa-world-ranking/men | Men's Ranking
td 1 Spain
td 1877.18
+
ff | Start. | The ranking. | click World ranking
stub | A stub. | The ranking's other address. | go https://inside.fifa.com/fifa-world-ranking/men
mob | Spain 1877.18. | Finish. | done yes Spain, 1877.18 points.
- max_steps
ff | Start. | The ranking. | click World ranking
stub | Only a note about JS. | Wait. | wait 10
stub | The same. | Reload. | go https://www.fifa.com/fifa-world-ranking/men ~
stub | The same. | Wait. | wait 30
stub | The same. | Reload. | go https://www.fifa.com/fifa-world-ranking/men ~
""",
)
