"""The run stalls before a captcha, a refusal page or a control that does not work."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "access_obstruction",
    """
=== homedepot-drill-refused
E-Commerce | https://www.homedepot.com/
task Find the price of the DEWALT 20V MAX drill kit DCD771C2 at Home Depot.
why Access is denied on the product page and the run only reloads; the search page would have shown the price.
@store | https://www.homedepot.com/l/store/find | Store Finder
button Close chat
a Home
@store2 = store
del Close chat
@home | | The Home Depot
input What can we help you find today?
@denied | p/204279858 | Access Denied
# Access Denied
. You don't have permission to access this page on this server. Reference #18.4c8
@results | s/DCD771C2 | DCD771C2 - The Home Depot
a DEWALT 20V MAX Drill/Driver Kit DCD771C2 $99.00
+
store | A store finder. | Go to the start page. | click Home
home | Start. | Search. | type What can := DCD771C2; key Enter
results | $99.00. | Finish. | done yes The DCD771C2 kit costs $99.00.
- blocked
store | A chat covers the menu. | Close it. | click Close chat
store2 | The chat is gone. | Start page. | click Home
home | Start. | Open the product. | go https://www.homedepot.com/p/204279858
denied | Access denied. | Wait. | wait 5
denied | Still denied. | Reload. | go https://www.homedepot.com/p/204279858 ~
denied | Still denied. | Wait. | wait 10
denied | Still denied. | Reload. | go https://www.homedepot.com/p/204279858 ~
=== zillow-press-hold
Real Estate | https://www.zillow.com/
task List two houses for sale in Boise, ID under $450,000 with at least 3 bedrooms.
must Under $450,000
must 3+ bedrooms
why A press-and-hold check stands before the site and the run never gets past it.
@hold | captchaPerimeterX/ | Access to this page has been denied
# Press & Hold to confirm you are a human (and not a bot).
div Press & Hold
. Reference ID 8f2a
@ddg | https://duckduckgo.com/?q=boise+id+houses+under+450000+3+bedrooms | DuckDuckGo
a Boise, ID homes under $450,000 - Redfin
@redfin | https://www.redfin.com/city/2287/ID/Boise/filter/max-price=450k,min-beds=3 | Boise homes | Redfin
# Boise, ID homes for sale, under $450k, 3+ beds
a 2210 W Hill Rd $439,000 3 beds
a 5115 N Mitchell St $425,500 4 beds
+
hold | A check blocks Zillow. | Use another site. | search boise id houses under 450000 3 bedrooms
ddg | Redfin has a list. | Open Redfin. | click Boise, ID homes
redfin | Two fit. | Finish. | done yes 2210 W Hill Rd ($439,000, 3 beds) and 5115 N Mitchell St ($425,500, 4).
- captcha
hold | A check. | Press. | click Press & Hold ~
hold | Nothing happened. | Press again. | click Press & Hold ~
hold | Still there. | Wait. | wait 10
hold | Still there. | Press again. | click Press & Hold ~
=== indeed-cloudflare-loop
Corporate & Careers | https://www.indeed.com/
task Find a part-time barista job in Reno, NV posted in the last 3 days and give employer and pay.
must Posted in the last 3 days
why A Cloudflare "just a moment" page loops and the run gives up saying that it cannot get in.
@home | | Job Search | Indeed
input What
input Where
button Search
@cf | jobs?q=barista&l=Reno%2C+NV | Just a moment...
# www.indeed.com
. Verifying you are human. This may take a few seconds. Ray ID: 8d1c
check Verify you are human
@jobs | https://www.glassdoor.com/Job/reno-barista-jobs.htm?fromAge=3 | Barista jobs in Reno
a Barista part-time - Hub Coffee Roasters - $15 to $17 an hour - 2d
+
home | Start. | Search. | type What := part-time barista; type Where := Reno, NV; click Search
cf | A check blocks it. | Another site with the same filter. | go
 https://www.glassdoor.com/Job/reno-barista-jobs.htm?fromAge=3
