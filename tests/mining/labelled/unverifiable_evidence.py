"""The conclusion has no page evidence, or comes from a source that the task does not allow."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "unverifiable_evidence",
    """
=== cdc-measles-count
Health | https://www.cdc.gov/
task On the CDC website, find how many confirmed measles cases the US had in 2025 so far reported.
must Use only cdc.gov
why The answer comes from a search result's snippet of a news site, not from the CDC page.
@z | https://www.cdc.gov/diseases-conditions/ | Diseases & Conditions | CDC
button Dismiss survey
a CDC home
@z2 = z
del Dismiss survey
@home | | CDC
input Search
a Measles (Rubeola)
@measles | measles/data-research/index.html | Measles Cases and Outbreaks | CDC
# Measles Cases and Outbreaks
. As of the last update, a total of 2,242 confirmed measles cases were reported in 2025
@ddg | https://duckduckgo.com/?q=us+measles+cases+2025 | us measles cases 2025 at DuckDuckGo
a US measles cases 2025 - Newsweek
. More than 1,700 people have caught measles this year, according to officials...
a Measles Cases and Outbreaks | CDC
+
z | An index of diseases. | Dismiss the survey. | click Dismiss
z2 | The survey is gone. | Go to the start page. | click CDC home
home | Start. | Open the measles page. | click Measles
measles | 2,242 confirmed cases in 2025. | Read it exactly. | extract confirmed cases in 2025 => 2,242
measles | The CDC page states 2,242. | Finish. | done yes CDC reports 2,242 confirmed measles cases in 2025
 (cdc.gov, Measles Cases and Outbreaks).
-
z | An index of diseases. | Dismiss the survey. | click Dismiss
z2 | The survey is gone. | Go to the start page. | click CDC home
home | Start. | A search is faster. | search us measles cases 2025
ddg | A snippet says more than 1,700. | Finish. | done yes The US had more than 1,700 measles cases in 2025.
=== apple-return-policy
E-Commerce | https://www.apple.com/
task What is Apple's return window for an iPhone bought in the US online store? Give the answer from
 apple.com.
why The agent answers from its own memory on the start page, with no page that says it.
@usa | https://www.apple.com/choose-country-region/ | Choose your country or region
a United States
a Canada
@home | | Apple
a Store
a iPhone
a Support
@store | store | Apple Store Online
a Shopping help
a Returns
@returns | shop/help/returns_refund | Returns & Refunds - Apple
# Returns & Refunds
. You have 14 calendar days to return an item from the date you received it.
+
usa | Countries. | Choose the United States. | click United States
home | Start. | Open the store. | click Store
store | There is a Returns link. | Open it. | click Returns
returns | 14 calendar days from receipt. | Finish. | done yes 14 calendar days from the date you received it
 (apple.com Returns & Refunds).
-
usa | Countries. | Choose the United States. | click United States
home | Apple usually gives 14 days. | See what the page shows. | down
home | I know that Apple allows 14 days. | Answer. | done no I did not open the policy; as far as I know it is
 14 days.
=== arxiv-first-author
Education | https://arxiv.org/
task Find the newest arXiv paper whose title has "diffusion policy" and tell its first author, with the link.
why The run gives a paper and a link that stand on no page it opened.
@home | | arXiv.org
input Search term
button Search
@res | search/?query=diffusion+policy&searchtype=title | Search | arXiv e-print repository
# Showing 1-50 of 312 results
a arXiv:2611.08112 Diffusion Policy with Sparse Memory
. Authors: Lena Hartmann, Yu Chen. Submitted 13 November, 2026
a arXiv:2611.05531 Fast Diffusion Policy Distillation
@abs | abs/2611.08112 | [2611.08112] Diffusion Policy with Sparse Memory
# Diffusion Policy with Sparse Memory
. Lena Hartmann, Yu Chen
@empty | search/?query=diffusion+policy | Search | arXiv e-print repository
. Sorry, the search is temporarily slow. Results are loading.
+
home | Start. | Search. | type Search term := diffusion policy; click Search
res | Newest: 2611.08112. | Open it. | click arXiv:2611.08112
abs | First author Lena Hartmann. | Finish. | done yes Lena Hartmann, https://arxiv.org/abs/2611.08112
-
home | Start. | Search. | type Search term := diffusion policy; click Search
empty | Results are loading. | Wait. | wait 5
empty | Still loading; the classic paper is by Cheng Chi. | Answer. | done yes First author: Cheng Chi,
 https://arxiv.org/abs/2303.04137
