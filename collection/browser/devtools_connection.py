"""A connection to a browser's DevTools: commands, their answers, and events."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import websocket

_CONNECT_S = 30.0

Answer = concurrent.futures.Future[dict[str, Any]]


class DocumentGoneError(Exception):
    """The browser has not carried out a command: the document, frame or tab that it is about has gone."""


class Fields(dict[str, Any]):
    """An object in an answer or an event.

    Chromium also answers about what is just going, with `null` or without fields that it documents. To read
    such a field raises DocumentGoneError.
    """

    def __missing__(self, name: str) -> Any:
        raise DocumentGoneError(f"the browser's answer has no {name}")

    @classmethod
    def of(cls, value: Any) -> Fields:
        """Returns the object without fields that are null, and fields of no object for any other value."""
        return cls((name, one) for name, one in value.items() if one is not None) if value else cls()


class DevToolsConnection:
    """Sends commands, also from several threads; a thread of its own reads answers and events.

    Args:
      url: WebSocket address of the browser.
      on_event: called in the reading thread with every event; must not wait for an answer.
      on_lost: called in the reading thread when the connection has ended.

    Raises:
      OSError: from the constructor, if there is no connection.
      ConnectionError: from `send` and from answers, once the browser is gone.
    """

    def __init__(
        self, url: str, on_event: Callable[[dict[str, Any]], None], on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self._on_event, self._on_lost = on_event, on_lost
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[str, Answer]] = {}
        self._sending = threading.Lock()
        self._lost = False
        self._socket = _connect(url)
        threading.Thread(target=self._read, name="devtools", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._socket.sock is not None:
                # To close it would leave the reading thread where it waits.
                self._socket.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, websocket.WebSocketException):
            self._socket.shutdown()

    def send(self, session: str, method: str, **params: Any) -> Answer:
        """Sends a command to a session, "" being the browser; its answer may be a DocumentGoneError."""
        number, answer = next(self._ids), Answer()
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._waiting[number] = (session, answer)
        try:
            with self._sending:
                self._socket.send(json.dumps(message))
        except (OSError, websocket.WebSocketException) as error:
            raise ConnectionError(f"DevTools is gone: {error}") from error
        if self._lost:
            self.fail(ConnectionError("DevTools is gone"))
        return answer

    def fail(self, error: Exception, session: str | None = None) -> None:
        """Ends the waiting for answers of a session, or of all."""
        for number, (owner, answer) in list(self._waiting.items()):
            if session in (None, owner) and self._waiting.pop(number, None):
                answer.set_exception(error)

    def _read(self) -> None:
        try:
            while text := self._socket.recv():
                self._receive(json.loads(text, object_hook=Fields.of))
        except (OSError, ValueError, websocket.WebSocketException):
            pass
        finally:
            # Also after an error of our own: nothing would ever be answered.
            self._lost = True
            self.fail(ConnectionError("DevTools is gone"))
            self._on_lost()

    def _receive(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            with contextlib.suppress(DocumentGoneError):
                self._on_event(message)
            return
        _, answer = self._waiting.pop(message["id"], ("", None))
        if answer is None:
            return
        if "error" in message:
            answer.set_exception(DocumentGoneError(message["error"].get("message", "")))
        else:
            answer.set_result(message.get("result", Fields()))


def _connect(url: str) -> websocket.WebSocket:
    place = urlsplit(url)
    # The library would take the environment's proxy to this machine's browsers, too.
    own = place.hostname in ("127.0.0.1", "localhost")
    stream = socket.create_connection((place.hostname, place.port), _CONNECT_S) if own else None
    try:
        # Answers are as large as pages: checking their encoding in Python would take seconds.
        connection = websocket.create_connection(
            url, timeout=_CONNECT_S, suppress_origin=True, skip_utf8_validation=True, socket=stream
        )
    except websocket.WebSocketException as error:
        raise ConnectionError(str(error)) from error
    connection.settimeout(None)
    return connection
