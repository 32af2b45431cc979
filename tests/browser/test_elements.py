"""Elements of all kinds, by their lines: labels, lists, fields, sliders, menus, maps, frames, shadows."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ActionResult
from tests.browser.test_actions import open_page
from tests.loopback import PageHandler, serving

EXTRA = ActionContext(extra_actions=EXTRA_ACTIONS)

# Opens a test page and takes a snapshot.
Open = Callable[[str], str]


@pytest.fixture
def opened(browser: Browser, local_pages: str) -> Open:
    def show(name: str) -> str:
        browser.goto(f"{local_pages}/{name}.html")
        return take_snapshot(browser).page_text

    return show


def do(browser: Browser, name: str, context: ActionContext = EXTRA, **params: object) -> ActionResult:
    return execute(browser, normalize_action({name: params}), context)


def index_of(browser: Browser, words: str) -> int:
    """The index of the first element whose line, or the text below it, has these words."""
    lines = take_snapshot(browser).page_text.splitlines()
    at = next(number for number, line in enumerate(lines) if words in line)
    while "]<" not in lines[at]:
        at -= 1
    return int(re.findall(r"\d+(?=\]<)", lines[at])[0])


def test_lists_are_listed_as_such(opened: Open) -> None:
    text = opened("popups")
    assert "<input id=far role=combobox aria-label=Far aria-expanded=false readonly=true />" in text
    assert "<div id=inner role=combobox aria-expanded=false />\n\tSelect" in text


# Of scaled frames, the place of an inner one is scaled, too.
DEEPER = """<iframe width=300 height=200 style="margin: 20px; border: 5px solid; transform: scale(.8)"
srcdoc="<button style='margin: 90px 0 0 9em' onclick='top.document.title = `deep`'>Deep</button>"></iframe>"""
CHOICES = {"far": "Row 33", "near": "Coffee", "inner": "Two", "key": "Blue"}


@pytest.mark.parametrize("name,option", CHOICES.items())
def test_an_option_is_chosen(browser: Browser, opened: Open, name: str, option: str) -> None:
    opened("popups")
    chosen = do(browser, "select_dropdown_option", index=index_of(browser, f"id={name} "), text=option)
    assert not chosen.error, chosen.text
    assert browser.driver.title == f"{name}: {option}"


@pytest.mark.parametrize("late", [0, 2], ids=["at once", "late"])
def test_all_options_of_a_list_that_shows_some_are_returned(
    browser: Browser, opened: Open, late: int
) -> None:
    opened("popups")
    browser.driver.execute_script(f"window.late = {late}")
    shown = do(browser, "get_dropdown_options", index=index_of(browser, "id=far "))
    assert shown.text == f"Options of [1]: {' | '.join(f'Row {n}' for n in range(1, 41))}"


def test_options_that_come_with_typing_are_chosen(browser: Browser, opened: Open) -> None:
    opened("popups")
    index = index_of(browser, "id=typed ")
    assert not do(browser, "select_dropdown_option", index=index, text="Iceland").error
    assert browser.driver.title == "typed: Iceland"
    missed = do(browser, "select_dropdown_option", index=index_of(browser, "id=near "), text="Milk")
    assert missed.error and missed.text.endswith(": Choose | Tea | Coffee")


@pytest.mark.parametrize("name,value", [("keys", "75"), ("keys", "0"), ("mouse", "9")])
def test_a_slider_takes_a_number(browser: Browser, opened: Open, name: str, value: str) -> None:
    opened("sliders")
    moved = do(browser, "input_text", index=index_of(browser, f"id={name} "), text=value)
    assert not moved.error, moved.text
    assert browser.script(f"return document.getElementById('{name}').getAttribute('aria-valuenow')") == value


def test_a_drawn_slider_shows_its_hidden_field(browser: Browser, opened: Open) -> None:
    opened("sliders")
    index = index_of(browser, "type=range value=3 aria-label=Drawn min=0 max=10")
    assert not do(browser, "input_text", index=index, text="8").error
    assert browser.script("return document.querySelector('input').value") == "8"


@pytest.mark.parametrize(
    "name,text,problem",
    [
        ("stuck", "7", "did not take 7; it is at 2"),
        ("keys", "72", "did not take 72; it is at 70"),
        ("keys", "101", "takes numbers from 0 to 100"),
        ("keys", "loud", "is a slider: type a number"),
    ],
)
def test_a_number_that_a_slider_does_not_take_is_an_error(
    browser: Browser, opened: Open, name: str, text: str, problem: str
) -> None:
    opened("sliders")
    index = index_of(browser, f"id={name} ")
    result = do(browser, "input_text", index=index, text=text)
    assert result.error and result.text == f"[{index}] {problem}"


def test_an_item_is_dragged(browser: Browser, opened: Open) -> None:
    opened("pointer")
    write, sleep = index_of(browser, "Write"), index_of(browser, "Sleep")
    assert not do(browser, "drag_element", index=write, onto_index=sleep).error
    assert browser.driver.title.split() == ["Sleep", "Write"]


def test_a_cell_is_clicked_twice_and_a_menu_opens_under_the_mouse(browser: Browser, opened: Open) -> None:
    assert "Help" not in opened("pointer")
    assert not do(browser, "double_click_element", index=index_of(browser, "id=cell")).error
    assert browser.driver.title == "twice"
    assert not do(browser, "hover_element", index=index_of(browser, "Menu")).error
    assert "Help" in take_snapshot(browser).page_text


def test_a_point_is_clicked(browser: Browser, opened: Open) -> None:
    opened("pointer")
    x, y = browser.script(
        "const r = document.querySelector('button').getBoundingClientRect();"
        "return [Math.round(r.left + r.width / 2), Math.round(r.top + r.height / 2)];"
    )
    assert do(browser, "click_coordinates", x=x, y=y).text == f"Clicked ({x}, {y})"
    assert browser.driver.title == "bought"
    assert do(browser, "click_coordinates", x=5000, y=1).error


@pytest.mark.parametrize("name", EXTRA_ACTIONS)
def test_extra_actions_are_off_by_default(browser: Browser, opened: Open, name: str) -> None:
    opened("pointer")
    params = {"drag_element": {"index": 1, "onto_index": 2}, "click_coordinates": {"x": 1, "y": 1}}
    given = params.get(name, {"code": "1"} if name == "execute_js" else {"index": 1})
    assert do(browser, name, ActionContext(), **given).text == f"{name} is switched off"


def test_areas_of_an_image_map_are_clicked(browser: Browser, opened: Open) -> None:
    assert "<area alt=Kitchen />" in opened("pointer")
    for name in ("Hall", "Kitchen"):
        assert not do(browser, "click_element_by_index", index=index_of(browser, f"alt={name}")).error
        assert browser.driver.current_url.endswith(f"#{name.lower()}")


def test_a_scaled_frame_is_used(browser: Browser, opened: Open) -> None:
    opened("scaled")
    index = index_of(browser, "Inner")
    assert take_snapshot(browser).targets[index].box[:2] == (160, 100)
    assert not do(browser, "click_element_by_index", index=index).error
    assert browser.driver.title == "inner"


def test_a_scaled_frame_in_a_scaled_frame_is_used(browser: Browser, opened: Open) -> None:
    opened("scaled")
    browser.enter_frame(browser.driver.find_element("tag name", "iframe"))
    browser.script("document.body.innerHTML = arguments[0]", DEEPER)
    browser.leave_frame()
    assert not do(browser, "click_element_by_index", index=index_of(browser, "Deep")).error
    assert browser.driver.title == "deep"


def test_a_button_that_is_redrawn_is_found_again(browser: Browser, opened: Open) -> None:
    opened("pointer")
    index = index_of(browser, "Buy")
    browser.page_script("setInterval(draw, 150)")
    button = browser.script("return document.querySelector('button')")
    browser.page_script("draw()")
    with pytest.raises(StaleElementReferenceException):
        browser.script("return arguments[0].tagName", button)
    assert not do(browser, "click_element_by_index", index=index).error
    assert browser.driver.title == "bought"
    browser.script("document.getElementById('place').remove()")
    assert do(browser, "click_element_by_index", index=index).text == f"Element [{index}] is gone"


class _Endless(PageHandler):
    """A page with a link to one whose script never comes."""

    release = threading.Event()

    def get(self) -> None:
        if self.path == "/endless.js":
            self.release.wait(30)
        elif self.path == "/slow":
            self.reply("<title>Slow</title><button>Buy</button><script src=/endless.js></script>Later")
        else:
            self.reply("<title>Start</title><a href=/slow>Slow page</a>")


@pytest.fixture
def endless() -> Iterator[str]:
    _Endless.release.clear()
    with serving(_Endless) as address:
        yield f"http://{address}"
        _Endless.release.set()


def test_a_page_with_an_endless_script_is_used_after_the_limit(endless: str) -> None:
    with Browser(BrowserConfig(width=500, height=320, page_load_seconds=1.5, quiet_ms=20)) as browser:
        browser.goto(endless)
        take_snapshot(browser)
        result = do(browser, "click_element_by_index", index=1)
        assert not result.error, result.text
        assert "Buy" in take_snapshot(browser).page_text


LABELS = """\
[1]<label id=none type=checkbox />
\tNone
[2]<label id=away type=checkbox checked=true />
\tAway
[3]<label id=zero name=size type=radio value=s />
\tZero
[4]<label id=reader name=size type=radio value=m />
\tReader
[5]<label id=wrapped type=checkbox />
\tWrapped
[6]<input id=clear type=checkbox />
Clear
[7]<label id=file type=file />
\tChoose a file
[8]<input id=seen type=checkbox />
Seen
Off
Name
[9]<input id=name />"""


@pytest.fixture
def labels(browser, local_pages):
    browser.goto(f"{local_pages}/labels.html")
    return browser


def test_they_are_listed_by_their_labels(labels):
    assert take_snapshot(labels).page_text == LABELS


CHECKED = {1: "none", 3: "zero", 4: "reader", 5: "wrapped", 6: "clear", 8: "seen"}


@pytest.mark.parametrize("index,name", [*CHECKED.items(), (2, "away")])
def test_a_click_on_the_label_is_one_on_the_box(labels, index, name):
    take_snapshot(labels)
    assert not do(labels, "click_element_by_index", index=index).error
    assert labels.script(f"return document.getElementById('{name}').checked") is (index in CHECKED)


def test_a_file_goes_to_the_field_behind_the_label(labels, tmp_path):
    context = ActionContext(files=FileFolder(tmp_path / "files"))
    take_snapshot(labels)
    do(labels, "write_file", context, file_name="a.md", content="one")
    assert not do(labels, "upload_file_to_element", context, index=7, path="a.md").error
    assert labels.script("return document.getElementById('file').files[0].name") == "a.md"
    assert "type=file value=a.md" in take_snapshot(labels).page_text


def test_a_label_takes_no_text(labels):
    take_snapshot(labels)
    result = do(labels, "input_text", index=1, text="words")
    assert result.error and result.text == "Element [1] takes no text"


SIZE, PLAIN, PICK = 1, 2, 3


@pytest.fixture
def lists(browser: Browser, local_pages: str) -> Browser:
    browser.goto(f"{local_pages}/lists.html")
    take_snapshot(browser)
    return browser


def test_a_list_is_opened_to_see_its_options(lists: Browser) -> None:
    shown = do(lists, "get_dropdown_options", index=SIZE)
    assert shown.text == "Options of [1]: Small | Large" and shown.changed
    assert "Sold out" in take_snapshot(lists).page_text  # It is open now.


def test_a_list_is_opened_to_choose_from_it(lists: Browser) -> None:
    assert do(lists, "select_dropdown_option", index=SIZE, text="large").text == "Selected 'Large' in [1]"
    assert lists.driver.title == "Large"


def test_an_unknown_option_error_lists_the_options(lists: Browser) -> None:
    missed = do(lists, "select_dropdown_option", index=SIZE, text="Sold out")
    assert missed.error and missed.text == "[1] has no option 'Sold out'. Options of [1]: Small | Large"


def test_disabled_options_are_not_offered(lists: Browser) -> None:
    assert do(lists, "get_dropdown_options", index=PLAIN).text == "Options of [2]: One"
    assert do(lists, "select_dropdown_option", index=PLAIN, text="Two").error
    assert not do(lists, "select_dropdown_option", index=PLAIN, text="One").error
    assert lists.script("return document.getElementById('plain').value") == "One"


def test_a_button_leads_to_its_hidden_file_field(lists: Browser, tmp_path: Path) -> None:
    context = ActionContext(files=FileFolder(tmp_path / "files"))
    do(lists, "write_file", context, file_name="a.md", content="one")
    assert not do(lists, "upload_file_to_element", context, index=PICK, path="a.md").error
    assert lists.script("return document.getElementById('hidden').files[0].name") == "a.md"
    assert do(lists, "upload_file_to_element", context, index=PLAIN, path="a.md").error


STATES = """\
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
    assert take_snapshot(browser).page_text == STATES


