"""Snapshots of a page: one script per frame, then lines, stats and an `Observation`.

The cost and the size of a snapshot are bounded for any page: by `MAX_LINES`, `MAX_CHARS` and `MAX_FRAMES`
here and by limits in the script. `<page_stats>` says if a page had more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from selenium.common.exceptions import JavascriptException, NoSuchFrameException

from collection.browser.config import PageError, TabGoneError
from collection.browser.page import MAX_PAGE_CHARS, ActionTarget, PageNode, Snapshot, render_node, squeeze
from collection.browser.screenshot import take_screenshot
from collection.browser.session import Browser
from rmsweb_jax.records.schema import Element, Observation

if TYPE_CHECKING:
    from rmsweb_jax.records.images import ImageStore

# Looks at a page that closes or goes elsewhere meanwhile.
_TRIES = 5
MAX_FRAME_DEPTH = 5
MAX_FRAMES = 20
# Three times the limit of the page text: the depth of lines, and which containers stay, is known only at the
# end.
MAX_LINES = 6000
MAX_CHARS = 3 * MAX_PAGE_CHARS
_SCRIPT = pathlib.Path(__file__).with_name("snapshot.js").read_text(encoding="utf-8")
_NEW, _INTERACTIVE, _SECRET = 1, 2, 4


@dataclasses.dataclass
class _SnapshotLine:
    """One entry of the script's answer, in page coordinates, with its enclosing frames."""

    depth: int
    raw: list[Any]
    document: float
    frames: tuple[int, ...]
    box: tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class _FramePlace:
    """Where a frame is in the window: its origin, and the size of its pixels."""

    x: float = 0.0
    y: float = 0.0
    scale: float = 1.0

    def in_window(self, box: Sequence[int]) -> tuple[int, int, int, int]:
        """Returns a box that a script measured in the frame, in pixels of the window."""
        dx, dy = round(self.x), round(self.y)
        left, top, right, bottom = (round(self.scale * value) for value in box)
        return left + dx, top + dy, right + dx, bottom + dy

    def inner(self, x: float, y: float, scale: float) -> _FramePlace:
        """Returns the place of a frame in this one."""
        return _FramePlace(self.x + self.scale * x, self.y + self.scale * y, self.scale * scale)


@dataclasses.dataclass
class _SnapshotParts:
    """Lines and counts of all frames so far."""

    lines: list[_SnapshotLine] = dataclasses.field(default_factory=list)
    links: int = 0
    elements: int = 0
    chars: int = 0
    frames: int = 0
    cut: bool = False


def take_snapshot(browser: Browser, peek: bool = False) -> Snapshot:
    """Takes a snapshot of the current tab.

    Args:
      peek: do not make this the snapshot that actions and new-element marks refer to.

    Returns:
      The snapshot, also stored in `browser.latest` and, unless `peek`, in `browser.snapshot`.
    """
    browser.sweep_if_needed()
    parts = _SnapshotParts()
    options = {"peek": peek, "known": False, "covered": False, "bounds": None, "view": None}
    top = _walk_frame(browser, parts, options, (), 0, _FramePlace())
    browser.latest = snapshot = _assemble(browser.current_handle, top, parts)
    if not peek:
        browser.snapshot = snapshot
    return snapshot


def observe(browser: Browser, images: ImageStore | None, boxes: bool = True) -> tuple[Observation, str]:
    """Returns the observation for the agent: of one document of one tab, which is `browser.snapshot`.

    If the tab closes or leaves its document meanwhile, what is there then is observed. A page that hangs or
    crashes is closed; then the tab that replaces it is observed, and `browser.notices` gives the reason.

    Args:
      images: store for the screenshot; None takes none.
      boxes: draw a dashed box around every indexed element.

    Returns:
      The observation and the text for `<page_stats>`. The observation has no screenshot if none can be taken:
      that of a page that changes all the time would show another document.

    Raises:
      PageError, WebDriverException: no page can be observed.
    """
    for left in reversed(range(_TRIES)):
        try:
            if (observed := _observe(browser, images if left else None, boxes)) is not None:
                return observed
        except (PageError, NoSuchFrameException) as error:
            if not left:
                raise
            if isinstance(error, PageError) and not isinstance(error, TabGoneError):
                browser.notices.append(str(error))
    raise PageError("The page changes all the time")


def _observe(browser: Browser, images: ImageStore | None, boxes: bool) -> tuple[Observation, str] | None:
    """Returns None if the tab or its document has changed meanwhile. Text alone is of one document always."""
    snapshot = take_snapshot(browser)
    png = None if images is None else take_screenshot(browser, snapshot, boxes)
    tabs = browser.tabs(snapshot)
    if browser.current_handle != snapshot.target or (images is not None and not browser.shows(snapshot)):
        return None
    observation = Observation(
        url=snapshot.url,
        title=snapshot.title,
        tabs=tabs,
        current_tab=browser.current_tab,
        page_text=snapshot.page_text,
        elements=snapshot.elements,
        fingerprint=snapshot.fingerprint,
        screenshot=None if images is None or png is None else images.put(png),
        pages_above=snapshot.pages_above,
        pages_below=snapshot.pages_below,
    )
    return observation, snapshot.stats