=== hotel-rating-official
Travel & Hospitality | https://www.marriott.com/
task Find the guest rating of the Boston Marriott Long Wharf as shown on marriott.com.
must The rating must come from marriott.com
why The rating is taken from Tripadvisor although the task asks for the hotel's own site.
@home | | Marriott Bonvoy
input Destination
button Find hotels
@list | search/findHotels.mi?city=Boston | Hotels in Boston
a Boston Marriott Long Wharf
. 4.3 (2,911 reviews)
a Sheraton Boston Hotel
@hotel | en-us/hotels/boslw/overview/ | Boston Marriott Long Wharf
# Boston Marriott Long Wharf
. Guest rating 4.3 of 5, 2,911 reviews
@ddg | https://duckduckgo.com/?q=boston+marriott+long+wharf+rating | DuckDuckGo
a Boston Marriott Long Wharf - Tripadvisor
a Boston Marriott Long Wharf - Marriott
@trip | https://www.tripadvisor.com/Hotel_Review-g60745-d94330 | Marriott Long Wharf - Tripadvisor
. 4.4 of 5 bubbles, 5,102 reviews
+
home | Start. | Search Boston. | type Destination := Boston, MA; click Find hotels
list | Long Wharf is listed. | Open it. | click Boston Marriott
hotel | 4.3 of 5. | Finish. | done yes Marriott.com shows 4.3 of 5 (2,911 reviews).
-
home | Start. | Search its rating. | search boston marriott long wharf rating
ddg | Tripadvisor is first. | Open it. | click Boston Marriott Long Wharf - Tripadvisor
trip | 4.4 of 5. | Finish. | done yes The guest rating is 4.4 of 5.
=== sec-10k-revenue
Finance | https://www.sec.gov/
task From Costco's latest 10-K on sec.gov, report total revenue for the fiscal year.
why The figure was cited as from the filing, but the filing was never opened; a news page was.
@home | | SEC.gov
input Search filings
a Company search
@co | cgi-bin/browse-edgar?company=costco | EDGAR company search
a 10-K Annual report 2026-10-08
a 10-Q Quarterly report 2026-06-05
@k | Archives/edgar/data/909832/cost-20260830.htm | cost-20260830
# FORM 10-K
td Total revenue
td $ 295,204 million
@bar | https://duckduckgo.com/?q=costco+revenue+2026 | costco revenue 2026
a Costco tops $290 billion in sales - MarketWatch
@news | https://www.marketwatch.com/story/costco-2026 | Costco tops $290 billion
. Net sales for the year were more than $290 billion.
+
home | Start. | Find Costco. | type Search filings := Costco; key Enter
co | The 10-K is of 2026-10-08. | Open the 10-K. | click 10-K
k | Total revenue $295,204 million. | Finish. | done yes Total revenue: $295,204 million (Form 10-K, sec.gov).
-
home | Start. | Search. | search costco revenue 2026
bar | A news article. | Open it. | click Costco tops
news | Over $290 billion. | Note. | write revenue.md := about $290 billion
news | About $290 billion. | Finish. | done yes According to the 10-K, revenue was about $290 billion.
=== zillow-school-claim
Real Estate | https://www.zillow.com/
task For 77 Maple Ave, Ithaca NY on Zillow, tell which elementary school is assigned and its GreatSchools
 rating.
why The school part of the page was never looked at; name and rating are guessed.
@home | | Zillow
input Enter an address
@house | homedetails/77-Maple-Ave-Ithaca-NY/2011 | 77 Maple Ave, Ithaca, NY | 4.5
# 77 Maple Ave, Ithaca, NY 14850
. $465,000, 3 bd, 2 ba
a Facts & features
a Schools
@school = house | homedetails/77-Maple-Ave-Ithaca-NY/2011#schools
# Nearby schools
. Belle Sherman School, grades PK-5, GreatSchools rating 7/10
+
home | Start. | Find the house. | type Enter := 77 Maple Ave, Ithaca NY; key Enter
house | The house is open. | See the schools. | click Schools
school | Belle Sherman, 7/10. | Finish. | done yes Belle Sherman School (PK-5), GreatSchools rating 7/10.
-
& 1
house | A house in Ithaca for $465,000. | Scroll a little. | down 1
house | Ithaca has good schools. | Finish. | done yes The elementary school is Fall Creek School, likely rated
 8/10.