@pytest.fixture
def fields(browser, local_pages):
    browser.goto(f"{local_pages}/typed.html")
    return browser


def enter(browser, name, text, **params):
    """Types into the field of that id; returns the result with the field's number as N."""
    snapshot = take_snapshot(browser)
    index = next(number for number, line in lines(snapshot) if f"id={name} " in f"{line} ")
    result = do(browser, "input_text", index=index, text=text, **params)
    return result.error, result.text.replace(f"[{index}]", "[N]")


def lines(snapshot):
    for line in snapshot.page_text.splitlines():
        head, bracket, rest = line.strip().lstrip("*").partition("]")
        if bracket and head.startswith("["):
            yield int(head[1:]), rest.replace("<", " ").replace("/>", " ").replace(">", " ")


@pytest.mark.parametrize(
    "name,text",
    [
        ("date", "2026-12-25"),
        ("time", "08:30"),
        ("week", "2027-W05"),
        ("colour", "#ff8800"),
        ("range", "7"),
        ("number", "12.5"),
        ("phone", "2025550143"),
        ("plain", "new"),
        ("area", "two\nlines"),
        ("rich", "words"),
        ("editor", "words"),
        ("framed", "words"),
        ("form", "gone with the form\n"),
    ],
)
def test_what_is_taken_is_reported_as_typed(fields, name, text):
    assert enter(fields, name, text) == (False, f"Typed {text!r} into [N]")