jobs | Hub Coffee, 2 days ago. | Finish. | done yes Hub Coffee Roasters, $15-$17 an hour, posted 2 days ago.
-
& 1
cf | Verifying. | Tick the box. | click Verify you
cf | It verifies again. | Wait. | wait 10
cf | Again the same. | Tick the box. | click Verify you ~
cf | No way in. | Give up. | done no Indeed shows a human verification that I could not pass.
=== gov-portal-down
Government | https://travel.state.gov/
task Find the current routine processing time of US passports on travel.state.gov.
why The first page answers 503 and the run keeps retrying it instead of going round.
@err | content/travel/en/passports.html | 503 Service Unavailable
# 503 Service Unavailable
. No server is available to handle this request.
@home | content/travel.html | Travel.State.Gov
a U.S. Passports
@time | content/travel/en/passports/how-apply/processing-fast.html | Processing Times for U.S. Passports
# Processing times
. Routine: 4-6 weeks
+
err | The page is down. | Try the start page. | go https://travel.state.gov/content/travel.html
home | It works. | Open passports. | go
 https://travel.state.gov/content/travel/en/passports/how-apply/processing-fast.html
time | 4-6 weeks. | Finish. | done yes Routine processing: 4-6 weeks.
- max_steps
err | 503. | Wait. | wait 10
err | 503. | Reload. | go https://travel.state.gov/content/travel/en/passports.html ~
err | 503. | Wait more. | wait 30
err | 503. | Reload. | go https://travel.state.gov/content/travel/en/passports.html ~
err | 503. | Wait more. | wait 30
=== ticketmaster-queue
Entertainment & Gaming | https://www.ticketmaster.com/
task Tell the lowest ticket price for the next Arctic Monkeys concert in Chicago.
why The site takes the browser for a bot and pauses it; the run stays on that page until it fails.
@pause | blocked | Ticketmaster
# Pardon the Interruption
. We think you may be a bot. Your browsing activity has been paused.
button Try again
@ddg | https://duckduckgo.com/?q=arctic+monkeys+chicago+tickets | DuckDuckGo
a Arctic Monkeys Chicago tickets - SeatGeek
@seat | https://seatgeek.com/arctic-monkeys-tickets/chicago | Arctic Monkeys Chicago | SeatGeek
. Dec 4, United Center, from $88
+
pause | Ticketmaster has paused us. | Search elsewhere. | search arctic monkeys chicago tickets
ddg | SeatGeek. | Open it. | click Arctic Monkeys
seat | From $88. | Finish. | done yes From $88 (United Center, Dec 4, SeatGeek).
- failures
pause | Paused. | Try again. | click Try again !The page did not answer in time
pause | Paused. | Try again. | click Try again !The page did not answer in time
pause | Paused. | Try again. | click Try again !The page did not answer in time
pause | Paused. | Try once more. | click Try again
=== bank-region-refused
Finance | https://www.marcus.com/
task Report the current APY of Marcus' High-Yield CD for 12 months.
why The site refuses the country of the browser (403), and the run has no answer.
@gs | https://www.goldmansachs.com/ | Goldman Sachs
a Marcus by Goldman Sachs
@no | us/en/savings/high-yield-cds | ERROR: The request could not be satisfied
# 403 ERROR
. The Amazon CloudFront distribution is configured to block access from your country.
@nw | https://www.nerdwallet.com/reviews/banking/marcus-cd-rates | Marcus CD rates - NerdWallet
td 12 months
td 4.10% APY
+
gs | The parent company's page. | Open Marcus. | click Marcus
no | The site blocks our country. | A page that lists Marcus' rates. | go
 https://www.nerdwallet.com/reviews/banking/marcus-cd-rates
nw | 4.10% APY. | Finish. | done yes 4.10% APY for 12 months.
-
gs | The parent company's page. | Open Marcus. | click Marcus
no | 403. | Another page of the site. | go https://www.marcus.com/us/en/savings/high-yield-cds ~
no | 403 again. | Wait. | wait 5
no | Blocked from this country. | Give up. | done no Access to marcus.com is blocked (403), so I could not
 read it.
=== udemy-captcha-first
Education | https://www.udemy.com/
task Find the highest rated Udemy course on Kubernetes with more than 100,000 students and give its rating.
must More than 100,000 students
why The picture puzzle that appears after searching is never solved or avoided; the run ends there.
@home | | Online Courses | Udemy
input Search for anything
@robot | courses/search/?q=kubernetes | Udemy
# Please verify you are a human
. Select all images with traffic lights
button Verify
button Skip
@topic | topic/kubernetes/?sort=highest-rated | Kubernetes courses
a Certified Kubernetes Administrator, 4.7, 410,882 students
+
home | Start. | Search. | type Search := kubernetes; key Enter
robot | A picture puzzle. | The topic page needs no search. | go
 https://www.udemy.com/topic/kubernetes/?sort=highest-rated
