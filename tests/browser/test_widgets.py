"""Widgets that pages make themselves, with the structure of those of known libraries."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import pytest
from selenium.common.exceptions import StaleElementReferenceException

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ActionResult
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
