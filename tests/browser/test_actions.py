"""Every action, and lists of them, in a real browser."""

from __future__ import annotations

import pathlib

import pytest

from collection.browser import actions
from collection.browser.actions import ACCEPT_HINT, execute_list
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import ACTIONS, Action
from rmsweb_jax.records.schema import ActionResult

NOTHING = ActionContext()


def do(browser: Browser, name: str, context: ActionContext = NOTHING, **params: object) -> ActionResult:
    return actions.execute(browser, normalize_action({name: params}), context)


def open_page(browser: Browser, url: str) -> None:
    browser.goto(url)
    take_snapshot(browser)


def index_of(browser: Browser, text: str) -> int:
    snapshot = browser.snapshot or take_snapshot(browser)
    return next(index for index, target in snapshot.targets.items() if target.text == text)


def clicks(*indices: int) -> list[Action]:
    return [normalize_action({"click_element_by_index": {"index": index}}) for index in indices]


def texts(results: tuple[ActionResult, ...]) -> list[str]:
    return [result.text for result in results]


def test_every_action_of_the_schema_is_carried_out() -> None:
    assert set(actions._ACTIONS) == set(ACTIONS)


def test_click_reports_a_changed_page(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    first = do(browser, "click_element_by_index", index=index_of(browser, "Rename"))
    assert (first.text, first.changed, first.error) == ("Clicked [3]", True, False)
    take_snapshot(browser)
    assert not do(browser, "click_element_by_index", index=index_of(browser, "Nothing")).changed


def test_click_scrolls_first_and_then_finds_its_point(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/scroll.html")
    do(browser, "scroll", down=True, num_pages=20)
    take_snapshot(browser)
    end = index_of(browser, "At the end")
    browser.script("scrollTo(0, 0)")
    assert not do(browser, "click_element_by_index", index=end).error
    assert browser.driver.title == "end clicked"


@pytest.mark.parametrize("name", ["open", "closed"])
def test_click_in_a_shadow_root(browser: Browser, local_pages: str, name: str) -> None:
    open_page(browser, f"{local_pages}/shadow.html")
    do(browser, "click_element_by_index", index=index_of(browser, f"{name.capitalize()} button"))
    assert browser.driver.title == f"{name} clicked"


@pytest.mark.parametrize(("index", "pressed"), [(1, "Pressed ?near"), (2, "Pressed ?other")])
def test_click_in_a_frame(browser: Browser, local_pages: str, index: int, pressed: str) -> None:
    open_page(browser, f"{local_pages}/frames.html")
    result = do(browser, "click_element_by_index", index=index)
    assert result.changed and take_snapshot(browser).targets[index].text == pressed


def test_missing_covered_and_vanished_elements_are_errors(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    assert do(browser, "click_element_by_index", index=99).text == "Element [99] is not on the page"
    last = index_of(browser, "Last")
    browser.script("document.getElementById('last').style.visibility = 'hidden'")
    assert do(browser, "click_element_by_index", index=last).text == f"Element [{last}] is covered or hidden"
    browser.script("document.getElementById('last').remove()")
    gone = do(browser, "click_element_by_index", index=last)
    assert gone.error and gone.text == f"Element [{last}] is gone"


def test_typing_replaces_or_appends_with_key_events(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/fields.html")
    assert do(browser, "input_text", index=1, text="new").text == "Typed 'new' into [1]"
    assert browser.script("return document.getElementById('name').value") == "new"
    assert browser.script("return document.getElementById('keys').textContent") == "3"
    do(browser, "input_text", index=1, text="er", clear_existing=False)
    assert browser.script("return document.getElementById('name').value") == "newer"
    do(browser, "input_text", index=1, text="")
    assert browser.script("return document.getElementById('name').value") == ""


def test_typing_into_rich_text_dates_and_the_focused_element(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/fields.html")
    do(browser, "input_text", index=2, text="other")
    assert browser.script("return document.getElementById('rich').textContent") == "other"
    do(browser, "input_text", index=0, text="again")
    assert browser.script("return document.getElementById('rich').textContent") == "again"
    do(browser, "input_text", index=3, text="2024-02-29")
    assert browser.script("return document.getElementById('date').value") == "2024-02-29"
    assert do(browser, "input_text", index=4, text="x").text == "Element [4] takes no text"


def test_keys_and_chords(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/fields.html")
    do(browser, "input_text", index=1, text="abc")
    assert do(browser, "send_keys", keys="Control+a").text == "Pressed Control+a"
    do(browser, "send_keys", keys="xyz")
    do(browser, "send_keys", keys="Enter")
    assert browser.driver.title == "sent xyz"


def test_native_select_shows_and_takes_options(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/elements.html")
    index = next(index for index, target in browser.snapshot.targets.items() if target.tag == "select")
    assert do(browser, "click_element_by_index", index=index).text == f"Options of [{index}]: May | June"
    assert (
        do(browser, "select_dropdown_option", index=index, text="may").text == f"Selected 'May' in [{index}]"
    )
    assert do(browser, "select_dropdown_option", index=index, text="06").changed
    miss = do(browser, "select_dropdown_option", index=index, text="July")
    assert miss.error and miss.text.endswith("May | June")


def test_aria_list_shows_and_takes_options(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/fields.html")
    index = index_of(browser, "Colour")
    assert do(browser, "get_dropdown_options", index=index).text == f"Options of [{index}]: Red | Green"
    do(browser, "select_dropdown_option", index=index, text="green")
    assert browser.driver.title == "Green"
    assert do(browser, "get_dropdown_options", index=1).error


def test_dialogs_are_dismissed_and_reported(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/dialogs.html")
    texts = [do(browser, "click_element_by_index", index=index).text for index in (1, 2)]
    # The driver may report a dialog again while it closes.
    texts = [text.removesuffix(f". {ACCEPT_HINT}").removesuffix(" (2 times)") for text in texts]
    assert texts[0] == "Clicked [1]. Dialog dismissed: 'Careful!'"
    assert texts[1] == "Clicked [2]. Dialog dismissed: 'Sure?'"
    assert browser.driver.title == "false"


def test_enter_after_the_action_accepts_its_dialog(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/dialogs.html")
    enter = normalize_action({"send_keys": {"keys": "Enter"}})
    click = clicks(2)[0]
    done = texts(execute_list(browser, [click, enter, click], NOTHING))
    assert done[:2] == ["Clicked [2]. Dialog accepted: 'Sure?'", "Pressed Enter in the dialog"]
    # The third click had no Enter after it.
    assert done[2].startswith("Clicked [2]. Dialog dismissed: 'Sure?'")
    assert browser.driver.title == "false"
    assert texts(execute_list(browser, [click, enter], NOTHING))[1] == "Pressed Enter in the dialog"
    assert browser.driver.title == "true"
    assert "Dialog accepted: 'Sure?'" in {one.detail for one in browser.take_incidents()}


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


def test_addresses_history_and_failures(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/tabs.html")
    assert do(browser, "go_to_url", url=f"{local_pages}/inner.html").changed
    assert do(browser, "go_back").text == "Went back" and browser.driver.title == "Tabs"
    failed = do(browser, "go_to_url", url="http://nowhere.test/")
    assert failed.error and "ERR_NAME_NOT_RESOLVED" in failed.text
    assert do(browser, "go_to_url", url="file:///etc/hostname").error
    new = do(browser, "go_to_url", url=f"{local_pages}/inner.html", new_tab=True)
    assert not new.error and browser.current_tab == "0002" and browser.driver.title == "Inner"


def test_search_uses_the_configured_engine(browser: Browser, local_pages: str) -> None:
    context = ActionContext(search_urls={"duckduckgo": f"{local_pages}/elements.html?q={{query}}"})
    result = do(browser, "search_engine", context, query="two words")
    assert result.text == "Searched for 'two words'" and browser.driver.current_url.endswith("?q=two+words")
    assert do(browser, "search_engine", context, query="x", engine="bing").error


def test_files_stay_in_their_folder(browser: Browser, local_pages: str, tmp_path: pathlib.Path) -> None:
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


def test_extraction_reads_the_whole_page_as_markdown(browser: Browser, local_pages: str) -> None:
    asked: list[tuple[str, str]] = []

    def extract(query: str, content: str) -> str:
        asked.append((query, content))
        return "an answer"

    open_page(browser, f"{local_pages}/elements.html")
    context = ActionContext(extract=extract)
    assert do(browser, "extract_structured_data", context, query="what?").output == "an answer"
    do(browser, "extract_structured_data", context, query="links?", extract_links=True)
    (_, plain), (_, linked) = asked
    assert plain.startswith("# Heading") and "Not displayed" not in plain and "](" not in plain
    assert f"[Link text]({local_pages}/elements.html?q=1)" in linked
    assert do(browser, "extract_structured_data", context, query="x", start_from_char=10**6).error
    assert do(browser, "extract_structured_data", query="x").error


def test_scripts_run_only_when_allowed(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/elements.html")
    assert do(browser, "execute_js", code="document.title").text == "execute_js is switched off"
    allowed = ActionContext(extra_actions=("execute_js",))
    assert do(browser, "execute_js", allowed, code="document.title").output == "Elements"
    assert do(browser, "execute_js", allowed, code="nonsense(").error


def test_a_list_runs_to_its_end_on_a_calm_page(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    typed = normalize_action({"input_text": {"index": 5, "text": "hello"}})
    results = execute_list(browser, [*clicks(4), typed, *clicks(6)], NOTHING)
    assert texts(results) == ["Clicked [4]", "Typed 'hello' into [5]", "Clicked [6]"]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (1, "Not done: something new has appeared"),
        (2, "Not done: element [6] has changed"),
        (3, "Not done: element [6] has changed"),
    ],
)
def test_a_list_stops_when_the_page_changes_under_it(
    browser: Browser, local_pages: str, first: int, reason: str
) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    assert texts(execute_list(browser, clicks(first, 6, 4), NOTHING)) == [f"Clicked [{first}]", reason]


def test_a_list_stops_at_another_page_a_dialog_and_an_error(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/tabs.html")
    assert texts(execute_list(browser, clicks(2, 1), NOTHING))[1] == "Not done: the page has changed"
    open_page(browser, f"{local_pages}/tabs.html")
    assert texts(execute_list(browser, clicks(1, 1), NOTHING))[1] == "Not done: another tab is open now"
    browser.reset()
    open_page(browser, f"{local_pages}/dialogs.html")
    assert texts(execute_list(browser, clicks(1, 2), NOTHING))[1] == "Not done: a dialog came up"
    take_snapshot(browser)
    assert len(execute_list(browser, clicks(9, 1), NOTHING)) == 1


def test_a_list_is_cut_before_a_later_done_and_after_ten(browser: Browser, local_pages: str) -> None:
    open_page(browser, f"{local_pages}/changes.html")
    done = normalize_action({"done": {"text": "ok", "success": True}})
    assert texts(execute_list(browser, [*clicks(4), done, *clicks(4)], NOTHING)) == ["Clicked [4]"]
    assert texts(execute_list(browser, [done], NOTHING)) == ["Done"]
    waits = [normalize_action({"wait": {"seconds": 0}})] * 12
    assert len(execute_list(browser, waits, NOTHING)) == 10
