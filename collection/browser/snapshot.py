"""Looks at a page: one script per frame, then lines, stats, a screenshot and an `Observation`.

The cost and the size of a snapshot are bounded for any page: by `MAX_LINES`, `MAX_CHARS` and `MAX_FRAMES`
here and by limits in the script. `<page_stats>` says if a page had more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont
from selenium.common.exceptions import JavascriptException, NoSuchFrameException, WebDriverException

from collection.browser.config import PageError, TabGoneError
from collection.browser.guard.redaction import Redactor
from collection.browser.page import MAX_PAGE_CHARS, ActionTarget, PageNode, Snapshot, render_node, squeeze
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
_SECRETS = pathlib.Path(__file__).with_name("find_secrets.js").read_text(encoding="utf-8")
Box = tuple[int, int, int, int]
_NEW, _INTERACTIVE, _SECRET = 1, 2, 4
_COLORS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (255, 127, 14), (148, 103, 189))
_HIDDEN = (128, 128, 128)
_DASH, _GAP = 4, 3
# An element with fewer characters of text cannot be found by it, so its box gets the index.
_LABELLED_BELOW = 3


@dataclasses.dataclass
class _SnapshotLine:
    """One entry of the script's answer, in page coordinates, with its enclosing frames."""

    depth: int
    raw: list[Any]
    document: float
    frames: tuple[int, ...]
    box: Box


class _Walk:
    """Lines and counts of all frames so far."""

    def __init__(self, browser: Browser, peek: bool) -> None:
        self._browser, self._peek = browser, peek
        self.lines: list[_SnapshotLine] = []
        self.links = self.elements = self._chars = self._frames = 0
        self.cut = False

    def frame(
        self, options: dict[str, Any], frames: tuple[int, ...], depth: int, place: tuple[float, float, float]
    ) -> dict[str, Any]:
        """Walks the current frame and those in it; returns the script's answer for it.

        Args:
          frames: numbers of the enclosing frame elements.
          depth: of its lines.
          place: where it is in the window: its origin, and the size of its pixels.
        """
        limits = {"max_lines": MAX_LINES - len(self.lines), "max_chars": MAX_CHARS - self._chars}
        answer = self._browser.script(_SCRIPT, {"peek": self._peek, **options, **limits}, listeners=True)
        self.links += answer["counts"]["links"]
        self.elements += answer["counts"]["elements"]
        self._chars += answer["chars"]
        self.cut = self.cut or answer["cut"]
        left, top, size = place
        dx, dy = round(left), round(top)
        for raw in answer["lines"]:
            x0, y0, x1, y1 = (round(size * value) for value in raw[6] or (0, 0, 0, 0))
            box = (x0 + dx, y0 + dy, x1 + dx, y1 + dy)
            self.lines.append(_SnapshotLine(depth + raw[0], raw, answer["document"], frames, box))
            if not raw[10] or len(frames) >= MAX_FRAME_DEPTH:
                continue
            if self._frames >= MAX_FRAMES or self.cut:
                self.cut = True
                continue
            self._frames += 1
            element, x, y, covered, bounds, view, scale = answer["frames"][raw[10] - 1]
            inner = {
                "known": options["known"] or not answer["first"],
                "covered": options["covered"] or covered,
                "bounds": bounds,
                "view": view,
            }
            try:
                self._browser.enter_frame(element)
            except NoSuchFrameException:
                continue  # It is gone, or unreadable, and stays empty.
            try:
                at = (left + size * x, top + size * y, size * scale)
                self.frame(inner, (*frames, raw[5]), depth + raw[0] + 1, at)
            except (JavascriptException, NoSuchFrameException):
                self.cut = True
            finally:
                self._browser.leave_frame()
        return answer


def take_snapshot(browser: Browser, peek: bool = False) -> Snapshot:
    """Takes a snapshot of the current tab.

    Args:
      peek: do not make this the snapshot that actions and new-element marks refer to.

    Returns:
      The snapshot, also stored in `browser.latest` and, unless `peek`, in `browser.snapshot`.
    """
    browser.sweep_if_needed()
    walk = _Walk(browser, peek)
    top = walk.frame({"known": False, "covered": False, "bounds": None, "view": None}, (), 0, (0.0, 0.0, 1.0))
    browser.latest = snapshot = _assemble(browser.current_handle, top, walk)
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
    png = None if images is None else _screenshot(browser, snapshot, boxes)
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


