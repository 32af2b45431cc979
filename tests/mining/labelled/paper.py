"""The four contrasts told in RMSWeb's table of mined pairs, written out as runs.

Task, aligned state, both next actions, failure mode and S_total are the table's. The steps before and
behind, and the words on the pages, are added so that there is a run to search. `divergence` holds the
1-based steps (i*, j*) of the two next actions.
"""

from tests.mining.labelled.expanding import Case, read_cases

TOYONAKA = read_cases(
    "target_discovery",
    """
=== toyonaka-care-insurance
Government | https://duckduckgo.com/
task Find out how to apply for care insurance certification in the city of Toyonaka and which office is in
 charge.
why Both runs stand on a blocked result page; one goes to the city's own site, the other keeps searching
 there.
score 0.84
steps 3 3
@home | | DuckDuckGo
input Search without being tracked
button Search
@res | ?q=Toyonaka+care+insurance | Toyonaka care insurance at DuckDuckGo
# Unfortunately, bots use DuckDuckGo too.
. Please complete the following challenge to confirm this search was made by a human.
input Search
button Submit
@res2 | ?q=Toyonaka+care+insurance+application | Toyonaka care insurance at DuckDuckGo
# Unfortunately, bots use DuckDuckGo too.
. Please complete the following challenge to confirm this search was made by a human.
input Search
button Submit
@res3 = res2 | ?q=Toyonaka+City+kaigo+hoken
@city | https://www.city.toyonaka.osaka.jp/kenko/kaigo_hukushi/ | Toyonaka City: care and welfare
# Care insurance
a Certification of care need: how to apply
a Care insurance premiums
@apply | https://www.city.toyonaka.osaka.jp/kenko/kaigo_hukushi/nintei.html | Certification of care need
# How to apply
. Office in charge: Long-term Care Insurance Division, 06-6858-2838
. Bring the application form and the insurance card
+
home | Nothing yet. | Search for the city's care insurance. | type Search := Toyonaka care insurance; key
 Enter
res | The result page is blocked by a challenge. | Wait once. | wait 5
res | The result page is still blocked. | Go directly to the official site of the city. |
 go https://www.city.toyonaka.osaka.jp/kenko/kaigo_hukushi/
city | The city's page on care insurance. | Open how to apply. | click Certification
apply | Long-term Care Insurance Division. | Finish. | done yes Apply at the Long-term Care Insurance Division
 (06-6858-2838) with the application form and the insurance card.
- max_steps
home | Nothing yet. | Search for the city's care insurance. | type Search := Toyonaka care insurance; key
 Enter
res | The result page is blocked by a challenge. | Wait once. | wait 5
res | The result page is still blocked. | Search with other words. | search Toyonaka care insurance
 application
res2 | Blocked again. | Search with other words. | search Toyonaka City kaigo hoken
res3 | Blocked again. | Search once more. | search Toyonaka care insurance application
res2 | Blocked again. | Search once more. | search Toyonaka long-term care insurance
""",
)

SEEK = read_cases(
    "endpoint_incomplete",
    """
=== seek-submitted-application
Corporate & Careers | https://www.seek.com.au/
task Edit the cover letter of the application to Bunnings that you submitted on SEEK. You are known on this
 device.
why Signing in is the next step to the submitted applications; one run does it, the other scrolls away.
score 0.82
steps 3 3
@home | | SEEK
a Job search
a Applied jobs
@jobs | jobs | Jobs
a Applied jobs
a Saved jobs
@panel | oauth/login/?returnUrl=/applied-jobs | Sign in to SEEK | 1.5
# Sign in
. Continue as d.lee@example.com
button Sign in
a Not you?
. Employer site
@low | oauth/login/?returnUrl=/applied-jobs | Sign in to SEEK
. About SEEK
a Help
a Privacy
@applied | applied-jobs | Applied jobs
# Applied jobs
a Bunnings - Team Member, applied 12 Nov 2026
@app | applied-jobs/bunnings | Bunnings - Team Member
button Edit application
@edit | applied-jobs/bunnings/edit | Edit application
area Cover letter
button Save changes
@saved | applied-jobs/bunnings?saved=1 | Application updated
# Your application was updated
+
home | Start. | Open the jobs. | click Job search
jobs | The applied jobs are linked. | Open them. | click Applied jobs
panel | A sign-in panel with my account. | Sign in. | click Sign in
applied | The application to Bunnings. | Open it. | click Bunnings
app | It can be edited. | Edit. | click Edit application
edit | The letter. | Write and save. | type Cover letter := I would like to work weekends.; click Save
saved | Updated. | Finish. | done yes The application to Bunnings was updated.
-
home | Start. | Open the jobs. | click Job search
jobs | The applied jobs are linked. | Open them. | click Applied jobs
panel | A sign-in panel. | See what is below. | down 1
low | Only the page's foot. | Back up. | up 1
panel | A sign-in panel. | Finish. | done no The submitted applications are behind the sign-in panel.
""",
)