@pytest.mark.parametrize(
    "name,text,hint",
    [
        ("date", "12/25/2026", "YYYY-MM-DD"),
        ("time", "half past eight", "HH:MM, of 24 hours"),
        ("week", "5", "YYYY-Www, as 2027-W05"),
        ("number", "twelve", "a number"),
    ],
)
def test_a_field_that_wants_another_format_says_which(fields, name, text, hint):
    assert enter(fields, name, text) == (True, f"[N] did not take {text!r}: write it as {hint}")


def test_a_text_that_is_not_taken_is_an_error(fields):
    assert enter(fields, "fixed", "new") == (True, "[N] did not take 'new'; it holds 'old'")
    assert enter(fields, "slider", "40") == (
        True,
        "[N] does not tell its value: click it, then press ArrowRight with send_keys",
    )


def test_a_text_that_is_changed_is_shown(fields):
    """Fields may empty themselves when they have taken it: tags, codes, messages of a chat."""
    assert enter(fields, "digits", "abc") == (False, "Typed 'abc' into [N], which now holds ''")
    assert enter(fields, "tags", "react,") == (False, "Typed 'react,' into [N], which now holds ''")
    # A property that the page has defined says nothing about the field.
    assert enter(fields, "odd", "7") == (False, "Typed '7' into [N]")
    assert enter(fields, "moment", "2027-01-05 14:30") == (
        False,
        "Typed '2027-01-05 14:30' into [N], which now holds '2027-01-05T14:30'",
    )
    assert enter(fields, "most", "25") == (False, "Typed '25' into [N], which now holds '10'")
    assert enter(fields, "short", "abcdefgh") == (False, "Typed 'abcdefgh' into [N], which now holds 'abcd'")
    assert enter(fields, "range", "70") == (False, "Typed '70' into [N], which now holds '10'")
    assert enter(fields, "plain", "er", clear_existing=False) == (False, "Typed 'er' into [N]")


