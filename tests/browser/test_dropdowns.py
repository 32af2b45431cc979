"""Drop-down lists that open elsewhere in the document, disabled options, and file fields behind buttons."""

from __future__ import annotations

import pathlib

import pytest

from collection.browser.actions import execute
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.schema import ActionResult

SIZE, PLAIN, PICK = 1, 2, 3


@pytest.fixture
def lists(browser: Browser, local_pages: str) -> Browser:
    browser.goto(f"{local_pages}/lists.html")
    take_snapshot(browser)
    return browser


def do(browser: Browser, name: str, context: ActionContext | None = None, **params: object) -> ActionResult:
    return execute(browser, normalize_action({name: params}), context or ActionContext())


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


def test_a_button_leads_to_its_hidden_file_field(lists: Browser, tmp_path: pathlib.Path) -> None:
    context = ActionContext(files=FileFolder(tmp_path / "files"))
    do(lists, "write_file", context, file_name="a.md", content="one")
    assert not do(lists, "upload_file_to_element", context, index=PICK, path="a.md").error
    assert lists.script("return document.getElementById('hidden').files[0].name") == "a.md"
    assert do(lists, "upload_file_to_element", context, index=PLAIN, path="a.md").error
