"""Held out: timeouts, crashes, unreadable traces."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "runtime_evaluation",
    """
=== garbled-shop
E-Commerce | https://www.etsy.com/
task Find a handmade ceramic mug under $30 on Etsy with free shipping.
must Under $30
must Free shipping
why The replies are prose instead of actions; the run never acts.
@gd | c/home-living | Home & Living
a Etsy home
@home | | Etsy
input Search for anything
@res | search?q=ceramic+mug&free_shipping=true&max=30 | Ceramic mug
a Speckled mug $24.00 FREE shipping
+
gd | A category. | Home. | click Etsy home
home | Start. | Search with limits. | go https://www.etsy.com/search?q=ceramic+mug&free_shipping=true&max=30
res | Speckled mug. | Finish. | done yes Speckled mug, $24.00, free shipping.
- failures
gd | A category. | Home. | click Etsy home
home | - | - | invalid Sure! First I would search for a ceramic mug.
home | - | - | invalid Of course, here is my plan: 1. search 2. filter
home | - | - | invalid Let me search for a ceramic mug.
home | - | - | invalid I am done.
=== slow-museum-tickets
Entertainment & Gaming | https://www.louvre.fr/
task What does a standard adult ticket to the Louvre cost online?
why Time ran out while pages loaded; there was no wrong decision.
@home | en | Louvre
a Hours & admission
@adm | en/visit/hours-admission | Hours & admission
. Museum: EUR 22.00
+
home | Start. | Admission. | click Hours & admission
adm | EUR 22. | Finish. | done yes EUR 22.00
- timeout
home | Start. | Admission. | click Hours & admission !The page did not answer in time
home | No answer yet. | Wait. | wait 30
home | No answer yet. | Admission. | click Hours & admission
=== lost-session-loans
Finance | https://www.bankrate.com/
task What is Bankrate's current average 30-year fixed mortgage rate?
why The session to the browser was lost in the middle of the run.
@bk | ?popup=1 | Bankrate
button Close popup
@home | | Bankrate
a Mortgage rates
@rate | mortgages/mortgage-rates/ | Mortgage rates
. The average 30-year fixed rate is 6.21%
+
bk | A popup. | Close it. | click Close popup
home | Start. | Rates. | click Mortgage rates
rate | 6.21%. | Finish. | done yes 6.21%
- crashed | invalid session id: session deleted because of page crash
bk | A popup. | Close it. | click Close popup
home | Start. | Rates. | click Mortgage rates
rate | 6.21% stands here. | Read it. | extract 30-year rate !Failed: invalid session id
""",
)
