"""Boxes, buttons and file fields that only their label shows."""

import pytest

from collection.browser.actions import execute
from collection.browser.files import FileFolder
from collection.browser.pages import ActionContext
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action

PAGE = """\
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


def do(browser, name, context=None, **params):
    return execute(browser, normalize_action({name: params}), context or ActionContext())


def test_they_are_listed_by_their_labels(labels):
    assert take_snapshot(labels).page_text == PAGE


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
