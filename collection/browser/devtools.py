"""The browser's DevTools, next to its driver: commands and events, scripts in isolated worlds, and dialogs.

An isolated world has the nodes of a page and nothing else of it: our scripts leave no name, no function and
no listener in the page, and the page cannot change what they see. Event listeners and closed
shadow roots, which no script can find out, come from DevTools.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import pathlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urldefrag, urlsplit

import websocket
from selenium.common.exceptions import (
    JavascriptException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)

_CONNECT_S = 30.0
_WORLD_NAME = "collector"
_FOLDER = pathlib.Path(__file__).parent
_WORLD = "".join((_FOLDER / name).read_text(encoding="utf-8") for name in ("world.js", "actions.js"))
_RUN = (
    "function () {{ return Object.hasOwn(globalThis, 'rmsweb') ?"
    " rmsweb.run(function () {{\n{code}\n}}, arguments, {document}) : ''; }}"
)
_CLICKS, _PRESSES = {"click", "dblclick"}, {"mousedown", "mouseup", "pointerdown", "pointerup"}
# Closed shadow trees inside one another: a script that meets new ones runs again with them.
_MAX_RUNS = 6
# A page can open any number of dialogs, and while it does, Chromium cannot leave it. After this many a
# document may open no more, as browsers let a user decide. Only then is anything of the page's own replaced.
_MAX_DIALOGS = 5
_NO_MORE_DIALOGS = "alert = () => {}; confirm = () => false; prompt = () => null; void 0"
_CTRL, _DRAG_STEP_S = 2, 0.1
# More time for a page that opens many at once.
_STORM_S = 10.0
# Worlds whose listeners are remembered, so that only changes are sent.
_MAX_WORLDS = 100
# A page may have been sent elsewhere, so the wait for its address is short.
_ENTRY_S = 0.2
_GROUP = "collector"
_IGNORED = '{"method":"Network.'  # Events about requests are many, and not looked at.
# Bytes of responses that a tab keeps.
_KEPT = {"maxTotalBufferSize": 20_000_000, "maxResourceBufferSize": 10_000_000}

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
        place = urlsplit(url)
        # The library would take the environment's proxy to this machine's browsers, too.
        stream = socket.create_connection((place.hostname, place.port), _CONNECT_S)
        try:
            # Answers are as large as pages: checking their encoding in Python would take seconds.
            self._socket = websocket.create_connection(
                url, timeout=_CONNECT_S, suppress_origin=True, skip_utf8_validation=True, socket=stream
            )
        except websocket.WebSocketException as error:
            raise ConnectionError(str(error)) from error
        self._socket.settimeout(None)
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
                if text[: len(_IGNORED)] != _IGNORED:
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


@dataclasses.dataclass(frozen=True)
class Response:
    """What a document is made of.

    Attributes:
      policy: its content security policy, as in the header.
    """

    status: int
    html: str
    policy: str = ""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame, with the DevTools session of its process."""

    id: str
    session: str


