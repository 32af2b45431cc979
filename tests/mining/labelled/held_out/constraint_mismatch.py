"""Held out: a required attribute or threshold is violated."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "constraint_mismatch",
    """
=== laptop-memory
E-Commerce | https://www.newegg.com/
task Find a laptop on Newegg with 32 GB of RAM and a price of at most $900.
must 32 GB RAM
must At most $900
why The laptop told has 16 GB of memory.
@ng | | Newegg
input Search Site
@rb | areyouahuman | Are you a human?
check I am human
@l | p/pl?d=laptop+32gb | laptop 32gb
a Acer Swift 16GB $749.99
a Lenovo IdeaPad 32GB $879.99
@a | p/acer | Acer Swift
td Memory 16 GB
. $749.99
@b | p/lenovo | Lenovo IdeaPad
td Memory 32 GB
. $879.99
+
rb | A check. | Tick it. | click I am human
ng | Passed. | Search. | type Search := laptop 32gb; key Enter
l | Two. | Lenovo. | click Lenovo
b | 32 GB, $879.99. | Finish. | done yes Lenovo IdeaPad 32GB, $879.99.
-
rb | A check. | Tick it. | click I am human
ng | Passed. | Search. | type Search := laptop 32gb; key Enter
l | Two. | Acer. | click Acer
a | $749.99. | Finish. | done yes Acer Swift, $749.99, 16 GB.
=== hotel-stars
Travel & Hospitality | https://www.booking.com/
task Find a hotel in Ghent with a score of 9 or more, breakfast included, for one night on January 15, 2027.
must Score 9 or more
must Breakfast included
why The hotel has 8.1; the threshold is 9.
@bo | | Booking.com
input Where are you going?
date Check-in
@l | searchresults.html?ss=Ghent&checkin=2027-01-15&checkout=2027-01-16 | Ghent: hotels
. Jan 15 - Jan 16
a Hotel Onderbergen 8.1 breakfast included EUR 99
a The Verhaegen 9.4 breakfast included EUR 235
@o | hotel/be/onderbergen.html?checkin=2027-01-15 | Hotel Onderbergen
. Scored 8.1 Very good
@v | hotel/be/verhaegen.html?checkin=2027-01-15 | The Verhaegen
. Scored 9.4 Superb
+
bo | Start. | Search. | type Where := Ghent; type Check-in := 2027-01-15; key Enter
l | Two hotels. | The one with 9.4. | click The Verhaegen
v | 9.4. | Finish. | done yes The Verhaegen, 9.4, breakfast included, EUR 235.
-
bo | Start. | Search. | type Where := Ghent; type Check-in := 2027-01-15; key Enter
l | Two hotels. | The cheap one. | click Hotel Onder
o | Breakfast included, 8.1. | Finish. | done yes Hotel Onderbergen, 8.1, breakfast included, EUR 99.
=== spotify-duo-uk
Other | https://www.spotify.com/
task Tell the price of the Spotify Premium Duo plan in the United Kingdom.
must United Kingdom prices in pounds
why The price told is of the US region in dollars.
@ab | https://www.spotify.com/us/about | About
a Spotify
@us | https://www.spotify.com/us/premium/ | Spotify Premium US
. Duo $16.99 / month
@uk | https://www.spotify.com/uk/premium/ | Spotify Premium UK
. Duo GBP 17.99 / month
@top | | Spotify - Web Player
a Premium
+
ab | About the company. | Spotify's player. | click Spotify
top | Start. | UK plans. | go https://www.spotify.com/uk/premium/
uk | GBP 17.99. | Finish. | done yes GBP 17.99 per month.
-
ab | About the company. | Spotify's player. | click Spotify
top | Start. | Plans. | go https://www.spotify.com/us/premium/
us | Duo is $16.99. | Look for other regions. | down 2
us | Duo is $16.99. | Finish. | done yes Premium Duo is $16.99 per month.
""",
)
