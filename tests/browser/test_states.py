"""States of elements that a user sees, in their lines."""

from collection.browser.snapshot import take_snapshot

LINES = """\
[1]<input id=name required=true />
[2]<input id=mail type=email value=x invalid=true />
[3]<input id=fixed value=9 readonly=true />
[4]<input id=number type=number min=1 max=5 />
[5]<input id=day type=date min=2026-01-01 format=YYYY-MM-DD />
[6]<button id=bold pressed=true />
\tBold
[7]<a id=here current=page href=/here />
\tHere
[8]<div id=level role=slider aria-valuenow=3 aria-valuemin=0 aria-valuemax=10 />
[9]<input id=plain />"""


def test_states_are_listed(browser, local_pages):
    browser.goto(f"{local_pages}/states.html")
    assert take_snapshot(browser).page_text == LINES
