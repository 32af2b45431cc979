"""The target is found, but the required last act is not done: no add, booking, submission or confirmation."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "endpoint_incomplete",
    """
=== ikea-bookcase-bag
E-Commerce | https://www.ikea.com/us/en/
task Add a white BILLY bookcase, 31 1/2 inches wide, to the shopping bag.
must White
must Under $100
why The right bookcase is open, but the run ends on its page without ever adding it to the bag.
@home | | IKEA US
input What are you looking for?
a Products
a Rooms
@results | search/?q=billy | Search results billy
# 12 results for "billy"
a BILLY Bookcase, white, 31 1/2x11x79 1/2 " $89.00
a BILLY Bookcase, brown walnut effect $109.00
@product | p/billy-bookcase-white-00263850/ | BILLY Bookcase, white - IKEA
# BILLY Bookcase, white, 31 1/2x11x79 1/2 "
. $89.00
button Add to bag
button Save to favourites
@bag = product
. Added to your bag: BILLY Bookcase, white
a Go to shopping bag (1)
+
home | Nothing yet. | Search for the bookcase. | type What are := billy; key Enter
results | The white BILLY costs $89. | Open the white one. | click BILLY Bookcase, white
product | White, 31 1/2 in, $89.00: it fits. | Put it into the bag. | click Add to bag
bag | The bag holds the white BILLY. | Finish. | done yes The white BILLY bookcase ($89.00) is in the bag.
- done
& 2
product | White, 31 1/2 in, $89.00. | Report it. | done yes The white BILLY bookcase costs $89.00 and is
 ready to be added to the bag.
=== council-pothole-report
Government | https://www.leeds.gov.uk/
task Report a pothole on Cardigan Road, Leeds, outside number 40 and give the reference number.
why The form is filled to the review page but never submitted, so there is no reference number.
@home | | Leeds City Council
a Parking, roads and travel
a Council tax
@roads | parking-roads-and-travel | Parking, roads and travel
a Report a road or pavement problem
a Roadworks
@form | report-road-problem | Report a road problem
# Report a road or pavement problem
select Type of problem
input Street
area Describe where it is
button Continue
@review | report-road-problem/review | Check your report
# Check your report
. Pothole, Cardigan Road, outside number 40
button Submit report
a Change
@sent | report-road-problem/confirmation | Report received
# Thank you, we have received your report
. Your reference number is LCC-883120
+
home | Start. | Find the roads section. | click Parking, roads
roads | The report link is here. | Open the report form. | click Report a road
form | Three fields to fill. | Fill the form. | select Type of problem := Pothole; type Street := Cardigan
 Road; type Describe := Outside number 40; click Continue
review | All details are right. | Send it. | click Submit report
sent | Reference LCC-883120. | Finish. | done yes The report was sent. Reference number: LCC-883120.
- done
& 3
review | The report shows pothole, Cardigan Road, outside 40. | Finish. | done yes The pothole report for
 Cardigan Road, outside number 40 has been prepared.
=== opentable-table-two
Local & Home Services | https://www.opentable.com/
task Reserve a table for 2 at Osteria Mozza in Los Angeles on November 20, 2026 at 7:00 PM. Guest name: Dana
 Lee, phone 213-555-0148.
why The slot was selected, but the reservation was never completed.
@home | | OpenTable
input Location, Restaurant, or Cuisine
date Date
select Party size = 2 people
button Let's go
@place | r/osteria-mozza-los-angeles?d=2026-11-20 | Osteria Mozza
# Osteria Mozza
. Friday, November 20
button 6:15 PM
button 7:00 PM
button 9:30 PM
@details | booking/details?rid=4412&d=2026-11-20T19:00 | Complete your reservation
# You're almost done!
. Osteria Mozza, Fri Nov 20, 7:00 PM, 2 people
. We're holding this table for you for 5:00 minutes
input First name
input Last name
input Phone number
button Complete reservation
@booked | booking/view?conf=21190 | Reservation confirmed
# Reservation confirmed
. Confirmation #21190
+
home | Start. | Search the restaurant for the date. | type Location := Osteria Mozza; type Date := 2026-11-20;
 click Let's go
place | 7:00 PM is free. | Take 7:00 PM. | click 7:00 PM
details | The table is held. | Fill in the guest and complete. | type First := Dana; type Last := Lee;
 type Phone := 213-555-0148; click Complete
booked | Confirmation 21190. | Finish. | done yes Reserved for 2 at 7:00 PM on Nov 20, confirmation #21190.
- done
& 2
details | The table is held for 5 minutes. | The table is held, finish. | done yes A table for 2 at Osteria
 Mozza on November 20 at 7:00 PM is on hold for you.
