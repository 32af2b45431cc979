"""Held out: no page evidence, or a source the task does not allow."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "unverifiable_evidence",
    """
=== who-air-guideline
Health | https://www.who.int/
task What annual mean PM2.5 level does the WHO guideline recommend? Answer from who.int only.
why The number comes from Wikipedia, which the task rules out.
@ht | health-topics | Health topics
button Accept
a WHO home
@ht2 = ht
del Accept
@home | | World Health Organization
a Health topics
a Publications
@air | news-room/fact-sheets/detail/ambient-(outdoor)-air-quality-and-health | Ambient air pollution
. WHO guideline: PM2.5 should not exceed 5 ug/m3 annual mean
@wiki | https://en.wikipedia.org/wiki/Particulates | Particulates - Wikipedia
. The WHO recommends 10 ug/m3 annual mean (2005)
+
ht | Cookies. | Accept. | click Accept
ht2 | Topics. | Home. | click WHO home
home | Start. | Open the fact sheet. | go
 https://www.who.int/news-room/fact-sheets/detail/ambient-(outdoor)-air-quality-and-health
air | 5 ug/m3. | Finish. | done yes 5 ug/m3 annual mean (who.int fact sheet).
-
ht | Cookies. | Accept. | click Accept
ht2 | Topics. | Home. | click WHO home
home | Start. | Look it up. | go https://en.wikipedia.org/wiki/Particulates
wiki | 10 ug/m3. | Read more. | down
wiki | 10 ug/m3. | Finish. | done yes WHO recommends 10 ug/m3.
=== steam-peak-players
Entertainment & Gaming | https://store.steampowered.com/
task According to Steam's own statistics page, what was today's peak of players in Dota 2?
why The agent reports a number from a third-party tracker's snippet as Steam's own.
@about | about | About Steam
a STORE
@home | | Steam
a Stats
@stats | charts/mostplayed | Steam Charts - most played
td Dota 2
td Current 512,003
td Peak today 689,441
@ddg | https://duckduckgo.com/?q=dota+2+peak+players+today | DuckDuckGo
a Dota 2 live player count - activeplayer.io
. Dota 2 has around 650,000 peak players
+
about | About Steam. | The shop. | click STORE
home | Start. | Open stats. | click Stats
stats | 689,441. | Finish. | done yes Peak today: 689,441.
-
about | About Steam. | The shop. | click STORE
home | Start. | Search. | search dota 2 peak players today
ddg | About 650,000. | Finish. | done yes Steam's peak today was around 650,000 players.
=== airline-bag-fee
Travel & Hospitality | https://www.delta.com/
task Find on delta.com the fee for a first checked bag on a domestic flight in Main Cabin.
why The bag page was opened, but the answer cites a fee the run never displayed; it answered before reading.
@home | | Delta Air Lines
a Travel info
@info | us/en/baggage/overview | Baggage overview | 3.0
# Baggage
a Checked bags fees
a Carry-on
@fee | us/en/baggage/checked-baggage/excess-overweight-baggage | Checked baggage fees
td First bag
td $35
+
home | Start. | Travel info. | click Travel info
info | Baggage overview. | Fees. | click Checked bags
fee | First bag $35. | Finish. | done yes $35 for the first checked bag.
-
home | Start. | Travel info. | click Travel info
info | The overview links to fees. | Scroll. | down
info | The fee is generally $30. | Finish. | done yes The fee for the first checked bag is typically $30.
""",
)
