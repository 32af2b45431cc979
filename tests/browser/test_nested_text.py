"""Text in shadow roots and frames: extraction reads it, and the page can be scrolled to it."""

import pytest

from collection.browser.actions import execute
from collection.browser.pages import ActionContext, page_markdown
from rmsweb_jax.actions.parse import normalize_action

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


@pytest.fixture
def nested(browser, local_pages):
    browser.goto(f"{local_pages}/nested.html")
    browser.settle()
    return browser


def test_all_that_is_shown_is_extracted_in_order(nested):
    assert page_markdown(nested, links=False) == WHOLE
    assert nested.script("return document.title") == "Nested"  # Back on the page.


@pytest.mark.parametrize(
    "text", ["price 12 eur", "Closed 7 EUR", "Slotted", "Two deep", "Other origin", "End"]
)
def test_the_page_is_scrolled_to_it(nested, text):
    result = execute(nested, normalize_action({"scroll_to_text": {"text": text}}), ActionContext())
    assert result.text == f"Scrolled to {text!r}" and result.changed
    assert (nested.script("return scrollY") > 1000) == (text == "End")


def test_a_text_that_is_nowhere_or_hidden_is_not_found(nested):
    for text in ("Hidden", "Price 13"):
        result = execute(nested, normalize_action({"scroll_to_text": {"text": text}}), ActionContext())
        assert result.text == f"Text {text!r} not found" and not result.changed
    assert nested.script("return document.title") == "Nested"
