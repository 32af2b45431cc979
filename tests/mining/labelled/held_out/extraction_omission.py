"""Held out: a field, unit, comparison or derived quantity is omitted."""

from tests.mining.labelled.expanding import read_cases

CASES = read_cases(
    "extraction_omission",
    """
=== phone-plan-year
E-Commerce | https://www.mintmobile.com/
task How much does Mint Mobile's Unlimited plan cost for 12 months in total, and per month?
why The monthly price alone is told; the total for twelve months is missing.
@home | | Mint Mobile
a Plans
@p | plans/ | Plans
button 3 months
button 12 months
li Unlimited $30/mo
@y = p
. 12-month plan, billed upfront
+
home | Start. | Plans. | click Plans
p | Terms. | 12 months. | click 12 months
y | $30 a month. | Read. | extract price of Unlimited, 12 months => $30/mo, billed upfront
y | 12 x 30 = 360. | Finish. | done yes $360 in total for 12 months, $30 per month.
-
home | Start. | Plans. | click Plans
p | Terms. | 12 months. | click 12 months
y | $30 a month. | Finish. | done yes Unlimited costs $30/mo on the 12-month plan.
=== airports-three
Travel & Hospitality | https://www.flightradar24.com/
task For Heathrow, Gatwick and Stansted give IATA code, elevation and time zone.
why Elevation and time zone of Stansted are left out.
@h | data/airports/lhr | LHR
td LHR, 83 ft, Europe/London
@g | data/airports/lgw | LGW
td LGW, 203 ft, Europe/London
@s | data/airports/stn | STN
td STN, 348 ft, Europe/London
@home | | Flightradar24
input Search
+
home | Start. | Heathrow. | go https://www.flightradar24.com/data/airports/lhr
h | LHR, 83 ft. | Gatwick. | go https://www.flightradar24.com/data/airports/lgw
g | LGW, 203 ft. | Stansted. | go https://www.flightradar24.com/data/airports/stn
s | STN, 348 ft. | Read. | extract code, elevation, time zone => STN, 348 ft, Europe/London
s | All three. | Finish. | done yes LHR 83 ft, LGW 203 ft, STN 348 ft, all Europe/London.
-
home | Start. | Heathrow. | go https://www.flightradar24.com/data/airports/lhr
h | LHR, 83 ft. | Gatwick. | go https://www.flightradar24.com/data/airports/lgw
g | LGW, 203 ft. | Stansted. | go https://www.flightradar24.com/data/airports/stn
s | STN. | Finish. | done yes LHR 83 ft Europe/London; LGW 203 ft Europe/London; Stansted: STN.
=== census-two-years
Government | https://www.statcan.gc.ca/
task By what percentage did Canada's population grow from July 2024 to July 2025 according to Statistics
 Canada?
why The two populations were read, the growth in percent was never computed.
@t | t1/tbl1/en/tv.action?pid=1710000901 | Population estimates
td Q3 2024 41,262,329
td Q3 2025 41,651,653
@home | en/start | Statistics Canada
input Search
+
home | Start. | Population table. | go https://www.statcan.gc.ca/t1/tbl1/en/tv.action?pid=1710000901
t | Both. | Read. | extract Q3 2024 and Q3 2025 => 41,262,329 and 41,651,653
t | 389,324 / 41,262,329 = 0.94 %. | Finish. | done yes About 0.94 % (41,262,329 to 41,651,653).
-
home | Start. | Population table. | go https://www.statcan.gc.ca/t1/tbl1/en/tv.action?pid=1710000901
t | Both. | Read. | extract Q3 2024 and Q3 2025 => 41,262,329 and 41,651,653
t | Both. | Finish. | done yes The population was 41,262,329 in July 2024 and 41,651,653 in July 2025.
""",
)
