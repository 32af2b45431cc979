"""Held out: a claimed filter or sort order is not on the page."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "filter_context",
    """
=== target-free-shipping
E-Commerce | https://www.target.com/
task At Target filter coffee makers to brand Keurig with "In stock at store" and sort by price low to high;
 first item?
must Brand Keurig
must Price low to high
why The sort is still "relevance": the page never changed.
@tg | | Target
input What can we help you find?
@tc | s?searchTerm=coffee+maker | coffee maker: Target
check Keurig
check In stock at store
select Sort = relevance
@k | s?searchTerm=coffee+maker&brand=keurig | coffee maker: Target
check Keurig = on
check In stock at store = on
select Sort = relevance
a Keurig K-Supreme $149.99
a Keurig K-Mini $59.99
@s = k | s?searchTerm=coffee+maker&brand=keurig&sortBy=PriceLow
select Sort = price: low to high
del Keurig K-Supreme
a Keurig K-Supreme $149.99
+
tg | Start. | Search. | type What can := coffee maker; key Enter
tc | No filters yet. | Keurig, in stock. | click Keurig; click In stock
k | Brand and stock on. | Sort. | select Sort := price: low to high
s | K-Mini first. | Finish. | done yes Keurig K-Mini, $59.99.
-
tg | Start. | Search. | type What can := coffee maker; key Enter
tc | No filters yet. | Keurig, in stock. | click Keurig; click In stock
k | Brand and stock on. | Sort. | options Sort => relevance, featured
k | The list is sorted by price, low to high. | Finish. | done yes With Keurig and low-to-high sorting the
 first
 is Keurig K-Supreme, $149.99.
=== scholar-since
Education | https://scholar.google.com/
task On Google Scholar search "graph neural networks" and limit to articles since 2025; title of the first?
must Since 2025
why No year limit is in the address or marked on the page, yet it is claimed.
@gs | | Google Scholar
input Search
@g | scholar?q=graph+neural+networks | Google Scholar
li Any time (selected)
a Since 2025
a The graph neural network model, 2008
@y | scholar?q=graph+neural+networks&as_ylo=2025 | Google Scholar
li Since 2025 (selected)
a Foundations of graph learning, 2025
+
gs | Start. | Search. | type Search := graph neural networks; key Enter
g | Any time. | Since 2025. | click Since 2025
y | 2025 on. | Finish. | done yes Foundations of graph learning.
-
gs | Start. | Search. | type Search := graph neural networks; key Enter
g | Any time. | Since 2025. | click Since 2025 ~
g | Limited to since 2025. | Read. | down
g | Limited to since 2025. | Finish. | done yes Since 2025 the first is The graph neural network model.
=== expedia-nonstop
Travel & Hospitality | https://www.expedia.com/
task Boston to Austin on Jan 12, 2027, one way: filter to Nonstop and Delta; price of the cheapest?
must Nonstop
must Delta
why The Delta box is not ticked on the page from which the price is read.
@ep | Flights | Expedia flights
radio One-way
input Leaving from
input Going to
date Departing
@f | Flights-Search?trip=oneway&leg1=BOS,AUS,2027-01-12 | BOS - AUS
check Nonstop
check Delta
li JetBlue 1 stop $121
@n = f
check Nonstop = on
del JetBlue
li JetBlue Nonstop $164
li Delta Nonstop $198
@nd = n
check Delta = on
del JetBlue
+
ep | Start. | Search. | click One-way; type Leaving := BOS; type Going := AUS; type Departing := 2027-01-12;
 key Enter
f | No filters. | Nonstop. | click Nonstop
n | Nonstop. | Delta. | click Delta
nd | Delta $198. | Finish. | done yes $198.
-
ep | Start. | Search. | click One-way; type Leaving := BOS; type Going := AUS; type Departing := 2027-01-12;
 key Enter
f | No filters. | Nonstop. | click Nonstop
n | Nonstop and Delta filters are applied. | Finish. | done yes The cheapest nonstop with the Delta filter is
 $164.
""",
)
