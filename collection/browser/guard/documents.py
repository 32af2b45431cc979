"""The documents of a browser's windows: each is judged by its address before its request leaves.

The egress sees the host of a connection, and not whether a document or a part of one is requested. Chromium
knows: over a DevTools connection it pauses the request of every document, also in new windows and after
redirects, until the gate has judged it. The gate is in the egress's thread, and without the gate nothing
leaves the browser: losing its connection ends all others.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from collection.browser.devtools import DevToolsConnection, DocumentGoneError
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.egress import Egress, Record
from collection.browser.guard.policy import PolicyVerdict, Reason
from collection.browser.guard.robots import Robots

# Redirects of a start page that may lead to further sites.
_MAX_MOVES = 5
_MAX_REFUSED = 20
_ANSWER_S = 30.0
_EMPTY = ("", "about:blank")
# With an icon of its own, so that the browser asks for none.
_EMPTY_PAGE = {
    "responseCode": 200,
    "responseHeaders": [{"name": "Content-Type", "value": "text/html"}],
    "body": base64.b64encode(b"<link rel=icon href=data:,>").decode(),
}


@dataclasses.dataclass(frozen=True)
class Move:
    """A start page that has led to another site.

    Attributes:
      admitted: the site belongs to the task from now on; otherwise the page was not opened.
    """

    origin: str
    url: str
    admitted: bool


@dataclasses.dataclass
class _Arrival:
    """A task's start page on its way: its window, and its last document so far."""

    frame: str = ""
    url: str = ""
    moves: list[Move] = dataclasses.field(default_factory=list)


class DocumentGate:
    """Judges the documents of one browser, in the thread of its egress.

    Args:
      url: WebSocket address of the browser's DevTools.
      judge: the policy of documents.
      admit: adds the site of an address to the policy.

    Attributes:
      refused: addresses and reasons that the agent has not seen yet.

    Raises:
      OSError: there is no connection to the browser.
    """

    def __init__(
        self,
        url: str,
        config: GuardConfig,
        egress: Egress,
        record: Record,
        judge: Callable[[str], PolicyVerdict],
        admit: Callable[[str], None],
    ) -> None:
        self._config, self._record, self._judge, self._admit = config, record, judge, admit
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival: _Arrival | None = None
        self._empty = ""
        self._robots = None if config.robots == "ignore" else Robots(egress.port, egress.judge)
        self.refused: collections.deque[tuple[str, str]] = collections.deque(maxlen=_MAX_REFUSED)

        def received(event: dict[str, Any]) -> None:
            if event["method"] == "Fetch.requestPaused":
                egress.post(self._start, event["params"])

        # The browser is gone, or documents are no longer judged.
        self._connection = DevToolsConnection(url, received, lambda: egress.post(egress.end))
        try:
            patterns = [{"resourceType": "Document"}]
            self._connection.send("", "Fetch.enable", patterns=patterns).result(_ANSWER_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def expect(self) -> None:
        """Takes the next document, and what its window opens until `arrived`, for a task's start page."""
        self._arrival = _Arrival()
        self._empty = ""  # The page may have failed to open, and must not be empty now.

    def arrived(self) -> list[Move]:
        """Ends what `expect` has begun; returns the sites to which the start page has led."""
        arrival, self._arrival = self._arrival, None
        return arrival.moves if arrival else []

    def serve_empty(self, url: str) -> None:
        """Answers the next request for a document at `url` with an empty page; it does not leave."""
        self._empty = url

    def _start(self, paused: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._decide(paused))
        self._tasks.add(task)  # The loop keeps no reference of its own.
        task.add_done_callback(self._tasks.discard)

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        # An error is about a request that the browser itself has given up, or there is no browser any more.
        with contextlib.suppress(DocumentGoneError, ConnectionError):
            return await asyncio.wrap_future(self._connection.send("", method, **params))
        return {}

    async def _decide(self, paused: dict[str, Any]) -> None:
        # The browser may have made https of http.
        if self._empty and paused["request"]["url"].partition(":")[2] == self._empty.partition(":")[2]:
            self._empty = ""
            await self._call("Fetch.fulfillRequest", requestId=paused["requestId"], **_EMPTY_PAGE)
            return
        try:
            problem = await self._problem(paused)
        except Exception:
            # Its window would wait for an answer.
            await self._call("Fetch.failRequest", requestId=paused["requestId"], errorReason="Failed")
            raise
        if problem:
            await self._call("Fetch.failRequest", requestId=paused["requestId"], errorReason=problem)
        else:
            await self._call("Fetch.continueRequest", requestId=paused["requestId"])

    async def _problem(self, paused: dict[str, Any]) -> str:
        """Returns the error with which a request is to fail; empty lets it go on."""
        url, frame, window = paused["request"]["url"], paused["frameId"], None
        verdict = self._judge(url)
        if not verdict.allowed:
            window = await self._window(frame)
            if window is None:
                return ""  # A frame is a part of its page, and the egress judges it as such.
            if not self._moves(url, frame, verdict):
                self._record.add("refused", url, verdict.detail, verdict.reason.value)
                return self._refuse(paused, window, verdict.detail)
        if self._arrival is not None and self._arrival.frame in ("", frame):
            self._arrival.frame, self._arrival.url = frame, url
        if self._robots is None or paused["request"]["method"] != "GET":
            return ""
        window = await self._window(frame) if window is None else window
        problem = "" if window is None else await self._robots.problem(url)
        if window is not None and problem and self._config.robots == "obey":
            self._record.add("robots_refused", url, problem, "robots")
            return self._refuse(paused, window, problem)
        if problem:
            self._record.add("robots_opened", url, problem, place=url)
        return ""

    def _refuse(self, paused: dict[str, Any], window: str, detail: str) -> str:
        self.refused.append((paused["request"]["url"], detail))
        # A window that shows a page keeps it. One that has nothing to show gets the browser's error page.
        nothing = "redirectedRequestId" in paused or window in _EMPTY
        return "BlockedByClient" if nothing else "Aborted"

    async def _window(self, frame: str) -> str | None:
        """Returns the address that a window shows; None for a frame in a page."""
        answer = await self._call("Target.getTargets")
        if "targetInfos" not in answer:
            return ""  # A document that may be a window's is judged as one.
        # A frame may be a target of its own, of type "iframe".
        pages = (one for one in answer["targetInfos"] if one["type"] == "page")
        return next((one["url"] for one in pages if one["targetId"] == frame), None)

    def _moves(self, url: str, frame: str, verdict: PolicyVerdict) -> bool:
        """Returns True if a task's start page leads here, and may."""
        arrival = self._arrival
        if arrival is None or arrival.frame != frame or len(arrival.moves) >= _MAX_MOVES:
            return False
        # Without https anyone on the way could have sent the redirect.
        secure = arrival.url.startswith("https:") and url.startswith("https:")
        if self._config.redirects == "start" and secure and verdict.reason is Reason.NOT_LISTED:
            self._admit(url)
        admitted = self._judge(url).allowed
        arrival.moves.append(Move(arrival.url, url, admitted))
        return admitted