=== rotten-score-year
Entertainment & Gaming | https://www.rottentomatoes.com/
task What is the Tomatometer score of "Past Lives" (2023)?
why A score is told that no page showed: the film's page never loaded, and the agent admits recalling it.
@chk | https://www.rottentomatoes.com/challenge | Just a moment...
check Verify you are human
@home | | Rotten Tomatoes
input Search movies
@found | search?search=past%20lives | Search results
a Past Lives (2023)
a Past Life (2016)
@film | m/past_lives | Past Lives
# Past Lives
. Tomatometer 95% 388 reviews
@blank | m/past_lives?cmp=1 | Rotten Tomatoes
. Loading
+
chk | A check. | Tick it. | click Verify you
home | Start. | Search. | type Search := Past Lives; key Enter
found | The 2023 film. | Open it. | click Past Lives (2023)
film | 95%. | Finish. | done yes 95% (388 reviews).
-
chk | A check. | Tick it. | click Verify you
home | Start. | Search. | type Search := Past Lives; key Enter
found | The 2023 film. | Open it. | click Past Lives (2023)
blank | The page is still loading. | Wait. | wait 3
blank | I recall a score of about 96%. | Finish. | done yes As far as known, the Tomatometer is 96%.
=== epa-limit-lead
Government | https://www.epa.gov/
task On epa.gov, find the action level for lead in drinking water in the current rule, and link the page.
why The answer quotes a blog and links a page of another site; the required source was never consulted.
@old | https://www.epa.gov/lead/old-page | Page not found | US EPA
# That page could not be found
a Back to home
@home | | US EPA
input Search EPA.gov
a Drinking water
@srch | https://search.epa.gov/epasearch/?querytext=lead+action+level | Search EPA
a Lead and Copper Rule Improvements
a Basic information about lead
@rule | ground-water-and-drinking-water/lead-and-copper-rule-improvements | Lead and Copper Rule Improvements
# Lead and Copper Rule Improvements
. The rule lowers the lead action level to 0.010 mg/L.
@ddg | https://duckduckgo.com/?q=lead+action+level+drinking+water | DuckDuckGo
a What is the EPA action level for lead? - PureTapBlog
a Lead and Copper Rule | US EPA
@blog | https://www.puretapblog.com/lead | PureTapBlog
. The EPA's action level is 15 ppb, so filter your water!
+
old | The address does not exist any more. | Go home. | click Back to home
home | Start. | Search. | type Search EPA := lead action level; key Enter
srch | Two pages. | Open the rule. | click Lead and Copper
rule | 0.010 mg/L. | Finish. | done yes 0.010 mg/L: epa.gov, Lead and Copper Rule Improvements.
-
old | The address does not exist any more. | Wait. | wait 3
old | It is still not there. | Go home. | click Back to home
home | Start. | Search. | search lead action level drinking water
ddg | A blog explains it. | Open the blog. | click What is the EPA
blog | 15 ppb. | Finish. | done yes The action level is 15 ppb (https://www.puretapblog.com/lead).
=== figma-open-roles
Corporate & Careers | https://www.linkedin.com/company/figma
task Open the careers page of Figma and report how many open roles it lists in London.
why A captcha on another site was passed early and is not the cause; the count given was never seen on a page.
@li | https://www.linkedin.com/company/figma | Figma | LinkedIn
# Figma
a figma.com
. Security check passed
@fig | https://www.figma.com/careers/ | Careers at Figma | 5.0
# Careers
a Job openings
@jobs | https://www.figma.com/careers/#job-openings | Careers at Figma | 6.0
select Location
li Account Executive - London
@lon = jobs
select Location = London
. 14 open roles in London
+
li | Start. | Open their site. | go https://www.figma.com/careers/
fig | The careers page. | Job openings. | click Job openings
jobs | A location list. | Choose London. | select Location := London
lon | 14 roles. | Finish. | done yes Figma lists 14 open roles in London.
-
li | A security check is passed. | Open their site. | go https://www.figma.com/careers/
fig | The careers page. | Scroll. | down 2
fig | The page names London. | Finish. | done yes Figma has approximately 20 open roles in London.
=== plumber-licence
Local & Home Services | https://www.yelp.com/
task Find a plumber in Denver on Yelp with a verified license and give the license status shown by Yelp.
must The license must be shown as verified by Yelp
why The run asserts a verified license although its page showed none; nothing supports the claim.
@home | | Yelp
input Search for
input Near
@list | search?find_desc=plumber&find_loc=Denver | Best plumbers in Denver
a Plumbline Services
a Mile High Drains
a High 5 Plumbing
@plumb | biz/plumbline-services-denver | Plumbline Services
# Plumbline Services
. 4.6 (412 reviews)
. Verified License: Plumbing Contractor, PC.0001934, active
@mile | biz/mile-high-drains | Mile High Drains
# Mile High Drains
. 4.8 (97 reviews)
. We are a family business
+
home | Start. | Search. | type Search := plumber; type Near := Denver, CO; key Enter
list | Three plumbers. | Open the first. | click Plumbline
plumb | Verified License, active. | Finish. | done yes Plumbline Services: Verified License PC.0001934,
 active.
-
home | Start. | Search. | type Search := plumber; type Near := Denver, CO; key Enter
list | Mile High is rated best. | Open it. | click Mile High
mile | 4.8, family business. | Finish. | done yes Mile High Drains has a verified license in good standing.
""",
)
