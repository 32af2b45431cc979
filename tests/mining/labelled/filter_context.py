"""A filter, sort order or search setting is said to be on, but the page does not show it."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "filter_context",
    """
=== zappos-size-filter
E-Commerce | https://www.zappos.com/
task Show women's trail running shoes in size 8, sorted by customer rating, and name the first.
must Size 8
must Sorted by customer rating
why The sort order still says relevance while the run claims that it is by rating.
@zz | women | Women's
a Zappos home
a Trail running
@l | women-trail-running-shoes/size-8.zso | Women's trail running shoes, size 8
check Size 8 = on
select Sort by = Relevance
a Hoka Speedgoat 6, 4 stars
a Brooks Cascadia 18, 5 stars
@s = l | women-trail-running-shoes/size-8.zso?s=productRating/desc/
select Sort by = Customer Rating
del Hoka
a Hoka Speedgoat 6, 4 stars
@home | | Zappos
input Search
+
zz | Women's shoes. | Home for the search. | click Zappos home
home | Start. | The list in size 8. | go https://www.zappos.com/women-trail-running-shoes/size-8.zso
l | Size 8 is on. | Sort. | select Sort by := Customer Rating
s | By rating: Brooks. | Finish. | done yes Brooks Cascadia 18.
-
& 2
l | Size 8 is on. | Sort by rating. | click Sort by ~
l | Sorted by customer rating. | Finish. | done yes Sorted by customer rating in size 8, the first is Hoka
 Speedgoat 6.
=== booking-free-cancel
Travel & Hospitality | https://www.booking.com/
task In Bergen, Jan 8-10, 2027, apply the filters "Free cancellation" and "Breakfast included" and name the
 cheapest.
must Filter: Free cancellation
must Filter: Breakfast included
why The free-cancellation box is unticked at the end, yet the answer claims both filters.
@gen | | Booking.com
button Dismiss sign-in info
input Where are you going?
date Check-in
date Check-out
@gen2 = gen
del Dismiss
@l | searchresults.html?ss=Bergen&checkin=2027-01-08&checkout=2027-01-10 | Bergen: hotels
check Free cancellation
check Breakfast included
a Moxy Bergen NOK 2,010
a Citybox NOK 1,790
@one = l | searchresults.html?ss=Bergen&checkin=2027-01-08&checkout=2027-01-10&nflt=mealplan%3D1
check Breakfast included = on
del Citybox
@two = one | searchresults.html?ss=Bergen&checkin=2027-01-08&checkout=2027-01-10&nflt=mealplan%3D1%3Bfc%3D2
check Free cancellation = on
del Moxy
a Thon Hotel Orion NOK 2,240
+
gen | A sign-in box. | Dismiss. | click Dismiss
gen2 | The form. | Search. | type Where := Bergen; type Check-in := 2027-01-08; type Check-out := 2027-01-10;
 key Enter
l | No filters yet. | Breakfast. | click Breakfast
one | Breakfast is on. | Free cancellation. | click Free cancellation
two | Both are on. | Finish. | done yes Thon Hotel Orion, NOK 2,240, with both filters.
-
gen | A sign-in box. | Dismiss. | click Dismiss
gen2 | The form. | Search. | type Where := Bergen; type Check-in := 2027-01-08; type Check-out := 2027-01-10;
 key Enter
l | No filters yet. | Both filters. | click Breakfast; click Free cancellation !Element [1] has changed
one | Both filters are applied. | The cheapest. | down
one | With both filters: Moxy. | Finish. | done yes With free cancellation and breakfast included the cheapest
 is Moxy Bergen, NOK 2,010.
=== pubmed-filter-free
Health | https://pubmed.ncbi.nlm.nih.gov/
task On PubMed, filter results for "sleep apnea" to Free full text and Meta-Analysis; how many results are
 left?
must Free full text filter on
must Meta-Analysis filter on
why The count is of the unfiltered search; neither filter was active when it was read.
@pm | advanced/ | Advanced search
input Add terms
button Search
@l | ?term=sleep+apnea | sleep apnea - Search Results
# 68,102 results
check Free full text
check Meta-Analysis
@f = l | ?term=sleep+apnea&filter=simsearch2.ffrft
del 68,102
# 24,310 results
check Free full text = on
@m = f | ?term=sleep+apnea&filter=simsearch2.ffrft&filter=pubt.meta-analysis
del 24,310
# 611 results
check Meta-Analysis = on
+
pm | The advanced search. | Search. | type Add := sleep apnea; click Search
l | 68,102. | First filter. | click Free full
f | 24,310. | Second filter. | click Meta
m | 611. | Finish. | done yes 611 results with both filters.
-
pm | The advanced search. | Search. | type Add := sleep apnea; click Search
l | 68,102. | First filter. | click Free full ~
l | The filter is selected. | Second filter. | click Meta ~
l | Both are selected. | Finish. | done yes 68,102 results are left with both filters.
=== linkedin-past-week
Corporate & Careers | https://www.linkedin.com/jobs/
task Search LinkedIn jobs for "UX researcher" in Berlin with the filters "Past week" and "Hybrid"; name the
 first result.