CARVANA = read_cases(
    "access_obstruction",
    """
=== carvana-selling-a-car
E-Commerce | https://www.carvana.com/
task Research how selling a car through Carvana works: the steps, and how one is paid.
why Before the same Cloudflare block one run turns to another search engine, the other only writes a plan.
score 0.84
steps 2 2
@block | sell-my-car | Attention Required! | Cloudflare
# Sorry, you have been blocked
. You are unable to access carvana.com
. Cloudflare Ray ID: 8e21c0
@bing | https://www.bing.com/search?q=how+selling+a+car+to+carvana+works | Bing
a How to sell your car to Carvana - Edmunds
a Sell or trade - Carvana
@ed | https://www.edmunds.com/sell-car/carvana.html | How to sell your car to Carvana
li 1. Get an offer online
li 2. Verify the car's documents
li 3. Drop off or pickup; paid by ACH or check
+
block | The site is blocked. | Wait once. | wait 5
block | Still blocked by Cloudflare. | Use another search engine. |
 go https://www.bing.com/search?q=how+selling+a+car+to+carvana+works
bing | Edmunds explains it. | Open it. | click How to sell
ed | Three steps, ACH or check. | Finish. | done yes Offer online, documents, drop-off or pickup; paid by ACH
 or check (Edmunds).
- blocked
block | The site is blocked. | Wait once. | wait 5
block | Still blocked by Cloudflare. | Write a plan. | write todo.md := 1. Open Carvana 2. Read how selling
 works
block | Still blocked by Cloudflare. | Add to the plan. | write todo.md := 1. Wait 2. Open Carvana again
block | Still blocked by Cloudflare. | Wait. | wait 10
""",
)

YOUTUBE = read_cases(
    "constraint_mismatch",
    """
=== youtube-premium-prices
Entertainment & Gaming | https://www.bing.com/
task Verify the current monthly prices of YouTube Premium in the US, individual, family and student.
must Prices for the United States
must From an official Google or YouTube page
why The results are generic and of other regions; one run asks for the official US page, the other scrolls on.
score 0.76
steps 2 2
@home | | Bing
input Enter your search
@res | search?q=youtube+premium+price | youtube premium price - Search | 2.0
input Enter your search = youtube premium price
a YouTube Premium Preis: 12,99 EUR im Monat - chip.de
a YouTube Premium India: 149 INR
a What is YouTube Premium? - blog
@low | search?q=youtube+premium+price | youtube premium price - Search
input Enter your search = youtube premium price
a YouTube Premium UK: 12.99 GBP
a YouTube Premium Turkey price
@off | search?q=site:support.google.com+youtube+premium+price+US | site:support.google.com - Search
a YouTube Premium prices in the United States - YouTube Help
@help | https://support.google.com/youtube/answer/15968883?gl=US | YouTube Help
# Prices in the United States
td Individual $13.99/month
td Family $22.99/month
td Student $7.99/month
+
home | Start. | Search for the price. | type Enter := youtube premium price; key Enter
res | Results are of Germany and India. | Ask for the official US page. | type Enter :=
 site:support.google.com
 youtube premium price US; key Enter
off | The official page. | Open it. | click YouTube Premium prices
help | All three. | Finish. | done yes US: individual $13.99, family $22.99, student $7.99 a month (YouTube
 Help).
-
home | Start. | Search for the price. | type Enter := youtube premium price; key Enter
res | Results about prices. | See more results. | down 1
low | UK and Turkey. | See more results. | down 1
low | 12.99 in most places. | Finish. | done yes YouTube Premium costs 12.99 a month (12.99 EUR or 12.99 GBP).
""",
)

CASES: tuple[Case, ...] = TOYONAKA + SEEK + CARVANA + YOUTUBE