def labelled(browser: Browser, label: str) -> int:
    snapshot = browser.snapshot or take_snapshot(browser)
    return next(index for index, target in snapshot.targets.items() if label in target.label)


def test_the_scroller_of_an_app_shell_is_scrolled_without_an_index(
    browser: Browser, local_pages: str
) -> None:
    open_page(browser, f"{local_pages}/app_shell.html")
    result = do(browser, "scroll", down=True, num_pages=1)
    assert result.text.startswith("Scrolled down in the part of the page that scrolls") and result.changed
    page = take_snapshot(browser).page_text
    assert "Folder 0\n" in page and "Letter 0\n" not in page and "Letter 9\n" in page
    do(browser, "scroll", down=True, num_pages=99)
    assert "Letter 89" in take_snapshot(browser).page_text
    result = do(browser, "scroll", down=True, num_pages=1)
    assert result.text.startswith("Cannot scroll further down in the part") and not result.changed
    do(browser, "scroll", down=False, num_pages=99)
    assert "Letter 0\n" in take_snapshot(browser).page_text
    # Nothing that scrolls is around the middle: the largest part that is visible.
    browser.script("document.querySelector('main').style.overflow = 'hidden'")
    do(browser, "scroll", down=True, num_pages=1)
    assert "Folder 0\n" not in take_snapshot(browser).page_text


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_fields_in_shadow_trees_are_typed_into(
    browser: Browser, local_pages: str, tmp_path: Path, mode: str
) -> None:
    open_page(browser, f"{local_pages}/shadow_fields.html?{mode}")
    assert f"|SHADOW({mode})|" in take_snapshot(browser).page_text
    for label, text in (("Name", "Ada"), ("Address", "Hill 1\nVienna"), ("Letter", "Dear")):
        assert not do(browser, "input_text", index=labelled(browser, label), text=text).error
    letter = labelled(browser, "Letter")
    do(browser, "input_text", index=letter, text=" Bob", clear_existing=False)
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"x")
    upload = {"index": labelled(browser, "Photo"), "path": str(photo)}
    assert not do(browser, "upload_file_to_element", ActionContext(uploads=(photo,)), **upload).error
    assert browser.page_script("return held()") == ["Ada", "Hill 1\nVienna", "Dear Bob", 1]
    assert browser.page_script("return trusted")