class DevTools(DevToolsConnection):
    """A connection to a browser; a thread reads it and answers dialogs as they open.

    Args:
      url: WebSocket address of the browser.
      timeout_s: time limit for every answer of a page.
      answer: called in the reading thread with the kind (alert, confirm, prompt or beforeunload) and the text
        of every dialog, and with True for those to report; returns True to accept the dialog.

    Raises:
      ConnectionError: from all methods, once the browser is gone.
      TimeoutException: from all methods, if a page does not answer in time.
      DocumentGoneError: from all methods, if the document, the frame or the tab has gone meanwhile.
    """

    def __init__(self, url: str, timeout_s: float, answer: Callable[[str, str, bool], bool]) -> None:
        self._timeout_s = timeout_s
        self._answer = answer
        self._sessions: dict[str, str] = {}  # By the target id of a tab or a frame.
        self._dialogs: dict[str, int] = {}  # Number in the tab's document, by session.
        self._listeners: dict[str, tuple[str, dict[int, int]]] = {}  # Kinds by node, by frame and world.
        self._opened = 0
        self._keeps_documents = False
        self._committed: dict[str, queue.SimpleQueue[str]] = {}  # Documents, by session of their tab.
        # With their address, by the target id of the tab that asks for it next.
        self._served: dict[str, tuple[str, Response]] = {}
        super().__init__(url, self._event)
        # Includes tabs that pages open later. With `Target.setAutoAttach`, `window.open` would not return.
        self._command("", "Target.setDiscoverTargets", discover=True)

    def targets(self) -> list[dict[str, Any]]:
        """Returns what DevTools knows about all tabs, frames and workers of the browser."""
        return self._command("", "Target.getTargets")["targetInfos"]

    def open_tab(self, background: bool = False) -> str:
        """Opens an empty tab; returns its target id, which is the driver's handle."""
        return self._command("", "Target.createTarget", url="about:blank", background=background)["targetId"]

    def close_tab(self, target: str) -> None:
        """Closes a tab, also one that hangs or has closed already."""
        with contextlib.suppress(DocumentGoneError):
            self._command("", "Target.closeTarget", targetId=target)

    def navigate(self, target: str, url: str, served: Response | None = None, referrer: str = "") -> None:
        """Opens an address in a tab, and returns as soon as its document is there.

        Args:
          served: makes the document; the site is not asked for one.
          referrer: the page that has led there.

        Raises:
          WebDriverException: the browser cannot open it.
        """
        session, committed = self._session(target), queue.SimpleQueue[str]()
        self._committed[session] = committed
        try:
            if served is not None:
                self._served[target] = urldefrag(url).url, served
                self._command(session, "Fetch.enable", patterns=[{"resourceType": "Document"}])
            origin = {"referrer": referrer, "referrerPolicy": "unsafeUrl"} if referrer else {}
            answer = self._command(session, "Page.navigate", url=url, **origin)
            if problem := answer.get("errorText"):
                raise WebDriverException(problem)
            # The answer comes before the document does. Without a loader it is the same document.
            while (loader := answer.get("loaderId")) and committed.get(timeout=self._timeout_s) != loader:
                pass
            if loader:
                self._await_entry(session, urldefrag(url).url)
        except queue.Empty:
            raise TimeoutException("no document") from None
        finally:
            del self._committed[session]
            if served is not None:
                self._served.pop(target, None)
                self.send(session, "Fetch.disable")

    def _await_entry(self, session: str, url: str) -> None:
        """Waits until the browser's own process has a document: before, it would load `url#part` anew."""
        end = time.monotonic() + _ENTRY_S
        while time.monotonic() < end:
            with contextlib.suppress(DocumentGoneError):  # Neither the last document nor this one.
                history = self._command(session, "Page.getNavigationHistory")
                if urldefrag(history["entries"][history["currentIndex"]]["url"]).url == url:
                    return
            time.sleep(0.002)

    def keep_documents(self, keep: bool = True) -> None:
        """From now on the browser keeps the responses that documents are made of, for `source`; or none."""
        if keep == self._keeps_documents:
            return
        self._keeps_documents = keep
        for session in list(self._sessions.values()):  # The reading thread adds those of new tabs.
            if keep:
                self.send(session, "Network.enable", **_KEPT)
            else:
                self.send(session, "Network.disable")

    def source(self, target: str, status: int) -> Response | None:
        """Returns what a tab's document is made of, with a status that is known; None if it is not kept."""
        frame = self.ask(target, "Page.getFrameTree")["frameTree"]["frame"]
        if frame["mimeType"] != "text/html":
            return None
        try:
            answer = self.ask(target, "Network.getResponseBody", requestId=frame["loaderId"])
        except DocumentGoneError:
            return None
        if answer["base64Encoded"]:
            return None
        known = self.ask(target, "Network.getSecurityIsolationStatus", frameId=frame["id"])["status"]
        parts = (one["effectiveDirectives"] for one in known.get("csp", ()) if one["isEnforced"])
        return Response(status, answer["body"], ", ".join(parts))

    def ask(self, target: str, command: str, **params: Any) -> dict[str, Any]:
        """Sends a command to a tab; returns its result."""
        return self._command(self._session(target), command, **params)

    def keep_downloads(self, folder: str) -> None:
        """Downloads go to a folder, of all windows, as long as this connection lasts."""
        self._command("", "Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)

    def screenshot(self, target: str) -> bytes:
        """Returns the viewport of a tab as PNG."""
        answer = self._command(
            self._session(target), "Page.captureScreenshot", format="png", optimizeForSpeed=True
        )
        return base64.b64decode(answer["data"])

    def main_frame(self, target: str) -> Frame:
        """Returns the main frame of a tab."""
        return Frame(target, self._session(target))

    def child_frame(self, frame: Frame, owner: str) -> Frame:
        """Returns the frame in a frame element of `frame`, which is given by its reference."""
        node = self._command(frame.session, "DOM.describeNode", backendNodeId=_node_of(owner))["node"]
        inner = node["frameId"]
        with contextlib.suppress(DocumentGoneError):
            self._world(Frame(inner, frame.session))
            return Frame(inner, frame.session)
        # A frame of another site has a process of its own.
        return Frame(inner, self._session(inner))

    def run(
        self, frame: Frame, code: str, args: Sequence[Any], document: float | None = None
    ) -> tuple[Any, list[str]]:
        """Runs a function body in the isolated world of a frame.

        Args:
          args: JSON values; `{"node": REFERENCE}` is an element.
          document: creation time of the document that it may run in; None is any.

        Returns:
          The value, in which `{"node": N}` is an element, and the references of these elements by N. They are
          the ids of the driver's elements.

        Raises:
          JavascriptException: the script failed.
          StaleElementReferenceException: an element of `args` is gone.
        """
        for _ in range(_MAX_RUNS):
            context = self._world(frame)
            given = [self._argument(frame, context, value) for value in args]
            text = self._call(frame, context, _RUN.format(code=code, document=json.dumps(document)), given)
            if not text:  # The document is older than our connection to its tab.
                self._evaluate(frame, context, _WORLD)
                continue
            answer = json.loads(text)
            if "gone" in answer:
                raise DocumentGoneError("another one is there now")
            if "stale" in answer:
                raise StaleElementReferenceException("an element is not in the document any more")
            if not (answer["suspects"] and self._find_roots(frame, context)):
                break
        else:
            raise JavascriptException("the page has shadow trees without end")
        found = self._objects(frame, context, "rmsweb.found()") if answer["found"] else []
        return answer["value"], self._references(frame, found)

    def find_listeners(self, frame: Frame) -> None:
        """Sends the world of a frame the elements at which the page listens for mouse events."""
        context, document, kinds = self._listeners_in(frame)
        # Elements of the frames inside are in the answer, too, and belong into other worlds.
        for inner in self._tree(frame).get("childFrames", ()) if kinds else ():
            with contextlib.suppress(DocumentGoneError):
                for node in self._listeners_in(Frame(inner["frame"]["id"], frame.session))[2]:
                    kinds.pop(node, None)
        world = document.rpartition(".")[0]  # An object's id starts with that of its world.
        before, known = self._listeners.get(frame.id, ("", {}))
        if before != world:
            known = {}
        changed = {node: kinds.get(node, 0) for node in known | kinds if known.get(node) != kinds.get(node)}
        if changed:
            objects = self._resolve(frame, context, changed)
            args = [{"value": [changed[node] for node in objects]}]
            args += [{"objectId": one} for one in objects.values()]
            self._call(frame, context, "function (...all) { rmsweb.learnListeners(...all); }", args)
        if len(self._listeners) >= _MAX_WORLDS:
            self._listeners.clear()
        self._listeners[frame.id] = (world, kinds)
        self._release(frame)

    def _listeners_in(self, frame: Frame) -> tuple[int, str, dict[int, int]]:
        """Returns context and document of a frame, and its elements with mouse listeners.

        The value is 1 for clicks, 2 for presses and 3 for both.
        """
        context = self._world(frame)
        found = self._evaluate(frame, context, "Object.hasOwn(globalThis, 'rmsweb') ? document : 0")
        if "objectId" not in found:  # The document is older than our connection to its tab.
            found = self._evaluate(frame, context, f"{_WORLD} document")
        document = found["objectId"]
        node = self._command(frame.session, "DOM.describeNode", objectId=document)["node"]
        # Handlers in attributes are compiled for the object's world, which has to be the page's.
        number = node["backendNodeId"]
        own = self._command(frame.session, "DOM.resolveNode", backendNodeId=number, objectGroup=_GROUP)
        answer = self._command(
            frame.session,
            "DOMDebugger.getEventListeners",
            objectId=own["object"]["objectId"],
            depth=-1,
            pierce=True,
        )
        kinds: dict[int, int] = {}
        for one in answer["listeners"]:
            kind = (one["type"] in _CLICKS) + 2 * (one["type"] in _PRESSES)
            if kind and "backendNodeId" in one:
                kinds[one["backendNodeId"]] = kinds.get(one["backendNodeId"], 0) | kind
        return context, document, kinds

    def _tree(self, frame: Frame) -> dict[str, Any]:
        """Returns the part of the frame tree below a frame, without frames of other processes."""
        waiting = [self._command(frame.session, "Page.getFrameTree")["frameTree"]]
        while waiting:
            tree = waiting.pop()
            if tree["frame"]["id"] == frame.id:
                return tree
            waiting += tree.get("childFrames", ())
        raise DocumentGoneError("the frame is gone")

    def mouse(self, frame: Frame, points: Sequence[tuple[int, int]], times: int, ctrl: bool) -> None:
        """Presses the mouse at a point of a tab and releases it at the last of the points.

        Args:
          frame: the main frame; an event goes to the frame that is at its point.
          times: number of presses; 0 only moves the mouse to the first point.
        """
        first, way, last = points[0], points[1:], points[-1]
        events: list[tuple[str, tuple[int, int], dict[str, Any]]] = [("mouseMoved", first, {})]
        for count in range(1, times + 1):
            button = {"button": "left", "clickCount": count}
            events.append(("mousePressed", first, button))
            events += [("mouseMoved", point, {"button": "left", "buttons": 1}) for point in way]
            events.append(("mouseReleased", last, button))
        sent = []
        for kind, (x, y), button in events:
            event = {"type": kind, "x": x, "y": y, "modifiers": _CTRL if ctrl else 0, **button}
            sent.append(self.send(frame.session, "Input.dispatchMouseEvent", **event))
            if way:  # Pages look at a drag from time to time.
                time.sleep(_DRAG_STEP_S)
        self._result(sent[0])  # The tab was there.
        for answer in sent[1:]:
            # A page that a press or a release has closed or left does not answer it.
            with contextlib.suppress(DocumentGoneError):
                self._result(answer)

    def _find_roots(self, frame: Frame, context: int) -> bool:
        """Sends the world of a frame the closed shadow roots of suspect elements; True if there are any."""
        objects = self._objects(frame, context, "rmsweb.suspects()")
        roots = {}
        for host, node in zip(objects, self._describe(frame, objects), strict=True):
            for root in node.get("shadowRoots", ()):
                if root.get("shadowRootType") == "closed":
                    roots[root["backendNodeId"]] = host
        resolved = self._resolve(frame, context, roots)
        pairs = [{"objectId": one} for root, found in resolved.items() for one in (roots[root], found)]
        if pairs:
            self._call(frame, context, "function (...all) { rmsweb.learnRoots(...all); }", pairs)
        self._release(frame)
        return bool(pairs)

    def _references(self, frame: Frame, objects: Sequence[str]) -> list[str]:
        if not objects:
            return []
        loader = self._tree(frame)["frame"]["loaderId"]
        nodes = self._describe(frame, objects)
        self._release(frame)
        return [f"f.{frame.id}.d.{loader}.e.{node['backendNodeId']}" for node in nodes]

    def _argument(self, frame: Frame, context: int, value: Any) -> dict[str, Any]:
        if not (isinstance(value, dict) and "node" in value):
            return {"value": value}
        found = self._resolve(frame, context, [_node_of(value["node"])])
        if not found:
            raise StaleElementReferenceException("the element is gone")
        return {"objectId": next(iter(found.values()))}

    def _resolve(self, frame: Frame, context: int, nodes: Iterable[int]) -> dict[int, str]:
        """Returns objects of the world by node; nodes that are gone are left out."""
        params = {"executionContextId": context, "objectGroup": _GROUP}
        sent = {
            node: self.send(frame.session, "DOM.resolveNode", backendNodeId=node, **params) for node in nodes
        }
        found = {}
        for node, answer in sent.items():
            with contextlib.suppress(DocumentGoneError):
                found[node] = self._result(answer)["object"]["objectId"]
        return found

    def _describe(self, frame: Frame, objects: Sequence[str]) -> list[dict[str, Any]]:
        sent = [self.send(frame.session, "DOM.describeNode", objectId=one) for one in objects]
        return [self._result(answer)["node"] for answer in sent]

    def _objects(self, frame: Frame, context: int, expression: str) -> list[str]:
        """Returns the elements of an array."""
        array = self._evaluate(frame, context, expression)["objectId"]
        answer = self._command(frame.session, "Runtime.getProperties", objectId=array, ownProperties=True)
        return [one["value"]["objectId"] for one in answer["result"] if one["name"].isdigit()]

    def _evaluate(self, frame: Frame, context: int, expression: str) -> dict[str, Any]:
        return self._command(
            frame.session,
            "Runtime.evaluate",
            expression=expression,
            contextId=context,
            objectGroup=_GROUP,
        )["result"]

    def _call(self, frame: Frame, context: int, function: str, args: Sequence[Any]) -> Any:
        answer = self._command(
            frame.session,
            "Runtime.callFunctionOn",
            functionDeclaration=function,
            executionContextId=context,
            arguments=args,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            raise JavascriptException(f"javascript error: {text}")
        return answer["result"].get("value")

    def _release(self, frame: Frame) -> None:
        self.send(frame.session, "Runtime.releaseObjectGroup", objectGroup=_GROUP)

    def _world(self, frame: Frame) -> int:
        """Returns the number of the isolated world of a frame, which is made if there is none."""
        return self._command(
            frame.session, "Page.createIsolatedWorld", frameId=frame.id, worldName=_WORLD_NAME
        )["executionContextId"]

    def _session(self, target: str) -> str:
        session = self._sessions.get(target)
        if session is None:
            found = self._command("", "Target.attachToTarget", targetId=target, flatten=True)
            # The reading thread knows the session of a tab already, and it removes those that have ended.
            session = self._sessions.setdefault(target, found["sessionId"])
        return session

    def _command(self, session: str, method: str, **params: Any) -> dict[str, Any]:
        return self._result(self.send(session, method, **params))

    def _result(self, answer: Answer) -> dict[str, Any]:
        opened = self._opened
        try:
            return answer.result(self._timeout_s)
        except concurrent.futures.TimeoutError:
            # A page that opens dialog after dialog answers between them, or afterwards.
            with contextlib.suppress(concurrent.futures.TimeoutError):
                if self._opened > opened:
                    return answer.result(_STORM_S)
            raise TimeoutException("script timeout") from None

    def _event(self, message: dict[str, Any]) -> None:
        params, session = message["params"], message.get("sessionId", "")
        match message["method"]:
            case "Target.targetCreated" if params["targetInfo"]["type"] == "page":
                self.send(
                    "", "Target.attachToTarget", targetId=params["targetInfo"]["targetId"], flatten=True
                )
            case "Target.attachedToTarget" if params["targetInfo"]["type"] == "page":
                self._prepare(params["targetInfo"]["targetId"], params["sessionId"])
            case "Target.detachedFromTarget":
                gone = params["sessionId"]
                self._sessions = {key: one for key, one in self._sessions.items() if one != gone}
                self._dialogs.pop(gone, None)
                self.fail(DocumentGoneError("the tab or frame has closed"), gone)
            case "Inspector.targetCrashed":
                self.fail(WebDriverException("tab crashed"), session)
            case "Fetch.requestPaused":
                self._serve(params, session)
            case "Page.frameNavigated" if "parentId" not in params["frame"]:
                self._dialogs[session] = 0
                if (committed := self._committed.get(session)) is not None:
                    committed.put(params["frame"]["loaderId"])
            case "Page.javascriptDialogOpening":
                self._opened += 1
                self._dialogs[session] = self._dialogs.get(session, 0) + 1
                report = self._dialogs[session] <= _MAX_DIALOGS
                accept = self._answer(params["type"], params["message"], report)
                self.send(session, "Page.handleJavaScriptDialog", accept=accept)
                if self._dialogs[session] == _MAX_DIALOGS:
                    self.send(session, "Runtime.evaluate", expression=_NO_MORE_DIALOGS)

    def _serve(self, paused: dict[str, Any], session: str) -> None:
        number = paused["requestId"]
        # The main frame has the id of its tab. A page that is being left may ask for another document.
        url, served = self._served.get(paused["frameId"], ("", None))
        if served is None or urldefrag(paused["request"]["url"]).url != url:
            self.send(session, "Fetch.continueRequest", requestId=number)
            return
        self._served.pop(paused["frameId"], None)
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": served.policy}
        self.send(
            session,
            "Fetch.fulfillRequest",
            requestId=number,
            responseCode=served.status,
            responseHeaders=[{"name": name, "value": value} for name, value in headers.items() if value],
            body=base64.b64encode(served.html.encode()).decode(),
        )

    def _prepare(self, target: str, session: str) -> None:
        if target in self._sessions:
            return
        self._sessions[target] = session
        self.send(session, "Inspector.enable")
        self.send(session, "Page.enable")
        if self._keeps_documents:
            self.send(session, "Network.enable", **_KEPT)
        # Before the page's own scripts, so that no request is missed.
        self.send(session, "Page.addScriptToEvaluateOnNewDocument", source=_WORLD, worldName=_WORLD_NAME)


def _node_of(reference: str) -> int:
    """The number of a node, from the driver's id `f.FRAME.d.DOCUMENT.e.NODE`."""
    return int(reference.rpartition(".")[2])
