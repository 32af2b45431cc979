"""A page that watches its own world finds nothing of ours in it, after looks and after readings."""

from __future__ import annotations

import html
import json
import re
import subprocess
from typing import Any

import pytest

from collection.browser.actions import execute
from collection.browser.chromium import FLAGS, find_programs
from collection.browser.config import BrowserConfig
from collection.browser.pages import ActionContext, page_markdown
from collection.browser.session import Browser
from collection.browser.snapshot import observe, take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore


@pytest.fixture(scope="module")
def bare(local_pages: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The report of a Chromium that nothing drives."""
    chromium, _ = find_programs(BrowserConfig())
    folder = tmp_path_factory.mktemp("profile")
    flags = (*FLAGS, "--headless=new", f"--user-data-dir={folder}", "--window-size=500,320", "--dump-dom")
    command = (chromium, *flags, f"{local_pages}/own_world.html?bare")
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    report = re.search(r'<pre id="report" hidden="">(.*?)</pre>', output, re.S)
    assert report is not None
    return json.loads(html.unescape(report[1]))


def do(browser: Browser, action: str, **params: object) -> str:
    return execute(browser, normalize_action({action: params}), ActionContext()).text


def report(browser: Browser) -> dict[str, Any]:
    browser.script("document.dispatchEvent(new Event('report'))")
    return json.loads(browser.script("return document.getElementById('report').textContent"))


def test_a_look_and_reading_for_an_action_leave_nothing_in_the_page(
    browser: Browser, local_pages: str, bare: dict[str, object], tmp_path
) -> None:
    browser.goto(f"{local_pages}/own_world.html")
    browser.settle()  # The page watches from the end of its loading on.
    observation, _ = observe(browser, ImageStore(tmp_path))
    for text in ("Heading", "Open", "Closed", "Inside"):
        assert text in observation.page_text
    browser.settle()
    snapshot = take_snapshot(browser)
    index = {target.label[0] or target.text: number for number, target in snapshot.targets.items()}
    assert "Closed" in page_markdown(browser, links=True)
    options = f"Options of [{index['list']}]: One | Two"
    assert do(browser, "get_dropdown_options", index=index["list"]) == options
    assert do(browser, "input_text", index=index["box"], text="x").endswith("takes no text")
    assert do(browser, "select_dropdown_option", index=index["list"], text="Ten").startswith("[")
    assert do(browser, "scroll", down=False, num_pages=1) == "Cannot scroll further up"
    assert do(browser, "scroll_to_text", text="nowhere") == "Text 'nowhere' not found"
    assert do(browser, "wait", seconds=0) == "Waited 0 s"
    found = report(browser)
    assert len(found) >= 60
    assert {name: value for name, value in found.items() if bare.get(name) != value} == {}
    assert found.keys() == bare.keys()


def test_dialogs_stop_the_page_as_the_browsers_own_do(browser: Browser, local_pages: str) -> None:
    browser.goto(f"{local_pages}/own_dialogs.html")
    take_snapshot(browser)
    assert "Dialog" in do(browser, "click_element_by_index", index=1)
    browser.settle()
    found = report(browser)
    # A function of ours in place of the page's would return at once; the browser's waits for another process.
    assert all(took >= 1.0 for took in found["times"]) and len(found["times"]) == 3
    assert found["answers"] == [None, False, None] and found["same"]
    names = ("alert", "confirm", "prompt")
    ends = [step for name in names for step in (name, f"end of {name}")]
    assert found["order"] == [*ends, *(f"timer of {name}" for name in names)]


def test_a_name_in_the_page_is_not_taken_for_our_helpers(browser: Browser, local_pages: str) -> None:
    """Elements with an id are properties of the global object, also in isolated worlds."""
    browser.goto(f"{local_pages}/named.html")
    take_snapshot(browser)
    execute(browser, normalize_action({"click_element_by_index": {"index": 1}}), ActionContext())
    observation, _ = observe(browser, None)
    assert "Press" in observation.page_text and observation.url.endswith("named_popup.html")
