"""The managed policy: honoured by real Chromium, seen by nobody else."""

from __future__ import annotations

import contextlib
import ctypes
import os

import pytest

from collection.browser.guard import managed
from collection.browser.session import Browser, BrowserConfig, PageError
from rmsweb_jax.errors import UserError

_PR_SET_DUMPABLE = 4
PAGES = (
    "file:///etc/hostname",
    "chrome://version/",
    "view-source:http://localhost/",
    "devtools://devtools/x",
)


def seen_by(user: int) -> tuple[bool, bool]:
    """Whether a child of ours that asks is told yes, and whether it then sees the policy."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            # As a program of that user's own would be.
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
            told = managed.show_policy()
            seen = any(
                (folder / "policies" / "managed" / managed.NAME).exists() for folder in managed.FOLDERS
            )
            os.write(write, bytes((told, seen)))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told, seen = answer.read()
    return bool(told), bool(seen)


@pytest.mark.parametrize("user", sorted({os.getuid(), 65534 if os.getuid() == 0 else os.getuid()}))
def test_who_is_told_yes_sees_it_and_nobody_else(user):
    told, seen = seen_by(user)
    assert told == seen
    assert not any((folder / "policies" / "managed" / managed.NAME).exists() for folder in managed.FOLDERS)


@pytest.mark.skipif(not seen_by(os.getuid())[0], reason="no mount namespaces here")
def test_chromium_obeys_and_still_takes_uploads(tmp_path):
    upload = tmp_path / "upload.txt"
    upload.write_text("for a form")
    with Browser(BrowserConfig(width=500, height=320, quiet_ms=20)) as browser:
        for url in PAGES:
            with contextlib.suppress(PageError):
                browser.goto(url)
            assert "This page is blocked" in browser.script("return document.body.innerText")
        browser.goto("data:text/html,<input type=file>")
        field = browser.driver.find_element("tag name", "input")
        field.send_keys(str(upload))
        assert browser.script("return arguments[0].files[0].name", field) == "upload.txt"


def test_it_is_installed_and_removed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(managed, "FOLDERS", (tmp_path,))
    path = tmp_path / "policies" / "managed" / managed.NAME
    assert managed.main(["--install"]) == 0
    assert path.read_text().startswith("// What Chromium refuses")
    out = capsys.readouterr().out
    assert str(path) in out and "yours included" in out and "--remove" in out
    assert managed.main(["--remove"]) == 0 and managed.main(["--remove"]) == 0
    assert not path.exists()


def test_without_leave_it_says_what_to_do(tmp_path):
    (tmp_path / "policies").write_text("not a folder")
    with pytest.raises(UserError, match="run it as root"):
        managed.install(tmp_path)
