"""Text of PDF files, or the reason why there is none."""

from __future__ import annotations

import io
import pathlib

import pypdf
import pytest

from collection.browser import pdf
from collection.browser.files import FileError, FileFolder
from tests.browser.pdfs import make_pdf


def _written(pages: int, text: bool = True, password: str | None = None) -> bytes:
    writer = pypdf.PdfWriter()
    for number in range(pages):
        if text:
            writer.append(io.BytesIO(make_pdf(f"Leaf {number + 1}")))
        else:
            writer.add_blank_page(100, 100)
    if password is not None:
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _read(folder: pathlib.Path, content: bytes) -> str:
    (folder / "a.pdf").write_bytes(content)
    return FileFolder(folder).read("a.pdf")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (_written(1, password="secret"), r"is encrypted"),
        (_written(1, text=False), r"holds no text, perhaps only images"),
        (
            _written(pdf.MAX_PAGES + 1, text=False),
            r"holds no text on its first 50 of 51 pages, perhaps only images",
        ),
        (make_pdf("x")[:200], r"is no readable PDF \(PdfStreamError\)"),
        (b"<html>Not found", r"is no readable PDF \(PdfStreamError\)"),
        (b"", r"is no readable PDF \(EmptyFileError\)"),
    ],
    ids=["encrypted", "images", "many images", "cut off", "another kind", "empty"],
)
def test_a_pdf_without_text_gives_a_reason_in_one_line(
    tmp_path: pathlib.Path, content: bytes, reason: str
) -> None:
    with pytest.raises(FileError, match=rf"^a\.pdf {reason}$"):
        _read(tmp_path, content)


def test_one_that_only_forbids_printing_is_read(tmp_path: pathlib.Path) -> None:
    assert _read(tmp_path, _written(1, password="")) == "Page 1 of 1\nLeaf 1"


def test_of_many_pages_the_first_are_read(tmp_path: pathlib.Path) -> None:
    text = _read(tmp_path, _written(pdf.MAX_PAGES + 3))
    assert text.startswith("Page 1 of 53\nLeaf 1\n\nPage 2 of 53\nLeaf 2\n")
    assert text.endswith("\n\nPage 50 of 53\nLeaf 50\n\nCut at page 50 of 53")
