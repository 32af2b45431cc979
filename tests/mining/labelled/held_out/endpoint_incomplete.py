"""Held out: the required last act is not done."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "endpoint_incomplete",
    """
=== decathlon-tent-basket
E-Commerce | https://www.decathlon.co.uk/
task Put the Quechua MH100 2-person tent in green into the basket on decathlon.co.uk.
why The run chooses the colour and stops; the basket stays empty.
@list | c/camping/tents.html | Tents
a Camping tent MH100 2-person GBP 29.99
a Camping tent 2 Seconds Easy GBP 59.99
@tent | p/mh100-2p/_/R-p-303 | Camping tent MH100 - 2-person
# Camping tent MH100 - 2-person
button Colour: grey
button Colour: green
button Add to basket
@green = tent
. Selected colour: green
@basket | checkout/cart | My basket (1)
# My basket
. Camping tent MH100 2-person, green, GBP 29.99
a Checkout
+
list | Start. | Open the tent. | click Camping tent MH100
tent | Green is offered. | Choose green. | click Colour: green
green | Green is chosen. | Put it into the basket. | click Add to basket
basket | One green MH100 in the basket. | Finish. | done yes The green MH100 tent is in the basket.
- done
& 2
green | Green is chosen, GBP 29.99. | Finish. | done yes I selected the green MH100 2-person tent, GBP 29.99.
=== usps-hold-mail
Government | https://www.usps.com/
task Submit a hold mail request for 12 Oak Ave, Boise ID 83702, from Dec 1 to Dec 8, 2026. You are signed in.
why The dates were entered and the summary was shown, but the request was never submitted.
@home | | USPS
a Hold Mail
a Track a package
@form | holdmail/ | Hold Mail
input Street address
date Start date
date End date
button Check availability
@sum | holdmail/review | Review your hold
. 12 Oak Ave, Boise ID 83702, Dec 1 to Dec 8
button Submit request
button Edit
@conf | holdmail/confirmation | Hold Mail confirmation
# Your hold request is confirmed
. Confirmation WHM-55102
+
home | Start. | Open hold mail. | click Hold Mail
form | Three fields. | Fill them. | type Street := 12 Oak Ave, Boise ID 83702; type Start date := 2026-12-01;
 type End date := 2026-12-08; click Check
sum | The summary is right. | Submit. | click Submit request
conf | WHM-55102. | Finish. | done yes Hold request confirmed: WHM-55102, Dec 1 to Dec 8.
- done
& 2
sum | Hold mail is available from Dec 1 to Dec 8. | Finish. | done yes Hold mail is available for your address
 from December 1 to December 8; press Submit request to send it.
=== meetup-rsvp
Other | https://www.meetup.com/
task RSVP to the next event of the "Portland Hikers" group on Meetup. You are logged in.
why The agent finds the next event and describes it without attending.
@home | | Meetup
input Search for anything
@group | portland-hikers/ | Portland Hikers
# Portland Hikers
a Angel's Rest hike - Sat Nov 21
a Wahkeena loop - Sat Nov 28
@event | portland-hikers/events/30311/ | Angel's Rest hike
# Angel's Rest hike
. Sat Nov 21, 9:00 AM, 12 spots left
button Attend
@going = event
del Attend
. You're going!
+
home | Start. | Go to the group. | type Search := Portland Hikers; key Enter
group | Next: Angel's Rest, Nov 21. | Open it. | click Angel's Rest
event | 12 spots left. | Attend. | click Attend
going | The page says I'm going. | Finish. | done yes You're going to Angel's Rest hike on Nov 21.
- done
& 2
event | Sat Nov 21, 9:00 AM, 12 spots left. | Read the details. | extract date, time and spots => Sat Nov 21,
 9:00 AM, 12 spots left
event | All details are known. | Finish. | done yes The next event is the Angel's Rest hike on Sat Nov 21 at
 9:00 AM with 12 spots left.
""",
)