def _walk_frame(
    browser: Browser,
    parts: _SnapshotParts,
    options: dict[str, Any],
    frames: tuple[int, ...],
    depth: int,
    place: _FramePlace,
) -> dict[str, Any]:
    limits = {"max_lines": MAX_LINES - len(parts.lines), "max_chars": MAX_CHARS - parts.chars}
    answer = browser.script(_SCRIPT, {**options, **limits}, listeners=True)
    parts.links += answer["counts"]["links"]
    parts.elements += answer["counts"]["elements"]
    parts.chars += answer["chars"]
    parts.cut = parts.cut or answer["cut"]
    for raw in answer["lines"]:
        box = place.in_window(raw[6] or (0, 0, 0, 0))
        parts.lines.append(_SnapshotLine(depth + raw[0], raw, answer["document"], frames, box))
        if not raw[10] or len(frames) >= MAX_FRAME_DEPTH:
            continue
        if parts.frames >= MAX_FRAMES or parts.cut:
            parts.cut = True
            continue
        parts.frames += 1
        element, x, y, covered, bounds, view, scale = answer["frames"][raw[10] - 1]
        inner = {
            "peek": options["peek"],
            "known": options["known"] or not answer["first"],
            "covered": options["covered"] or covered,
            "bounds": bounds,
            "view": view,
        }
        at = place.inner(x, y, scale)
        _enter_frame(browser, parts, element, inner, (*frames, raw[5]), depth + raw[0] + 1, at)
    return answer


def _enter_frame(
    browser: Browser,
    parts: _SnapshotParts,
    element: Any,
    options: dict[str, Any],
    frames: tuple[int, ...],
    depth: int,
    place: _FramePlace,
) -> None:
    """Walks a frame inside the current one; a frame that is gone or unreadable stays empty."""
    try:
        browser.enter_frame(element)
    except NoSuchFrameException:
        return
    try:
        _walk_frame(browser, parts, options, frames, depth, place)
    except (JavascriptException, NoSuchFrameException):
        parts.cut = True
    finally:
        browser.leave_frame()


def _assemble(target: str, top: dict[str, Any], parts: _SnapshotParts) -> Snapshot:
    nodes: list[PageNode] = []
    targets: dict[int, ActionTarget] = {}
    elements: list[Element] = []
    secrets: list[tuple[int, int, int, int]] = []
    digest = hashlib.sha256(top["url"].encode("utf-8", "replace"))
    for position, line in enumerate(parts.lines):
        _, tag, text, attributes, flags, uid, _, marker, above, below, _, href, *_ = line.raw
        attributes = dict(attributes or ())
        if flags & _SECRET:
            secrets.append(line.box)
        index = len(targets) + 1 if flags & _INTERACTIVE else None
        node = PageNode(
            depth=line.depth,
            tag=tag,
            text=squeeze(text),
            index=index,
            attributes=attributes,
            is_new=bool(flags & _NEW),
            marker=marker,
            pages_above=above,
            pages_below=below,
        )
        nodes.append(node)
        plain = (
            render_node(dataclasses.replace(node, index=None, is_new=False)) if index else render_node(node)
        )
        digest.update(b"\n" + plain.encode("utf-8", "replace"))
        if not tag:
            elements.append(Element(index=None, tag=href, text=node.text))
            continue
        own = _own_text(parts.lines, position)
        if index is not None:
            label = tuple(
                attributes.get(key, "") for key in ("id", "name", "type", "aria-label", "placeholder")
            )
            targets[index] = ActionTarget(uid, line.document, line.frames, tag, own, label, line.box)
            full = {**attributes, "href": href} if href and "href" in attributes else attributes
            elements.append(Element(index=index, tag=tag, text=own, attributes=full, box=line.box))
    return Snapshot(
        target=target,
        document=top["document"],
        status=top["status"],
        url=top["url"],
        title=top["title"],
        nodes=tuple(nodes),
        targets=targets,
        elements=tuple(elements),
        secrets=tuple(secrets),
        stats=f"{parts.links} links, {len(targets)} interactive, {parts.elements} elements"
        + (", more not looked at" if parts.cut else ""),
        fingerprint=digest.hexdigest()[:32],
        pages_above=round(top["scroll"][0], 2),
        pages_below=round(top["scroll"][1], 2),
    )


def _own_text(lines: list[_SnapshotLine], position: int) -> str:
    """Returns the text lines one level below line `position`, up to the first line that is not below it."""
    depth, parts = lines[position].depth + 1, []
    for at in range(position + 1, len(lines)):
        line = lines[at]
        if line.depth < depth:
            break
        if line.depth == depth and not line.raw[1]:
            parts.append(line.raw[2])
    return squeeze(" ".join(parts))
