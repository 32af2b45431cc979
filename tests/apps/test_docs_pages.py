"""Tests of reading a documentation's files, on a page as Sphinx makes it."""

from __future__ import annotations

import pathlib
import zlib

import pytest

from collection.environments.apps.docs.pages import Pages, heading_of, text_of, with_class

PAGE = """
<html><body><div role="main"><section id="reading"><h1>1.2. Reading<a class="headerlink">¶</a></h1>
<p>Words<br> and&nbsp;more.
<dl class="py function">
<dt class="sig" id="book.read">book.read(<em class="sig-param">n=<b>3</b></em>)</dt>
<dd><p>Reads.</p><div class="versionadded"><p>New in version 3.8.</p></div>
<dl><dt id="book.inner">inner</dt><dd><div class="versionadded">New in version 3.9.</div></dd></dl>
</dd></dl></section></div></body></html>
"""
INVENTORY = (
    "book.read py:function 1 library/book.html#$ -\nbook std:label -1 library/book.html#reading A book\n"
)


@pytest.fixture(name="pages")
def _pages(tmp_path: pathlib.Path) -> Pages:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/book.html").write_text(PAGE, encoding="utf-8")
    head = b"# Sphinx inventory version 2\n# Project: A\n# Version: 1\n# zlib\n"
    (tmp_path / "objects.inv").write_bytes(head + zlib.compress(INVENTORY.encode()))
    return Pages(tmp_path)


def test_an_object_is_found_with_its_own_notes_alone(pages: Pages) -> None:
    assert pages.address("book.read") == "library/book.html#book.read"
    signature, description = pages.described("book.read")
    assert [text_of(one) for one in with_class(signature, "sig-param")] == ["n=3"]
    assert [text_of(one) for one in with_class(description, "versionadded", nested=False)] == [
        "New in version 3.8."
    ]
    assert len(list(with_class(description, "versionadded"))) == 2
    inner, _ = pages.described("library/book.html#book.inner")
    assert text_of(inner) == "inner"


def test_a_section_is_found_by_its_heading_without_the_number(pages: Pages) -> None:
    section = pages.section("library/book.html", "Reading")
    assert (section.get("id"), heading_of(section)) == ("reading", "1.2. Reading")
    with pytest.raises(LookupError, match="no section 'Writing'"):
        pages.section("library/book.html", "Writing")