@pytest.mark.parametrize("action", ["hover_element", "click_element_by_index"])
def test_menus_of_style_sheets_open_under_the_mouse(browser: Browser, local_pages: str, action: str) -> None:
    open_page(browser, f"{local_pages}/hover_menus.html")
    texts = [target.text for target in take_snapshot(browser).targets.values()]
    # What opens something; not what holds an element with an index, and not what only changes its colour.
    assert texts == ["Products", "Help", "Size", "Card"]
    do(browser, action, index=index_of(browser, "Size"))
    assert "In inches" in take_snapshot(browser).page_text
    do(browser, action, index=index_of(browser, "Products"))
    take_snapshot(browser)
    do(browser, "click_element_by_index", index=index_of(browser, "Chairs"))
    assert browser.script("return location.hash") == "#chairs"


@pytest.mark.parametrize("name", ["Hall", "Cellar", "Garden", "Attic"])
def test_areas_of_image_maps_are_clicked(browser: Browser, local_pages: str, name: str) -> None:
    open_page(browser, f"{local_pages}/image_map.html")
    if name == "Attic":
        do(browser, "scroll", down=True, num_pages=9)
        take_snapshot(browser)
    elements = take_snapshot(browser).elements
    index = next(one.index for one in elements if one.attributes.get("alt") == name)
    assert not do(browser, "click_element_by_index", index=index).error
    assert browser.script("return location.hash") == f"#{name.lower()}"


def test_a_page_that_computes_for_long_is_waited_for(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/small.html")
    browser.script(
        """document.body.innerHTML = '<button>Compute</button>';
        document.querySelector('button').onclick = () => {
          const end = performance.now() + 19000;
          while (performance.now() < end);
          document.body.textContent = 'Computed';
        };"""
    )
    take_snapshot(browser)
    result = do(browser, "click_element_by_index", index=1)
    assert (result.text, result.error) == ("Clicked [1]", False)
    assert take_snapshot(browser).page_text == "Computed"