def _assemble(target: str, top: dict[str, Any], walk: _Walk) -> Snapshot:
    nodes: list[PageNode] = []
    targets: dict[int, ActionTarget] = {}
    elements: list[Element] = []
    secrets: list[Box] = []
    digest = hashlib.sha256(top["url"].encode("utf-8", "replace"))
    for position, line in enumerate(walk.lines):
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
        own = _own_text(walk.lines, position)
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
        stats=f"{walk.links} links, {len(targets)} interactive, {walk.elements} elements"
        + (", more not looked at" if walk.cut else ""),
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


def _screenshot(browser: Browser, snapshot: Snapshot, boxes: bool) -> bytes | None:
    """Returns a screenshot as PNG with secrets painted over; None if no safe one can be taken."""
    hidden = list(snapshot.secrets)
    try:
        png = browser.screenshot()
        if browser.guard is not None:
            redactor, text = browser.guard.redactor, snapshot.page_text
            # The search is expensive. Without known secrets it finds card numbers only, which the text shows
            # too.
            if redactor.has_secrets or redactor.text(text) != text:
                hidden += secret_boxes(browser, redactor)
    except (WebDriverException, LookupError, TypeError, ValueError):
        # A page can break the search for secrets. Its text is usable; a screenshot with secrets would not be.
        return None
    targets = snapshot.targets if boxes else {}
    return draw_boxes(png, targets, hidden) if targets or hidden else png


def secret_boxes(
    page: Browser, redactor: Redactor, corner: tuple[float, float] = (0.0, 0.0), depth: int = 0
) -> list[Box]:
    """Returns the boxes of visible secrets in the current frame and those in it.

    They are password fields (also while they show their text), card fields, card numbers anywhere, and texts
    and fields that contain a known secret. Text that a page draws itself (images, canvas, its own fonts) is
    not found. One script covers the page and all frames of its origin; each frame of another needs its own.

    Args:
      corner: where the frame is in the window.
      depth: number of frames around it.
    """
    answer = page.script(_SECRETS, {"texts": redactor.has_secrets})
    found = list(answer["boxes"])
    texts = [entry[0] for entry in answer["texts"]]
    # All texts together, because a page may split a secret over several nodes.
    ends = list(itertools.accumulate(map(len, texts)))
    for start, stop in redactor.spans("".join(texts)):
        for entry, end in zip(answer["texts"], ends, strict=True):
            if end - len(entry[0]) < stop and start < end:
                found.append(entry[1:])
    dx, dy = map(round, corner)
    boxes = [(left + dx, top + dy, right + dx, bottom + dy) for left, top, right, bottom in found]
    for element, x, y in answer["frames"] if depth < MAX_FRAME_DEPTH else ():
        try:
            page.enter_frame(element)
        except NoSuchFrameException:
            continue  # The page has removed the frame meanwhile.
        try:
            boxes += secret_boxes(page, redactor, (corner[0] + x, corner[1] + y), depth + 1)
        finally:
            page.leave_frame()
    return boxes


def draw_boxes(png: bytes, targets: Mapping[int, ActionTarget], hidden: Iterable[Box] = ()) -> bytes:
    """Draws dashed boxes around indexed elements, with the index of those that have little text.

    Args:
      png: a screenshot with one pixel per CSS pixel.
      hidden: areas to paint over: left, top, right, bottom.

    Returns:
      A PNG of the same size; the same input gives the same bytes.
    """
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=10)
    for left, top, right, bottom in hidden:
        if right > left and bottom > top:
            draw.rectangle((left, top, right - 1, bottom - 1), fill=_HIDDEN)
    for index, target in targets.items():
        left, top = max(target.box[0], 0), max(target.box[1], 0)
        right, bottom = min(target.box[2], image.width) - 1, min(target.box[3], image.height) - 1
        if right <= left or bottom <= top:
            continue
        color = _COLORS[index % len(_COLORS)]
        for x in range(left, right, _DASH + _GAP):
            draw.line((x, top, min(x + _DASH, right), top), fill=color)
            draw.line((x, bottom, min(x + _DASH, right), bottom), fill=color)
        for y in range(top, bottom, _DASH + _GAP):
            draw.line((left, y, left, min(y + _DASH, bottom)), fill=color)
            draw.line((right, y, right, min(y + _DASH, bottom)), fill=color)
        if len(target.text) < _LABELLED_BELOW:
            width = int(draw.textlength(str(index), font=font)) + 2
            left, top = max(right - width, 0), max(top - 5, 0)
            draw.rectangle((left, top, left + width, top + 10), fill=color)
            draw.text((left + 1, top - 1), str(index), fill=(255, 255, 255), font=font)
    out = io.BytesIO()
    image.save(out, format="PNG", compress_level=3)
    return out.getvalue()