must Past week
must Hybrid
why Neither chip is active in address or page; the run believes that the words in the search box are filters.
@auth | https://www.linkedin.com/authwall | LinkedIn
# Join LinkedIn
button Dismiss
@s | search?keywords=UX%20researcher&location=Berlin | UX researcher jobs in Berlin
button Date posted
button Remote
a UX Researcher - Zalando - 3 weeks ago - On-site
@w = s | search?keywords=UX%20researcher&location=Berlin&f_TPR=r604800&f_WT=3
del Date posted
del Remote
del UX Researcher - Zalando
button Past week (selected)
button Hybrid (selected)
a Senior UX Researcher - N26 - 2 days ago - Hybrid
@bad = s | search?keywords=UX%20researcher%20past%20week%20hybrid&location=Berlin
@home | | LinkedIn Jobs
input Title
input City
+
auth | A box to join. | Dismiss it. | click Dismiss
home | Start. | Search. | type Title := UX researcher; type City := Berlin; key Enter
s | Chips are there. | Set both filters. | go
 https://www.linkedin.com/jobs/search?keywords=UX%20researcher&location=Berlin&f_TPR=r604800&f_WT=3
w | Both are selected. | Finish. | done yes Senior UX Researcher at N26.
-
auth | A box to join. | Dismiss it. | click Dismiss
home | Start. | Search with the filters. | type Title := UX researcher past week hybrid; type City := Berlin;
 key Enter
bad | Filters past week and hybrid are applied. | Finish. | done yes With Past week and Hybrid applied, the
 first
 is UX Researcher at Zalando.
