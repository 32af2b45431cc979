"""Every action, and lists of them, on elements of all kinds in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException

from collection.browser import actions
from collection.browser.actions import ACCEPT_HINT, execute_list
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext, page_markdown
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import ACTIONS, EXTRA_ACTIONS, Action
from rmsweb_jax.records.schema import ActionResult

NOTHING = ActionContext()
EXTRA = ActionContext(extra_actions=EXTRA_ACTIONS)
TITLE = "document.title"


def do(browser: Browser, name: str, context: ActionContext = EXTRA, **params: object) -> ActionResult:
    return actions.execute(browser, normalize_action({name: params}), context)


def open_page(browser: Browser, url: str) -> None:
    browser.goto(url)
    take_snapshot(browser)


def index_of(browser: Browser, words: str) -> int:
    """The index of the first element whose line, or the text below it, has these words."""
    lines = take_snapshot(browser).page_text.splitlines()
    at = next(number for number, line in enumerate(lines) if words in line.replace("/>", " "))
    while "]<" not in lines[at]:
        at -= 1
    return int(re.findall(r"\d+(?=\]<)", lines[at])[0])


def click(browser: Browser, words: str, **params: object) -> ActionResult:
    return do(browser, "click_element_by_index", index=index_of(browser, words), **params)


def clicks(*indices: int) -> list[Action]:
    return [normalize_action({"click_element_by_index": {"index": index}}) for index in indices]


def texts(results: tuple[ActionResult, ...]) -> list[str]:
    return [result.text for result in results]


def test_every_action_of_the_schema_is_carried_out() -> None:
    assert set(actions._ACTIONS) == set(ACTIONS)


# --- Fields, lists and sliders ---

# An action on an element; what the agent reads, in which N is the element's index; what the page holds then.
Row = tuple[str, str, dict[str, Any], str, str, Any]


def value(name: str) -> str:
    return f"document.getElementById('{name}').value"


def types(name: str, text: str, said: str = "", held: str = "", then: Any = None, **params: Any) -> Row:
    said = said or f"Typed {text!r} into [N]"
    return f"id={name} ", "input_text", {"text": text, **params}, said, held, then


def lists(words: str, options: str) -> Row:
    return words, "get_dropdown_options", {}, f"Options of [N]: {options}", "", None


def picks(words: str, option: str, said: str = "", held: str = TITLE, then: Any = "") -> Row:
    return words, "select_dropdown_option", {"text": option}, said, held, then


def slides(name: str, number: str, said: str = "") -> Row:
    held = f"document.getElementById('{name}').getAttribute('aria-valuenow')"
    return types(
        name, number, f"[N] {said}" if said else f"Set [N] to {number}", "" if said else held, number
    )


# By page, in order.
ROWS: dict[str, tuple[Row, ...]] = {
    "fields": (
        types("name", "new", "", f"{value('name')} + document.getElementById('keys').textContent", "new3"),
        types("name", "er", "", value("name"), "newer", clear_existing=False),
        types("name", "", "", value("name"), ""),
        types("rich", "other", "", "document.getElementById('rich').textContent", "other"),
        types("date", "2024-02-29", "", value("date"), "2024-02-29"),
        types("file", "x", "Element [N] takes no text"),
        ("id=name ", "get_dropdown_options", {}, "Element [N] has no options", "", None),
        lists("Colour", "Red | Green"),
        picks("Colour", "green", "Selected 'Green' in [N]", TITLE, "Green"),
    ),
    "elements": (
        ("id=month ", "click_element_by_index", {}, "Options of [N]: May | June", "", None),
        picks("id=month ", "may", "Selected 'May' in [N]", value("month"), "May"),
        picks("id=month ", "06", "Selected 'June' in [N]", value("month"), "06"),
        picks("id=month ", "July", "[N] has no option 'July'. Options of [N]: May | June", "", None),
    ),
    # Opened to see, and to choose from; what is disabled is not offered.
    "lists": (
        lists("id=size ", "Small | Large"),
        picks(
            "id=size ", "Sold out", "[N] has no option 'Sold out'. Options of [N]: Small | Large", "", None
        ),
        picks("id=size ", "large", "Selected 'Large' in [N]", TITLE, "Large"),
        lists("id=plain ", "One"),
        picks("id=plain ", "Two", "[N] has no option 'Two'. Options of [N]: One", "", None),
        picks("id=plain ", "One", "Selected 'One' in [N]", value("plain"), "One"),
    ),
    "popups": (
        lists("id=far ", " | ".join(f"Row {number}" for number in range(1, 41))),
        picks("id=far ", "Row 33", "Selected 'Row 33' in [N]", TITLE, "far: Row 33"),
        picks(
            "id=near ", "Milk", "[N] has no option 'Milk'. Options of [N]: Choose | Tea | Coffee", "", None
        ),
        picks("id=near ", "Coffee", "Selected 'Coffee' in [N]", TITLE, "near: Coffee"),
        picks("id=inner ", "Two", "Selected 'Two' in [N]", TITLE, "inner: Two"),
        picks("id=key ", "Blue", "Selected 'Blue' in [N]", TITLE, "key: Blue"),
        picks("id=typed ", "Iceland", "Selected 'Iceland' in [N]", TITLE, "typed: Iceland"),
    ),
    "sliders": (
        slides("keys", "75"),
        slides("keys", "0"),
        slides("mouse", "9"),
        slides("stuck", "7", "did not take 7; it is at 2"),
        slides("keys", "72", "did not take 72; it is at 70"),
        slides("keys", "101", "takes numbers from 0 to 100"),
        slides("keys", "loud", "is a slider: type a number"),
        # A drawn slider shows its hidden field.
        (
            *("type=range value=3 aria-label=Drawn min=0 max=10", "input_text", {"text": "8"}),
            *("Typed '8' into [N]", "document.querySelector('input').value", "8"),
        ),
    ),
    # Fields may empty themselves when they have taken it: tags, codes, messages of a chat.
    "typed": (
        types("date", "2026-12-25"),
        types("time", "08:30"),
        types("week", "2027-W05"),
        types("colour", "#ff8800"),
        types("range", "7"),
        types("number", "12.5"),
        types("phone", "2025550143"),
        types("area", "two\nlines"),
        types("rich", "words"),
        types("editor", "words"),
        types("framed", "words"),
        types("plain", "new"),
        types("plain", "er", clear_existing=False),
        types("date", "12/25/2026", "[N] did not take '12/25/2026': write it as YYYY-MM-DD"),
        types("time", "half past", "[N] did not take 'half past': write it as HH:MM, of 24 hours"),
        types("week", "5", "[N] did not take '5': write it as YYYY-Www, as 2027-W05"),
        types("number", "twelve", "[N] did not take 'twelve': write it as a number"),
        types("fixed", "new", "[N] did not take 'new'; it holds 'old'"),
        types(
            *("slider", "40"),
            "[N] does not tell its value: click it, then press ArrowRight with send_keys",
        ),
        types("digits", "abc", "Typed 'abc' into [N], which now holds ''"),
        types("tags", "react,", "Typed 'react,' into [N], which now holds ''"),
        types("odd", "7"),  # A property that the page has defined says nothing about the field.
        types(
            *("moment", "2027-01-05 14:30"),
            "Typed '2027-01-05 14:30' into [N], which now holds '2027-01-05T14:30'",
        ),
        types("most", "25", "Typed '25' into [N], which now holds '10'"),
        types("short", "abcdefgh", "Typed 'abcdefgh' into [N], which now holds 'abcd'"),
        types("range", "70", "Typed '70' into [N], which now holds '10'"),
        types("form", "gone with the form\n"),
    ),
}


@pytest.mark.parametrize("page", ROWS)
def test_fields_lists_and_sliders_take_what_they_can_and_say_what_they_hold(
    browser: Browser, local_pages: str, page: str
) -> None:
    open_page(browser, f"{local_pages}/{page}.html")
    for words, action, params, said, held, then in ROWS[page]:
        if page == "popups":  # A list that is open covers others.
            browser.goto(f"{local_pages}/{page}.html")
        index = index_of(browser, words)
        result = do(browser, action, index=index, **params)
        assert result.text.replace(f"[{index}]", "[N]") == said, (words, params)
        assert result.error != said.startswith(("Set", "Typed", "Selected", "Options")), (words, params)
        assert not held or browser.script(f"return {held}") == then, (words, params)
    assert page != "lists" or "Sold out" in take_snapshot(browser).page_text  # It was opened.


def test_all_options_of_a_list_that_draws_them_late_are_returned(
    browser: Browser, local_pages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collection.browser.elements._SUGGESTION_MS", 5000)  # New rows end the wait.
    open_page(browser, f"{local_pages}/popups.html")
    browser.driver.execute_script("window.late = 2")
    shown = do(browser, "get_dropdown_options", index=index_of(browser, "id=far "))
    assert shown.text == f"Options of [1]: {' | '.join(f'Row {n}' for n in range(1, 41))}"


def test_keys_chords_and_typing_into_the_focused_element(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/fields.html")
    do(browser, "input_text", index=1, text="abc")
    assert do(browser, "send_keys", keys="Control+a").text == "Pressed Control+a"
    do(browser, "send_keys", keys="xyz")
    do(browser, "send_keys", keys="Enter")
    assert browser.driver.title == "sent xyz"
    do(browser, "input_text", index=0, text="again")  # In place of what is there.
    do(browser, "send_keys", keys="Enter")
    assert browser.driver.title == "sent again"


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_fields_in_shadow_trees_are_typed_into(
    browser: Browser, local_pages: str, tmp_path: Path, mode: str
) -> None:
    open_page(browser, f"{local_pages}/shadow_fields.html?{mode}")
    assert f"|SHADOW({mode})|" in take_snapshot(browser).page_text
    for label, text in (("Name", "Ada"), ("Address", "Hill 1\nVienna"), ("Letter", "Dear")):
        assert not do(browser, "input_text", index=index_of(browser, label), text=text).error
    do(browser, "input_text", index=index_of(browser, "Letter"), text=" Bob", clear_existing=False)
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"x")
    upload = {"index": index_of(browser, "Photo"), "path": str(photo)}
    assert not do(browser, "upload_file_to_element", ActionContext(uploads=(photo,)), **upload).error
    assert browser.page_script("return held()") == ["Ada", "Hill 1\nVienna", "Dear Bob", 1]
    assert browser.page_script("return trusted")


# --- Clicks and the mouse ---


def test_click_reports_a_changed_page(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    first = click(browser, "Rename")
    assert (first.text, first.changed, first.error) == ("Clicked [3]", True, False)
    assert not click(browser, "Nothing").changed


def test_click_scrolls_first_and_then_finds_its_point(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/scroll.html")
    do(browser, "scroll", down=True, num_pages=20)
    end = index_of(browser, "At the end")
    browser.script("scrollTo(0, 0)")
    assert not do(browser, "click_element_by_index", index=end).error
    assert browser.driver.title == "end clicked"


def test_missing_covered_and_vanished_elements_are_errors(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    assert do(browser, "click_element_by_index", index=99).text == "Element [99] is not on the page"
    last = index_of(browser, "Last")
    browser.script("document.getElementById('last').style.visibility = 'hidden'")
    hidden = do(browser, "click_element_by_index", index=last)
    assert hidden.error and hidden.text == f"Element [{last}] is covered or hidden"
    browser.script("document.getElementById('last').remove()")
    gone = do(browser, "click_element_by_index", index=last)
    assert gone.error and gone.text == f"Element [{last}] is gone"


CHECKED = {"none": True, "away": False, "zero": True, "reader": True, "wrapped": True, "clear": True}


def test_a_click_on_the_label_is_one_on_the_hidden_box(
    browser: Browser, local_pages: str, tmp_path: Path
) -> None:
    open_page(browser, f"{local_pages}/labels.html")
    for name, checked in CHECKED.items():
        assert not click(browser, f"id={name} ").error
        assert browser.script(f"return document.getElementById('{name}').checked") is checked, name
    file = index_of(browser, "type=file")
    context = ActionContext(files=FileFolder(tmp_path / "files"))
    do(browser, "write_file", context, file_name="a.md", content="one")
    assert not do(browser, "upload_file_to_element", context, index=file, path="a.md").error
    assert "type=file value=a.md" in take_snapshot(browser).page_text
    assert do(browser, "input_text", index=1, text="words").text == "Element [1] takes no text"


# Of scaled frames, the place of an inner one is scaled, too.
DEEPER = """<iframe width=300 height=200 style="margin: 20px; border: 5px solid; transform: scale(.8)"
srcdoc="<button style='margin: 90px 0 0 9em' onclick='top.document.title = `deep`'>Deep</button>"></iframe>"""


def test_clicks_in_shadow_roots_and_in_frames_of_all_origins_and_scales(
    browser: Browser, local_pages: str
) -> None:
    open_page(browser, f"{local_pages}/shadow.html")
    for mode in ("open", "closed"):
        click(browser, f"{mode.capitalize()} button")
        assert browser.driver.title == f"{mode} clicked"
    open_page(browser, f"{local_pages}/frames.html")
    for index, pressed in ((1, "Pressed ?near"), (2, "Pressed ?other")):
        result = do(browser, "click_element_by_index", index=index)
        assert result.changed and take_snapshot(browser).targets[index].text == pressed
    open_page(browser, f"{local_pages}/scaled.html")
    assert take_snapshot(browser).targets[index_of(browser, "Inner")].box[:2] == (160, 100)
    assert not click(browser, "Inner").error and browser.driver.title == "inner"
    browser.enter_frame(browser.driver.find_element("tag name", "iframe"))
    browser.script("document.body.innerHTML = arguments[0]", DEEPER)
    loaded = "return document.querySelector('iframe').contentDocument.querySelector('button')"
    while not browser.script(loaded):
        pass
    browser.leave_frame()
    assert not click(browser, "Deep").error and browser.driver.title == "deep"


def test_areas_of_image_maps_are_clicked(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/image_map.html")
    for name in ("Hall", "Cellar", "Garden", "Attic"):
        if name == "Attic":
            do(browser, "scroll", down=True, num_pages=9)
        assert not click(browser, f"alt={name}").error
        assert browser.script("return location.hash") == f"#{name.lower()}"


def test_the_mouse_drags_clicks_twice_hovers_and_goes_to_a_point(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/pointer.html")
    assert "Help" not in take_snapshot(browser).page_text
    x, y = browser.script(
        "const r = document.querySelector('button').getBoundingClientRect();"
        "return [Math.round(r.left + r.width / 2), Math.round(r.top + r.height / 2)];"
    )
    assert do(browser, "click_coordinates", x=x, y=y).text == f"Clicked ({x}, {y})"
    assert browser.driver.title == "bought"
    assert do(browser, "click_coordinates", x=5000, y=1).error
    write, sleep = index_of(browser, "Write"), index_of(browser, "Sleep")
    assert not do(browser, "drag_element", index=write, onto_index=sleep).error
    assert browser.driver.title.split() == ["Sleep", "Write"]
    assert not do(browser, "double_click_element", index=index_of(browser, "id=cell")).error
    assert browser.driver.title == "twice"
    assert not do(browser, "hover_element", index=index_of(browser, "Menu")).error
    assert "Help" in take_snapshot(browser).page_text


def test_points_take_the_same_actions_as_elements(browser: Browser, local_pages: str) -> None:
    def centre(selector: str) -> dict[str, int]:
        x, y = browser.script(
            f"const r = document.querySelector('{selector}').getBoundingClientRect();"
            "return [Math.round(r.left + r.width / 2), Math.round(r.top + r.height / 2)];"
        )
        return {"x": x, "y": y}

    open_page(browser, f"{local_pages}/pointer.html")
    end = {f"to_{name}": value for name, value in centre("#done").items()}
    assert do(browser, "drag_coordinates", **centre("li"), **end).text.startswith("Dragged (")
    assert browser.driver.title.split() == ["Sleep", "Write"]
    assert do(browser, "click_coordinates", **centre("#cell"), double=True).text.startswith(
        "Double-clicked ("
    )
    assert browser.driver.title == "twice"
    assert do(browser, "hover_coordinates", **centre(".menu")).changed
    assert "Help" in take_snapshot(browser).page_text
    assert do(browser, "scroll_coordinates", x=5000, y=1, down=True, num_pages=1).error
    # The part that scrolls at the point, and not the page.
    open_page(browser, f"{local_pages}/scroll.html")
    inner = centre("#box")
    assert do(browser, "scroll_coordinates", **inner, down=True, num_pages=0.1).changed
    where = "return [scrollY, document.querySelector('#box').scrollTop];"
    assert browser.script(where)[0] == 0 < browser.script(where)[1]


@pytest.mark.parametrize("action", ["hover_element", "click_element_by_index"])
def test_menus_of_style_sheets_open_under_the_mouse(browser: Browser, local_pages: str, action: str) -> None:
    open_page(browser, f"{local_pages}/hover_menus.html")
    # What opens something; not what holds an element with an index, and not what only changes its colour.
    shown = [target.text for target in take_snapshot(browser).targets.values()]
    assert shown == ["Products", "Help", "Size", "Card"]
    do(browser, action, index=index_of(browser, "Size"))
    assert "In inches" in take_snapshot(browser).page_text
    do(browser, action, index=index_of(browser, "Products"))
    click(browser, "Chairs")
    assert browser.script("return location.hash") == "#chairs"


def test_a_button_that_is_redrawn_is_found_again(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/pointer.html")
    index = index_of(browser, "Buy")
    browser.page_script("setInterval(draw, 2000)")
    button = browser.script("return document.querySelector('button')")
    browser.page_script("draw()")
    with pytest.raises(StaleElementReferenceException):
        browser.script("return arguments[0].tagName", button)
    assert not do(browser, "click_element_by_index", index=index).error
    assert browser.driver.title == "bought"
    browser.script("document.getElementById('place').remove()")
    assert do(browser, "click_element_by_index", index=index).text == f"Element [{index}] is gone"


def test_a_page_that_computes_for_long_is_waited_for(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/small.html")
    browser.script(
        """document.body.innerHTML = '<button>Compute</button>';
        document.querySelector('button').onclick = () => {
          const end = performance.now() + 12000;  // More than any limit of ours for less than a page.
          while (performance.now() < end);
          document.body.textContent = 'Computed';
        };"""
    )
    result = click(browser, "Compute")
    assert (result.text, result.error) == ("Clicked [1]", False)
    assert take_snapshot(browser).page_text == "Computed"


# --- Dialogs, tabs and addresses ---


def test_dialogs_are_dismissed_and_reported(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/dialogs.html")
    said = [do(browser, "click_element_by_index", index=index).text for index in (1, 2)]
    # The driver may report a dialog again while it closes.
    assert [text.removesuffix(f". {ACCEPT_HINT}").removesuffix(" (2 times)") for text in said] == [
        "Clicked [1]. Dialog dismissed: 'Careful!'",
        "Clicked [2]. Dialog dismissed: 'Sure?'",
    ]
    assert browser.driver.title == "false"


def test_enter_after_the_action_accepts_its_dialog(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/dialogs.html")
    enter = normalize_action({"send_keys": {"keys": "Enter"}})
    confirm = clicks(2)[0]
    done = texts(execute_list(browser, [confirm, enter, confirm], NOTHING))
    assert done[:2] == ["Clicked [2]. Dialog accepted: 'Sure?'", "Pressed Enter in the dialog"]
    # The third click had no Enter after it.
    assert done[2].startswith("Clicked [2]. Dialog dismissed: 'Sure?'")
    assert browser.driver.title == "false"
    assert texts(execute_list(browser, [confirm, enter], NOTHING))[1] == "Pressed Enter in the dialog"
    assert browser.driver.title == "true"
    assert "Dialog accepted: 'Sure?'" in {one.detail for one in browser.take_incidents()}


def test_links_open_tabs_that_take_focus_unless_ctrl_is_held(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/tabs.html")
    result = do(browser, "click_element_by_index", index=1)
    assert result.text == "Clicked [1], which opened a new tab" and browser.current_tab == "0002"
    assert [tab.title for tab in browser.tabs()] == ["Tabs", "Inner"]
    assert do(browser, "close_tab", tab_id="0002").text == "Closed tab 0002"
    assert browser.current_tab == "0001"
    take_snapshot(browser)
    do(browser, "click_element_by_index", index=2, while_holding_ctrl=True)
    assert browser.current_tab == "0001" and len(browser.tabs()) == 2
    assert not do(browser, "switch_tab", tab_id="0003").error and browser.current_tab == "0003"
    assert do(browser, "switch_tab", tab_id="0009").text == "No tab 0009"


def test_addresses_history_searches_and_failures(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/tabs.html")
    assert do(browser, "go_to_url", url=f"{local_pages}/inner.html").changed
    assert do(browser, "go_back").text == "Went back" and browser.driver.title == "Tabs"
    failed = do(browser, "go_to_url", url="http://nowhere.test/")
    assert failed.error and "ERR_NAME_NOT_RESOLVED" in failed.text
    context = ActionContext(search_urls={"duckduckgo": f"{local_pages}/elements.html?q={{query}}"})
    result = do(browser, "search_engine", context, query="two words")
    assert result.text == "Searched for 'two words'" and browser.driver.current_url.endswith("?q=two+words")
    assert do(browser, "search_engine", context, query="x", engine="bing").error
    new = do(browser, "go_to_url", url=f"{local_pages}/inner.html", new_tab=True)
    assert not new.error and browser.current_tab == "0002" and browser.driver.title == "Inner"


# --- Scrolling and reading ---


def test_scrolling_the_page_and_a_container(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/scroll.html")
    assert do(browser, "scroll", down=False, num_pages=1).text == "Cannot scroll further up"
    inner = do(browser, "scroll", down=True, num_pages=10, frame_element_index=1)
    assert inner.text == "Scrolled down in [1]" and inner.changed
    assert "Deep inside" in take_snapshot(browser).page_text
    do(browser, "scroll", down=True, num_pages=0.5)
    assert browser.script("return scrollY") == 160
    assert do(browser, "scroll_to_text", text="at THE end").changed
    assert "At the end" in take_snapshot(browser).page_text
    missing = do(browser, "scroll_to_text", text="hidden phrase")
    assert not missing.error and missing.text == "Text 'hidden phrase' not found"


def test_the_scroller_of_an_app_shell_is_scrolled_without_an_index(
    browser: Browser, local_pages: str
) -> None:
    open_page(browser, f"{local_pages}/app_shell.html")
    result = do(browser, "scroll", down=True, num_pages=1)
    assert result.text.startswith("Scrolled down in the part of the page that scrolls") and result.changed
    page = take_snapshot(browser).page_text
    assert "Folder 0\n" in page and "Letter 0\n" not in page and "Letter 9\n" in page
    do(browser, "scroll", down=True, num_pages=99)
    result = do(browser, "scroll", down=True, num_pages=1)
    assert result.text.startswith("Cannot scroll further down in the part") and not result.changed
    # Nothing that scrolls is around the middle: the largest part that is visible.
    browser.script("document.querySelector('main').style.overflow = 'hidden'")
    do(browser, "scroll", down=True, num_pages=1)
    assert "Folder 0\n" not in take_snapshot(browser).page_text


WHOLE = """\
# Outer
## Card
**Slotted**
Price 12 EUR
Closed 7 EUR
Contents
Same origin
Two deep
Near
Other origin
End"""


def test_text_in_shadow_roots_and_frames_is_extracted_and_scrolled_to(
    browser: Browser, local_pages: str
) -> None:
    browser.goto(f"{local_pages}/nested.html")
    browser.settle()
    assert page_markdown(browser, links=False) == WHOLE
    for text in ("price 12 eur", "Closed 7 EUR", "Slotted", "Two deep", "Other origin", "End"):
        browser.script("scrollTo(0, 0)")
        result = do(browser, "scroll_to_text", text=text)
        assert result.text == f"Scrolled to {text!r}" and (result.changed or text != "End")
        assert (browser.script("return scrollY") > 1000) == (text == "End")
    for text in ("Hidden", "Price 13"):
        result = do(browser, "scroll_to_text", text=text)
        assert result.text == f"Text {text!r} not found" and not result.changed
    assert browser.script("return document.title") == "Nested"  # Back on the page.


def test_extraction_reads_the_whole_page_as_markdown(browser: Browser, local_pages: str) -> None:
    asked: list[str] = []

    def extract(query: str, content: str) -> str:
        asked.append(content)
        return "an answer"

    open_page(browser, f"{local_pages}/elements.html")
    context = ActionContext(extract=extract)
    assert do(browser, "extract_structured_data", context, query="what?").output == "an answer"
    do(browser, "extract_structured_data", context, query="links?", extract_links=True)
    plain, linked = asked
    assert plain.startswith("# Heading") and "Not displayed" not in plain and "](" not in plain
    assert f"[Link text]({local_pages}/elements.html?q=1)" in linked
    assert do(browser, "extract_structured_data", context, query="x", start_from_char=10**6).error
    assert do(browser, "extract_structured_data", query="x").error


def test_files_stay_in_their_folder(browser: Browser, local_pages: str, tmp_path: Path) -> None:
    context = ActionContext(files=FileFolder(tmp_path / "files"))
    assert do(browser, "write_file", context, file_name="a.md", content="one").changed
    do(browser, "write_file", context, file_name="a.md", content="two", append=True)
    assert do(browser, "replace_file_str", context, file_name="a.md", old_str="two", new_str="2").changed
    assert do(browser, "read_file", context, file_name="a.md").output == "one\n2\n"
    for name in ("../a.md", "/etc/hostname", ".hidden", "a/b"):
        assert do(browser, "write_file", context, file_name=name, content="x").error
    assert do(browser, "read_file", NOTHING, file_name="a.md").text == "There is no file folder"
    open_page(browser, f"{local_pages}/fields.html")
    assert do(browser, "upload_file_to_element", context, index=4, path="a.md").text == "Uploaded a.md to [4]"
    assert browser.script("return document.getElementById('file').files[0].name") == "a.md"
    assert do(browser, "upload_file_to_element", context, index=4, path="/etc/hostname").error
    # A button leads to its hidden field.
    open_page(browser, f"{local_pages}/lists.html")
    pick, plain = index_of(browser, "id=pick"), index_of(browser, "id=plain")
    assert not do(browser, "upload_file_to_element", context, index=pick, path="a.md").error
    assert browser.script("return document.getElementById('hidden').files[0].name") == "a.md"
    assert do(browser, "upload_file_to_element", context, index=plain, path="a.md").error


def test_extra_actions_are_off_unless_they_are_allowed(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/pointer.html")
    given: dict[str, dict[str, object]] = {
        "drag_element": {"index": 1, "onto_index": 2},
        "click_coordinates": {"x": 1, "y": 1},
        "drag_coordinates": {"x": 1, "y": 1, "to_x": 9, "to_y": 9},
        "hover_coordinates": {"x": 1, "y": 1},
        "scroll_coordinates": {"x": 1, "y": 1, "down": True, "num_pages": 1},
        "execute_js": {"code": "1"},
    }
    for name in EXTRA_ACTIONS:
        assert do(browser, name, NOTHING, **given.get(name, {"index": 1})).text == f"{name} is switched off"
    assert do(browser, "execute_js", code="document.title").output == "Pointer"
    assert do(browser, "execute_js", code="nonsense(").error


# --- Lists of actions ---


def test_a_list_runs_to_its_end_on_a_calm_page(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    typed = normalize_action({"input_text": {"index": 5, "text": "hello"}})
    results = execute_list(browser, [*clicks(4), typed, *clicks(6)], NOTHING)
    assert texts(results) == ["Clicked [4]", "Typed 'hello' into [5]", "Clicked [6]"]


@pytest.mark.parametrize(
    ("page", "indices", "reason"),
    [
        ("changes", (1, 6, 4), "something new has appeared"),
        ("changes", (2, 6, 4), "element [6] has changed"),
        ("changes", (3, 6, 4), "element [6] has changed"),
        ("tabs", (2, 1), "the page has changed"),
        ("tabs", (1, 1), "another tab is open now"),
        ("dialogs", (1, 2), "a dialog came up"),
    ],
)
def test_a_list_stops_when_the_page_changes_under_it(
    browser: Browser, local_pages: str, page: str, indices: tuple[int, ...], reason: str
) -> None:
    open_page(browser, f"{local_pages}/{page}.html")
    assert texts(execute_list(browser, clicks(*indices), NOTHING))[1:] == [f"Not done: {reason}"]


def test_a_list_is_cut_at_an_error_before_a_later_done_and_after_ten(
    browser: Browser, local_pages: str
) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    assert len(execute_list(browser, clicks(9, 1), NOTHING)) == 1
    done = normalize_action({"done": {"text": "ok", "success": True}})
    assert texts(execute_list(browser, [*clicks(4), done, *clicks(4)], NOTHING)) == ["Clicked [4]"]
    assert texts(execute_list(browser, [done], NOTHING)) == ["Done"]
    waits = [normalize_action({"wait": {"seconds": 0}})] * 12
    assert len(execute_list(browser, waits, NOTHING)) == 10
