"""Detection of elements, in a real browser."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image

from collection.browser.page import Snapshot, render_node
from collection.browser.session import Browser
from collection.browser.snapshot import observe, take_snapshot
from rmsweb_jax.records.images import ImageStore


def look(browser: Browser, url: str) -> Snapshot:
    browser.goto(url)
    return take_snapshot(browser)


def lines(snapshot: Snapshot) -> list[str]:
    return [re.sub(r"\[\d+\]", "[]", render_node(node)) for node in snapshot.nodes]


# The lines of `elements.html`: what can be acted on by number, and other text; nothing that is invisible.
ELEMENTS = """\
Heading
Plain bold words
second line
[]<a href=/elements.html?q=1 />
\tLink text
[]<button id=plain />
\tPress me
Never
[]<button aria-label=Close window />
Agree
[]<input id=agree type=checkbox checked=true />
[]<input id=who value=Ada placeholder=Your name />
[]<input type=password value=****** />
[]<textarea id=notes value=old />
[]<div id=rich />
\trich
[]<select id=month value=June options=May|June />
[]<div id=card />
\tCard inner
[]<div id=listening />
\tListens
[]<div role=tab aria-selected=true />
\tTab role
Not focusable by keys
[]<a id=outer />
\tFills its link
[]<i id=icon />
[]<button />
\tWrapped"""
LABELS = """\
[]<label id=none type=checkbox />
\tNone
[]<label id=away type=checkbox checked=true />
\tAway
[]<label id=zero name=size type=radio value=s />
\tZero
[]<label id=reader name=size type=radio value=m />
\tReader
[]<label id=wrapped type=checkbox />
\tWrapped
[]<input id=clear type=checkbox />
Clear
[]<label id=file type=file />
\tChoose a file
[]<input id=seen type=checkbox />
Seen
Off
Name
[]<input id=name />"""
STATES = """\
[]<input id=name required=true />
[]<input id=mail type=email value=x invalid=true />
[]<input id=fixed value=9 readonly=true />
[]<input id=number type=number min=1 max=5 />
[]<input id=day type=date min=2026-01-01 format=YYYY-MM-DD />
[]<button id=bold pressed=true />
\tBold
[]<a id=here current=page href=/here />
\tHere
[]<div id=level role=slider aria-valuenow=3 aria-valuemin=0 aria-valuemax=10 />
[]<input id=plain />"""
SHADOW = """\
|SHADOW(open)|<open-box />
\t[]<button />
\t\tOpen button
|SHADOW(closed)|<closed-box />
\t[]<button />
\t\tClosed button"""


@pytest.mark.parametrize(
    ("page", "shown"),
    [("elements", ELEMENTS), ("labels", LABELS), ("states", STATES), ("shadow", SHADOW)],
)
def test_pages_are_listed(browser: Browser, local_pages: str, page: str, shown: str) -> None:
    snapshot = look(browser, f"{local_pages}/{page}.html")
    assert lines(snapshot) == shown.splitlines()
    indices = [node.index for node in snapshot.nodes if node.index is not None]
    assert indices == list(range(1, len(indices) + 1)) == list(snapshot.targets)
    assert f"{len(indices)} interactive" in snapshot.stats


def test_lists_are_listed_as_such(browser: Browser, local_pages: str) -> None:
    text = look(browser, f"{local_pages}/popups.html").page_text
    assert "<input id=far role=combobox aria-label=Far aria-expanded=false readonly=true />" in text
    assert "<div id=inner role=combobox aria-expanded=false />\n\tSelect" in text


def test_covered_elements_lose_their_index_and_keep_their_text(browser: Browser, local_pages: str) -> None:
    snapshot = look(browser, f"{local_pages}/covered.html")
    assert [target.text for target in snapshot.targets.values()] == ["Partly", "Free"]
    assert any(node.text.startswith("Under") for node in snapshot.nodes)


def test_closed_shadow_roots_around_slotted_content_are_found_by_their_listeners(browser: Browser) -> None:
    browser.page_script("""