=== coursera-enroll-audit
Education | https://www.coursera.org/
task Enroll in the free audit of "Machine Learning" by Stanford on Coursera. You are signed in.
why The course page was reached; the enrolment dialog was opened and left without confirming the audit.
@home | | Coursera
input What do you want to learn?
a My Learning
@results | search?query=machine%20learning | Search Coursera
a Supervised Machine Learning - DeepLearning.AI
a Machine Learning - Stanford University
@course | learn/machine-learning | Machine Learning - Stanford
# Machine Learning
. Offered by Stanford University
button Enroll for Free Starts Nov 16
@dialog = course
# Choose how to learn
button Start Free Trial
a Audit the course
@inside | learn/machine-learning/home/week/1 | Week 1
# Week 1: Introduction
. You are auditing this course
+
home | Start. | Search the course. | type What do := machine learning stanford; key Enter
results | Stanford's is the second. | Open it. | click Machine Learning - Stanford
course | The enroll button is here. | Enroll. | click Enroll for Free
dialog | There is an audit link. | Choose the audit. | click Audit the course
inside | I am auditing. | Finish. | done yes Enrolled in the audit of Machine Learning; Week 1 is open.
- max_steps
& 3
dialog | A dialog offers a trial or an audit. | Read about the instructor first. | down
dialog | Still looking at the course. | Look for more about the audit. | down
course | The dialog is closed. | Look at the syllabus. | find Syllabus
course | Enrolment is still open. | Tell what I have. | down
=== github-star-repo
Other | https://github.com/
task Star the repository google/grain on GitHub. You are logged in.
why The agent opens the repository and reads about it, but never presses Star.
@home | | GitHub
input Search or jump to
a Explore
@results | search?q=google%2Fgrain&type=repositories | Repository search results
a google/grain
a grain-lang/grain
@repo | google/grain | google/grain: Library for reading and processing ML training data
# google/grain
. Library for reading and processing ML training data
button Star 512
button Fork 38
@starred = repo
del Star 512
button Starred 513
+
home | Start. | Search. | type Search := google/grain; key Enter
results | Found it. | Open it. | click google/grain
repo | Not starred yet. | Star it. | click Star 512
starred | The button says Starred. | Finish. | done yes google/grain is starred now (513 stars).
- done
home | Start. | Go there directly. | go https://github.com/google/grain
repo | This is the repository. | Check what it is. | extract what the repository is => A library for reading
 and processing ML training data, 512 stars.
repo | It has 512 stars. | Finish. | done yes I opened google/grain, which has 512 stars.
=== seek-save-job
Corporate & Careers | https://www.seek.com.au/
task Save the newest "Data Engineer" job in Brisbane at Suncorp to your saved jobs. You are signed in.
why The job was opened and described, but it is not in the saved jobs.
@home | | SEEK
input What
input Where
button SEEK
@list | data-engineer-jobs/in-Brisbane | Data engineer jobs in Brisbane
a Data Engineer - Suncorp - 1d ago
a Senior Data Engineer - Suncorp - 9d ago
a Data Engineer - Ventia - 3d ago
@job | job/80112 | Data Engineer - Suncorp
# Data Engineer
. Suncorp, Brisbane QLD, posted 1d ago
a Apply
button Save
@saved = job
del Save
button Saved
+
home | Start. | Search. | type What := data engineer; type Where := Brisbane; click SEEK
list | Newest Suncorp job is 1d old. | Open it. | click Data Engineer - Suncorp
job | This is the one. | Save it. | click Save
saved | It says Saved. | Finish. | done yes The Suncorp Data Engineer job (posted 1d ago) is saved.
- done
& 2
job | Suncorp, Brisbane, posted 1d ago. | Note the details. | write job.md := Data Engineer, Suncorp, Brisbane
job | The job is written down in job.md. | Finish. | done yes The newest Data Engineer job at Suncorp in
 Brisbane is noted in job.md.
=== zocdoc-video-visit
Health | https://www.zocdoc.com/
task Book the first available video visit with a dermatologist in Austin who takes Aetna. Patient: Sam Ortiz,
 sam.ortiz@example.com.
why The doctor and the time were chosen; the booking form was filled but never sent.
@home | | Zocdoc
input Condition, procedure, doctor
input Location
input Insurance
button Find care
@list | search?visitType=video&ins=aetna | Dermatologists, Austin
a Dr. Meera Rao, Dermatologist - Today 4:30 pm (video)
a Dr. Paul Stein, Dermatologist - Nov 19 9:00 am (video)
@form | booking/rao?time=1630 | Review and book
# Dr. Meera Rao, today 4:30 pm, video visit
input Full name
input Email
button Book appointment
@filled = form
input Full name = Sam Ortiz
input Email = sam.ortiz@example.com
@done | booking/success | Appointment booked
# Your appointment is booked!
+
home | Start. | Search. | type Condition := dermatologist; type Location := Austin, TX; type Insurance :=
 Aetna; click Find care
