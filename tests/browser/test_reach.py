"""Parts that are hard to reach: inner scrollers, closed trees, menus under the mouse, image maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from tests.browser.test_actions import do, index_of, open_page


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
    hovering = ActionContext(extra_actions=("hover_element",))
    open_page(browser, f"{local_pages}/hover_menus.html")
    texts = [target.text for target in take_snapshot(browser).targets.values()]
    # What opens something; not what holds an element with an index, and not what only changes its colour.
    assert texts == ["Products", "Help", "Size", "Card"]
    do(browser, action, hovering, index=index_of(browser, "Size"))
    assert "In inches" in take_snapshot(browser).page_text
    do(browser, action, hovering, index=index_of(browser, "Products"))
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
