"""Boxes on screenshots, and redaction of secrets there, in real Chromium."""

from __future__ import annotations

import base64
import io
import time

import pytest
from PIL import Image

from collection.browser.guard.redaction import CARD_PLACEHOLDER, Redactor
from collection.browser.page import ActionTarget
from collection.browser.snapshot import _SECRETS, draw_boxes, secret_boxes

SECRET = "correct horse"
REDACTOR = Redactor({"key": SECRET}, cards=True)
ENCODED = base64.b64encode(SECRET.encode()).decode()
CARD = "4111 1111 1111 1111"
PAGE = f"""<!doctype html><style>body{{margin:0}} div{{position:absolute;left:10px;width:400px;height:20px}}
input{{position:absolute;left:10px;width:200px;height:20px;box-sizing:border-box}}</style>
<input style="top:0" type=password value=x id=password>
<input style="top:30px" autocomplete="section-a cc-csc" value=123>
<input style="top:60px" value="4111-1111-1111-1111">
<input style="top:90px" value="my {SECRET}!">
<div style="top:120px">pay with {CARD} now</div>
<div style="top:150px">it is <b>correct</b>
  <i>horse</i></div>
<div style="top:180px" id=host></div>
<iframe style="position:absolute;left:10px;top:210px;width:200px;height:40px;border:5px solid"
  srcdoc="<body style='margin:0'><input type=password
  style='width:100px;height:20px;box-sizing:border-box;margin:0'>"></iframe>
<div style="top:5000px">{SECRET}</div>
<div style="top:270px">harmless 1234 5678 9012 3456, {"9" * 16}</div>
<input style="top:300px" value=harmless>
<script>host.attachShadow({{mode: 'closed'}}).innerHTML = '{ENCODED}'</script>
"""


@pytest.fixture
def page(browser, local_pages):
    browser.goto(local_pages + "/")
    browser.script("document.open(); document.write(arguments[0]); document.close()", PAGE)
    return browser


def test_each_secret_has_a_box_and_nothing_else_does(page):
    rows = sorted({(top + 5) // 30 for _, top, _, _ in secret_boxes(page, REDACTOR)})
    assert rows == [0, 1, 2, 3, 4, 5, 6, 7]
    for left, top, right, bottom in secret_boxes(page, REDACTOR):
        assert 10 <= left < right <= 300 and bottom - top <= 25


def test_frames_are_where_they_are(page):
    assert (15, 215, 115) in [box[:3] for box in secret_boxes(page, REDACTOR)]


def test_frames_of_other_origins_as_well(browser, local_pages):
    other = local_pages.replace("127.0.0.1", "other.test").rpartition(":")[0]
    browser.goto(f"{local_pages}/")
    browser.script(
        "document.body.innerHTML = `<iframe style='position:absolute;left:40px;top:50px;border:0' src='"
        f"{other}/' sandbox='allow-scripts'></iframe>`"
    )
    frame = browser.driver.find_element("tag name", "iframe")
    browser.enter_frame(frame)
    # Until its document comes, the frame holds an empty one.
    while not browser.script("return location.href != 'about:blank' && document.readyState == 'complete'"):
        time.sleep(0.05)
    browser.script(
        "document.body.innerHTML = \"<input type=password style='position:absolute;left:1px;top:2px'>\""
    )
    browser.leave_frame()
    ((left, top, *_),) = secret_boxes(browser, REDACTOR)
    assert (left, top) == (41, 52)


def test_a_password_shown_in_plain_text_is_redacted(page):
    secret_boxes(page, Redactor({}))
    page.script("password.type = 'text'")
    assert (10, 0, 210, 20) in secret_boxes(page, Redactor({}))


def test_a_page_that_breaks_the_language_hides_no_secret(page):
    before = secret_boxes(page, REDACTOR)
    page.page_script("Array.prototype.push = () => 0; RegExp.prototype.test = () => false")
    assert secret_boxes(page, REDACTOR) == before


def test_the_page_learns_no_secret(page):
    page.page_script(
        "window.seen = []; for (const name of ['includes', 'matchAll', 'replace', 'trim', 'split'])"
        "{ const own = String.prototype[name]; String.prototype[name] = function (...a) "
        "{ seen.push(String(this), ...a.map(String)); return own.apply(this, a); }; }"
    )
    page.script("for (const el of document.querySelectorAll('body > *')) el.remove()")
    secret_boxes(page, REDACTOR)
    assert SECRET not in _SECRETS and not any(SECRET in text for text in page.page_script("return seen"))


def test_the_picture_has_no_trace_of_it(page):
    plain = Image.open(io.BytesIO(page.screenshot()))
    boxes = secret_boxes(page, REDACTOR)
    image = Image.open(io.BytesIO(draw_boxes(page.screenshot(), {}, boxes)))
    assert image.size == plain.size
    for left, top, right, bottom in boxes:
        assert image.crop((left, top, right, min(bottom, image.height))).getcolors() == [
            ((right - left) * (min(bottom, image.height) - top), (128, 128, 128))
        ]
    untouched = (0, 262, 300, image.height)
    assert image.crop(untouched).tobytes() == plain.convert("RGB").crop(untouched).tobytes()


@pytest.mark.parametrize(
    "number",
    ["4111111111111111", CARD, "5555-5555-5555-4444", "378282246310005", "30569309025904", "6011111111111117",
     "3530111333300000", "2223003122003222"],
)  # fmt: skip
def test_card_numbers_are_hidden(number):
    assert Redactor({}, cards=True).text(f"no {number}.") == f"no {CARD_PLACEHOLDER}."
    assert Redactor({}).text(number) == number


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111112",
        "1700000000000",
        "4006381333931",
        "0000000000000000",
        "41111111111111111111",
        "4111",
    ],
)
def test_other_numbers_stay(number):
    assert Redactor({}, cards=True).text(f"no {number}.") == f"no {number}."


def drawn(box, text="text", index=12):
    """A white picture of 60 by 40 pixels with the box of an element; what is not white there."""
    out = io.BytesIO()
    Image.new("RGB", (60, 40), "white").save(out, format="PNG")
    png = draw_boxes(out.getvalue(), {index: ActionTarget(1, 0.0, (), "a", text, (), box)})
    image = Image.open(io.BytesIO(png)).convert("L")
    return png, image.point([255 if level < 255 else 0 for level in range(256)]).getbbox()


def test_boxes_are_on_the_elements_edge_and_cut_at_the_window():
    box = (10, 8, 50, 30)
    assert drawn(box)[1] == box and drawn(box) == drawn(box)
    assert drawn((-5, -5, 200, 200))[1] == (0, 0, 60, 40)
    assert drawn((70, 5, 90, 20), "")[1] is None
    # Only little text brings the index.
    assert drawn(box)[0] == drawn(box, index=17)[0]
    assert len({drawn(box)[0], drawn(box, "")[0], drawn(box, "", 17)[0]}) == 3