document.body.innerHTML = '<div id=outer><b>Slotted</b></div>';
const root = outer.attachShadow({mode: 'closed'});
root.innerHTML = '<div><i>Around</i></div><slot></slot>';
const inner = root.firstChild.attachShadow({mode: 'closed'});
inner.innerHTML = '<button>Deep</button><slot></slot>';
inner.addEventListener('click', () => {});
""")
    assert lines(take_snapshot(browser)) == [
        "|SHADOW(closed)|<div />",
        "\t|SHADOW(closed)|<div />",
        "\t\t[]<button />",
        "\t\t\tDeep",
        "\t\tAround",
        "\tSlotted",
    ]


def test_frames_of_the_same_and_another_origin_are_entered(browser: Browser, local_pages: str) -> None:
    snapshot = look(browser, f"{local_pages}/frames.html")
    assert lines(snapshot) == [
        "Above",
        "|IFRAME|<iframe />",
        "\t[]<button />",
        "\t\tInside",
        "|IFRAME|<iframe />",
        "\t[]<button />",
        "\t\tInside",
        "|IFRAME|<iframe />",
    ]
    left, top, right, _ = snapshot.targets[1].box
    assert left == 5 and top == 25 and right > left  # Page coordinates, the frame's border included.


def test_new_elements_are_marked_once(browser: Browser, local_pages: str) -> None:
    first = look(browser, f"{local_pages}/changes.html")
    assert not any(node.is_new for node in first.nodes)
    browser.script("document.body.insertAdjacentHTML('afterbegin', '<button>Fresh</button>')")
    assert take_snapshot(browser, peek=True).page_text.startswith("*[1]<button />\n\tFresh")
    assert take_snapshot(browser).page_text.startswith("*[1]<button />\n\tFresh")
    assert take_snapshot(browser).page_text.startswith("[1]<button />\n\tFresh")


def test_a_second_snapshot_changes_neither_text_nor_fingerprint(browser: Browser, local_pages: str) -> None:
    first = look(browser, f"{local_pages}/elements.html")
    again = take_snapshot(browser)
    assert (first.page_text, first.fingerprint) == (again.page_text, again.fingerprint)
    browser.script("document.getElementById('who').value = 'Grace'")
    assert take_snapshot(browser).fingerprint != first.fingerprint


def test_scroll_containers_and_page_distances(browser: Browser, local_pages: str) -> None:
    snapshot = look(browser, f"{local_pages}/scroll.html")
    assert lines(snapshot)[0].startswith("|SCROLL+1]<div id=box /> (0.0 pages above, 3.")
    assert "Deep inside" not in snapshot.page_text  # Hidden by the container.
    assert "At the end" not in snapshot.page_text  # More than one viewport below.
    assert snapshot.pages_above == 0 and 8 < snapshot.pages_below < 10


def test_observation_has_the_lines_and_a_screenshot_with_boxes(
    browser: Browser, local_pages: str, tmp_path
) -> None:
    browser.goto(f"{local_pages}/elements.html")
    images = ImageStore(tmp_path)
    observation, stats = observe(browser, images)
    plain, _ = observe(browser, images, boxes=False)
    assert observation.title == "Elements" and observation.url.endswith("/elements.html")
    assert [tab.tab_id for tab in observation.tabs] == [observation.current_tab] == ["0001"]
    assert observation.page_text == plain.page_text and re.fullmatch(
        r"2 links, \d+ interactive, \d+ elements", stats
    )
    assert observation.screenshot is not None and plain.screenshot not in (None, observation.screenshot)
    assert Image.open(io.BytesIO(images.get(observation.screenshot))).size == (500, 320)
    link = next(element for element in observation.elements if element.tag == "a")
    assert link.text == "Link text" and link.attributes["href"] == f"{local_pages}/elements.html?q=1"