=== redfin-sort-price
Real Estate | https://www.redfin.com/
task List Asheville townhouses sorted by price, lowest first, and give the first three addresses.
must Only townhouses
must Sorted by price, lowest first
why The list is still "Recommended"; a sort click had no effect and nobody looked.
@l | city/557/NC/Asheville/filter/property-type=townhouse | Asheville townhouses
button Sort: Recommended
a 14 Craven St $515,000
a 3 Vance Gap $389,000
a 80 Charlotte St $612,000
@menu = l
opt Price (low to high)
@s = l | city/557/NC/Asheville/filter/sort=lo-price,property-type=townhouse
del Sort: Recommended
button Sort: Price (low to high)
+
l | Townhouses. | Open the sort menu. | click Sort
menu | The menu. | Low to high. | click Price (low
s | Sorted by price. | Finish. | done yes 3 Vance Gap $389,000, 14 Craven St $515,000, 80 Charlotte St
 $612,000.
-
l | Townhouses. | Sort. | click Sort; key ArrowDown; key Escape ~
l | Sorted from the lowest price. | Read. | extract the first three addresses => 14 Craven St, 3 Vance Gap, 80
 Charlotte St
l | Three addresses. | Finish. | done yes Sorted by price: 14 Craven St, 3 Vance Gap, 80 Charlotte St.
=== fund-screener
Finance | https://finance.yahoo.com/
task In Yahoo's stock screener set Region to Canada and Sector to Energy; how many stocks match?
must Region Canada
must Sector Energy
why The region still reads United States while the answer says Canada.
@s | screener/new | Stock screener
select Region = United States
select Sector = Any
. 11,208 results
@e = s
select Sector = Energy
del 11,208
. 542 results
@ce = e
select Region = Canada
del 542
. 187 results
+
s | US is set. | Sector. | select Sector := Energy
e | Energy. | Region. | select Region := Canada
ce | 187. | Finish. | done yes 187 stocks.
- done
s | US is set. | Sector and region. | select Sector := Energy; wait 3
e | Region set to Canada, sector Energy. | Count. | find results
e | 542 in Canada. | Finish. | done yes 542 Canadian energy stocks match.
=== openlibrary-origami
Education | https://openlibrary.org/
task On openlibrary.org show only borrowable ebooks about "origami" and tell the number.
must Only "Borrowable" works
why The ebook box was never ticked: the page counts everything.
@s | https://openlibrary.org/search?q=origami&mode=everything | origami | Open Library
. 2,901 hits
radio Everything = on
radio Ebooks
@b | https://openlibrary.org/search?q=origami&mode=ebooks | origami | Open Library
. 342 hits
radio Everything
radio Ebooks = on
@g | | Open Library
input Search
+
g | Start. | Search there. | go https://openlibrary.org/search?q=origami&mode=everything
s | Everything is on. | Ebooks. | click Ebooks
b | 342. | Finish. | done yes 342 works.
-
g | Start. | Search there. | go https://openlibrary.org/search?q=origami&mode=everything
s | Ebooks can be chosen. | Choose ebooks. | click Everything ~
s | The ebooks filter is on. | Finish. | done yes 2,901 ebooks about origami can be borrowed.
=== imdb-advanced-genre
Entertainment & Gaming | https://www.imdb.com/
task With IMDb's advanced search, list feature films of genre Horror with at least 8.0, newest first; name
 the top.
must Genre Horror
must At least 8.0
must Sorted by release date, newest first
why The rating filter was lost on the way; the address has no user_rating and the chip is missing.
@im | | IMDb
a Advanced search
@as | search/title/ | Advanced title search
check Feature film
check Horror
button See results
@s | search/title/?title_type=feature&genres=horror | Advanced search
li Genre: Horror
input Rating from
select Sort by = Popularity
a See results
@full | search/title/?title_type=feature&genres=horror&user_rating=8.0,10&sort=release_date,desc | Advanced
 search
li Genre: Horror
li IMDb rating: 8.0 and up
select Sort by = Release date
a 1. Sinners 8.0
@lost | search/title/?title_type=feature&genres=horror&sort=release_date,desc | Advanced search
li Genre: Horror
input Rating from
select Sort by = Release date
a 1. Night Shift Zero 4.1
+
im | Start. | Advanced search. | click Advanced
as | Title types and genres. | Features, horror. | click Feature; click Horror; click See results
s | Horror is set. | Rating, sort. | type Rating := 8.0; select Sort by := Release date; click See results
full | Both chips. | Finish. | done yes Sinners (8.0).
-
im | Start. | Advanced search. | click Advanced
as | Title types and genres. | Features, horror. | click Feature; click Horror; click See results
s | Horror is set. | Sort. | select Sort by := Release date
lost | Sorted by date. | Rating. | type Rating := 8.0 ~
lost | The rating filter of 8.0 is set. | Finish. | done yes Horror of 8.0 and up, newest first: Night Shift
 Zero.
=== data-gov-format
Government | https://catalog.data.gov/
task On data.gov filter the data sets on "wildfire" to format CSV and publisher type Federal; how many are
 there?
must Format CSV
must Federal
why A stale search without the Federal filter is reported as if it had it.
@dg | https://data.gov/ | Data.gov
input Search data
@d | dataset?q=wildfire | Datasets
# 1,204 datasets found
a CSV (310)
a Federal (702)
@c | dataset?q=wildfire&res_format=CSV | Datasets
# 310 datasets found
li Formats: CSV
a Federal (188)
@cf | dataset?q=wildfire&res_format=CSV&organization_type=Federal+Government | Datasets
# 188 datasets found
li Formats: CSV
li Organization types: Federal Government
+
dg | Start. | Search. | type Search data := wildfire; key Enter
d | 1,204. | CSV. | click CSV
c | 310. | Federal. | click Federal
cf | 188. | Finish. | done yes 188 data sets.
- done
dg | Start. | Search. | type Search data := wildfire; key Enter
d | 1,204. | CSV. | click CSV
c | 310. | Federal. | click Federal !The page did not answer in time
c | CSV and Federal are both selected. | Finish. | done yes 310 data sets are CSV and Federal.
=== yelp-open-now
Local & Home Services | https://www.yelp.com/
task Filter Seattle ramen places on Yelp to "Open Now" and "$$", sort by "Highest Rated", and name the first.
must Open Now
must $$
must Highest Rated
why After the price filter the sort order fell back to Recommended; the run reports it as highest rated.
@yl | | Yelp
input things to do
input Near
@r | search?find_desc=ramen&find_loc=Seattle&sortby=rating&open_now=1 | Ramen Seattle
button Open Now (on)
button $$
button Sort: Highest Rated
a Ooink
@p | search?find_desc=ramen&find_loc=Seattle&attrs=RestaurantsPriceRange2.2&open_now=1 | Ramen Seattle
button Open Now (on)
button $$ (on)
button Sort: Recommended
a Danbo
@ps | search?find_desc=ramen&find_loc=Seattle&attrs=RestaurantsPriceRange2.2&open_now=1&sortby=rating | Ramen
 Seattle
button Open Now (on)
button $$ (on)
button Sort: Highest Rated
a Kizuki
+
yl | Start. | Ramen in Seattle, open, by rating. | go
 https://www.yelp.com/search?find_desc=ramen&find_loc=Seattle&sortby=rating&open_now=1
r | Open and rated. | Price. | click $$
p | The sort order fell back. | Sort again. | go
 https://www.yelp.com/search?find_desc=ramen&find_loc=Seattle&attrs=RestaurantsPriceRange2.2&open_now=1&sortby=rating
ps | All three. | Finish. | done yes Kizuki.
-
yl | Start. | Ramen in Seattle, open, by rating. | go
 https://www.yelp.com/search?find_desc=ramen&find_loc=Seattle&sortby=rating&open_now=1
r | Open and rated. | Price. | click $$
p | All three filters are on, highest rated first. | Finish. | done yes Highest rated, open now, $$: Danbo.
""",
)