topic | 4.7 with 410,882 students. | Finish. | done yes Certified Kubernetes Administrator: 4.7, 410,882
 students.
- captcha
& 1
robot | A picture puzzle. | Skip it. | click Skip
robot | Another puzzle. | Verify. | click Verify
robot | Another puzzle. | Skip it. | click Skip
robot | Another puzzle. | Verify. | click Verify
=== mountsinai-finder-down
Health | https://www.mountsinai.org/
task Find a cardiologist at Mount Sinai who speaks Spanish and give name and phone.
why The search button of the doctor finder stays disabled, a technical obstruction that the run keeps
 clicking at.
@ms | | Mount Sinai
a Find a Doctor
a Locations
@find | find-a-doctor | Find a Doctor
# Find a Doctor
input Specialty
. Search is temporarily unavailable. We are working on it.
button Search (unavailable)
a Browse specialties
@spec | care/heart/our-team?language=spanish | Heart team
li Dr. Luis Ortega, Cardiology, speaks Spanish, 212-241-1540
+
ms | Start. | Open the doctor finder. | click Find a Doctor
find | The search is unavailable. | Go round by specialties. | click Browse specialties
spec | Dr. Ortega. | Finish. | done yes Dr. Luis Ortega, 212-241-1540, speaks Spanish.
-
ms | Start. | Open the doctor finder. | click Find a Doctor
find | Search is here. | Search cardiology. | type Specialty := Cardiology; click Search ~
find | Nothing happens. | Search. | click Search !Element [2] is disabled
find | It cannot be clicked. | Wait. | wait 10
find | Still unavailable. | Search. | click Search !Element [2] is disabled
find | Still unavailable. | Give up. | done no The doctor search is temporarily unavailable.
=== tripadvisor-datadome
Travel & Hospitality | https://www.tripadvisor.com/
task Which is the top ranked thing to do in Porto on Tripadvisor?
why Datadome's slider blocks the page; the run only writes plans to a file while it is blocked.
@ta | | Tripadvisor
input Where to?
@dd | Attractions-g189180-Activities-Porto.html | tripadvisor.com
# Slide right to secure your access
. Verification Required
div Slider
@lite | https://www.tripadvisor.co.uk/Attractions-g189180-Activities-Porto.html | Porto: things to do
# 1. Ponte de Dom Luis I
+
ta | Start. | Look for Porto. | type Where := Porto things to do; key Enter
dd | A slider blocks it. | Its British site may open. | go
 https://www.tripadvisor.co.uk/Attractions-g189180-Activities-Porto.html
lite | Ponte de Dom Luis I. | Finish. | done yes Ponte de Dom Luis I is ranked first.
- captcha
ta | Start. | Look for Porto. | type Where := Porto things to do; key Enter
dd | A slider. | Plan. | write todo.md := 1. Pass the check 2. Read the list
dd | A slider. | Move it. | click Slider ~
dd | A slider. | Change the plan. | write todo.md := 1. Wait 2. Try again
dd | A slider. | Wait. | wait 20
dd | A slider. | Move it. | click Slider ~
=== angi-cleaners-blocked
Local & Home Services | https://www.angi.com/
task Find three top-rated house cleaners in Tampa, FL and their ratings on Angi.
why "You have been blocked" ends the run although the early cookie question was no problem.
@home | | Angi
button Accept all cookies
input What can we help you with?
input Zip code
@ready = home
del Accept all cookies
@block | companylist/us/fl/tampa/house-cleaning.htm | Attention Required! | Cloudflare
# Sorry, you have been blocked
. You are unable to access angi.com
@list | nearme/house-cleaning/?zip=33602 | House cleaners near 33602
li Tampa Maids 4.9
li Bright Home 4.8
li Gulf Cleaning 4.8
+
home | A cookie bar. | Accept. | click Accept
ready | Bar gone. | Search. | type What can := house cleaning; type Zip := 33602; key Enter
list | Three cleaners. | Finish. | done yes Tampa Maids 4.9, Bright Home 4.8, Gulf Cleaning 4.8
- blocked
home | A cookie bar. | Accept. | click Accept
ready | Bar gone. | Go to the list. | go https://www.angi.com/companylist/us/fl/tampa/house-cleaning.htm
block | Blocked. | Reload. | go https://www.angi.com/companylist/us/fl/tampa/house-cleaning.htm ~
block | Blocked. | Wait. | wait 10
block | Blocked. | Reload. | go https://www.angi.com/companylist/us/fl/tampa/house-cleaning.htm ~
""",
)