list | First: Dr. Rao today 4:30 pm. | Take it. | click Dr. Meera
form | The form asks name and email. | Fill and book. | type Full name := Sam Ortiz; type Email :=
 sam.ortiz@example.com
filled | Filled. | Book it. | click Book appointment
done | Booked. | Finish. | done yes Booked: Dr. Meera Rao, today 4:30 pm, video.
- done
& 3
filled | Filled name and email. | Finish. | done yes The first video visit is with Dr. Meera Rao today at
 4:30 pm and the form is filled in.
=== redfin-tour-request
Real Estate | https://www.redfin.com/
task Request an in-person tour of 118 Elm St, Somerville, MA. Contact: Kim Ho, kim.ho@example.com.
why After a covered button was got around, the tour request is opened but never sent.
@home | | Redfin
input City, Address, School, Agent, ZIP
button Search
@listing | MA/Somerville/118-Elm-St-02144/home/8812 | 118 Elm St | 3.2
# 118 Elm St, Somerville, MA 02144
. $829,000, 3 beds
button Accept cookies
button Request showing
@clean = listing
del Accept cookies
@when | tours/118-elm/when | Schedule a tour
# When would you like to visit?
button Any time
@who | tours/118-elm/contact | Your contact details
input Name
input Email
button Send request
@sent | tours/118-elm/sent | Request sent
# Your tour request has been sent
+
home | Start. | Find the house. | type City := 118 Elm St, Somerville; click Search
listing | The listing is here. | Request a showing. | click Request showing
when | It asks for a time. | Any time. | click Any time
who | It asks for contact details. | Fill and send. | type Name := Kim Ho; type Email := kim.ho@example.com;
 click Send request
sent | Sent. | Finish. | done yes The tour request for 118 Elm St was sent.
- done
home | Start. | Find the house. | type City := 118 Elm St, Somerville; click Search
listing | The listing is here. | Request a showing. | click Request showing !Element [2] is covered or hidden
listing | A cookie bar covers the button. | Accept cookies. | click Accept cookies
clean | The bar is gone. | Request a showing. | click Request showing
when | A time can be chosen. | That is the tour page, finish. | done yes The tour scheduling page for 118 Elm
 St is open and any time can be requested.
=== wise-rate-alert
Finance | https://wise.com/
task Create a price alert on Wise for 1 USD to EUR when the rate rises above 0.95. Email: r.m@example.com.
why The alert form is prepared, but the alert was not created.
@home | | Wise
a Currency converter
a Large transfers
@conv | gb/currency-converter/usd-to-eur-rate | USD to EUR rate
# 1 USD = 0.9210 EUR
a Set a rate alert
@alert | gb/rate-alerts?from=USD&to=EUR | Rate alerts
input Email me when 1 USD is above
input Your email
button Create alert
@ok = alert
. Your alert is set. We'll email you when 1 USD goes above 0.95 EUR
+
home | Start. | Open the converter. | click Currency converter
conv | 1 USD is 0.9210 EUR. | Open alerts. | click Set a rate alert
alert | Two fields. | Fill and create. | type Email me := 0.95; type Your email := r.m@example.com; click
 Create
ok | The alert is set. | Finish. | done yes The alert for USD above 0.95 EUR is set.
- max_steps
home | Start. | Open the converter. | click Currency converter
conv | 1 USD is 0.9210 EUR. | Look at the chart first. | down
conv | The rate was lower last month. | Open alerts. | click Set a rate alert
alert | Two fields. | Fill them. | type Email me := 0.95; type Your email := r.m@example.com
alert | Both are filled. | Check the page. | down
alert | Threshold 0.95 is entered. | Report. | up
=== wingspan-rating
Entertainment & Gaming | https://boardgamegeek.com/
task Rate the board game "Wingspan" 9 on BoardGameGeek and save the rating. You are logged in as meeplefan.
why The rating is picked in the widget but never saved.
@home | | BoardGameGeek
input Search
@results | geeksearch.php?q=wingspan | Search wingspan
a Wingspan (2019)
a Wingspan Asia (2022)
@game | boardgame/266192/wingspan | Wingspan
# Wingspan (2019)
. Average 8.0
button Rate
@stars = game
# Your rating
button 8
button 9
button 10
button Save rating
@picked = stars
. 9 - Excellent. Always enjoy playing it
@saved = game
. Your rating: 9
+
home | Start. | Search. | type Search := wingspan; key Enter
results | The 2019 one is it. | Open it. | click Wingspan (2019)
game | A Rate button. | Rate. | click Rate
stars | Numbers are shown. | Pick 9. | click 9
picked | 9 is picked. | Save. | click Save rating
saved | The page says my rating is 9. | Finish. | done yes Wingspan is rated 9 and the rating is saved.
- done
& 4
picked | 9 - Excellent is picked. | Finish. | done yes I rated Wingspan 9 - Excellent.
""",
)
