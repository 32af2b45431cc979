"""The DevTools connection of a real browser: waiting for an answer ends if none can come."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.devtools_connection import DevToolsConnection, DocumentGoneError
from collection.browser.processes import kill_session
from collection.browser.session import Browser


def _session(connection: DevToolsConnection, browser: Browser) -> str:
    answer = connection.send("", "Target.attachToTarget", targetId=browser.current_handle, flatten=True)
    return answer.result()["sessionId"]


def test_waiting_ends_with_the_browser() -> None:
    lost = threading.Event()
    with Browser(BrowserConfig()) as browser:
        connection = DevToolsConnection(browser._process.devtools_url, lambda event: None, lost.set)
        session = _session(connection, browser)
        with pytest.raises(DocumentGoneError, match="wasn't found"):
            connection.send(session, "No.suchCommand").result()
        endless = {"expression": "new Promise(() => {})", "awaitPromise": True}
        answer = connection.send(session, "Runtime.evaluate", **endless)
        kill_session(browser.process_ids[0])
        with pytest.raises(ConnectionError, match="DevTools is gone"):
            answer.result()
        assert lost.wait(600)
        with pytest.raises(ConnectionError, match="DevTools is gone"):
            connection.send(session, "Runtime.evaluate", expression="1").result()


def test_an_answer_about_a_node_of_another_document_is_one_about_what_has_gone(browser: Browser) -> None:
    with contextlib.closing(
        DevToolsConnection(browser._process.devtools_url, lambda event: None)
    ) as connection:
        session = _session(connection, browser)
        answer = connection.send(session, "Runtime.evaluate", expression="null").result()
        assert answer["result"]["type"] == "object"
        with pytest.raises(DocumentGoneError, match="no objectId"):
            answer["result"]["objectId"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_waiting_ends_with_an_error_of_the_handler(browser: Browser) -> None:
    def fail(event: dict[str, Any]) -> None:
        raise LookupError(event["method"])

    connection = DevToolsConnection(browser._process.devtools_url, fail)
    with pytest.raises(ConnectionError, match="DevTools is gone"):
        _session(connection, browser)  # Its event comes before the answer.
    connection.close()
