"""The managed policy: real Chromium obeys it, and no other process sees it."""

from __future__ import annotations

import contextlib
import ctypes
import os

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard import chromium_policy
from collection.browser.session import Browser, PageError

_PR_SET_DUMPABLE = 4
PAGES = (
    "file:///etc/hostname",
    "chrome://version/",
    "view-source:http://localhost/",
    "devtools://devtools/x",
)


def seen_by(user: int) -> tuple[bool, bool]:
    """Runs a child that exposes the policy; returns its result, and whether it sees the policy."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            # As a program of that user's own would be.
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
            exposed = chromium_policy.expose_policy()
            seen = any(
                (folder / "policies" / "managed" / chromium_policy.NAME).exists()
                for folder in chromium_policy.FOLDERS
            )
            os.write(write, bytes((exposed, seen)))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        exposed, seen = answer.read()
    return bool(exposed), bool(seen)


@pytest.mark.parametrize("user", sorted({os.getuid(), 65534 if os.getuid() == 0 else os.getuid()}))
def test_only_a_process_that_exposes_the_policy_sees_it(user):
    exposed, seen = seen_by(user)
    assert exposed == seen
    assert not any(
        (folder / "policies" / "managed" / chromium_policy.NAME).exists()
        for folder in chromium_policy.FOLDERS
    )


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
