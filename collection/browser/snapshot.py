"""Looking at a page: one script a frame, then lines, stats and an `Observation`.

What a look costs and holds is bounded, whatever the page: `MAX_LINES`, `MAX_CHARS` and `MAX_FRAMES` here,
and the script's own limits. `<page_stats>` says when a page had more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from typing import TYPE_CHECKING, Any

from selenium.common.exceptions import (
    JavascriptException,
    NoSuchFrameException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)

from collection.browser.page import Snapshot, Target
from collection.browser.page_scripts import MEND, READ_TEXT, mended
from collection.browser.page_text import MAX_PAGE_CHARS, PageNode, render_node, squeeze
from collection.browser.screenshot import take_picture
from collection.browser.session import Browser, PageError
from rmsweb_jax.records.schema import Element, Observation

if TYPE_CHECKING:
    from rmsweb_jax.records.images import ImageStore

MAX_FRAME_DEPTH = 5
MAX_FRAMES = 20
# Three times what fits the page text: depth and containers are only known at the end.
MAX_LINES = 6000
MAX_CHARS = 3 * MAX_PAGE_CHARS
_SCRIPT = mended(pathlib.Path(__file__).with_name("snapshot.js").read_text(encoding="utf-8"))
_NEW, _INTERACTIVE, _SECRET = 1, 2, 4


@dataclasses.dataclass
class _Line:
    """One entry of the script's answer, in page coordinates and with the frames it lies in."""

    depth: int
    raw: list[Any]
    document: float
    frames: tuple[int, ...]
    box: tuple[int, int, int, int]


@dataclasses.dataclass
class _Walk:
    lines: list[_Line] = dataclasses.field(default_factory=list)
    links: int = 0
    elements: int = 0
    chars: int = 0
    frames: int = 0
    cut: bool = False


def take_snapshot(browser: Browser, peek: bool = False) -> Snapshot:
    """Looks at the current tab.

    Args:
      peek: look without becoming what indices and new-element marks refer to.

    Returns:
      The snapshot, kept in `browser.latest` and, unless `peek`, in `browser.snapshot`.
    """
    browser.recover_tab()
    try:
        snapshot = _look(browser, peek)
    except TimeoutException:
        raise
    except WebDriverException:
        # The page has broken what scripts need before they start. It is put back for good.
        browser.cdp("Runtime.evaluate", expression=MEND)
        try:
            snapshot = _look(browser, peek)
        except TimeoutException:
            raise
        except WebDriverException:
            snapshot = _read_only(browser)
    browser.latest = snapshot
    if not peek:
        browser.snapshot = snapshot
    return snapshot


def _look(browser: Browser, peek: bool) -> Snapshot:
    walk = _Walk()
    options = {"peek": peek, "known": False, "covered": False, "bounds": None, "view": None}
    return _assemble(_walk_frame(browser, walk, options, (), 0, (0, 0)), walk)


def _read_only(browser: Browser) -> Snapshot:
    """Only the text of a page in which no script works, read from a world that it cannot reach."""
    frame = browser.cdp("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = browser.cdp("Page.createIsolatedWorld", frameId=frame, worldName="rmsweb")
    answer = browser.cdp(
        "Runtime.evaluate",
        contextId=world["executionContextId"],
        expression=READ_TEXT,
        returnByValue=True,
        timeout=browser.config.script_seconds * 1000,
    )["result"]["value"]
    lines = [
        _Line(0, [0, "", text, None, 0, 0, None, "", 0, 0, 0, "body"], answer["document"], (), (0, 0, 0, 0))
        for text in answer["text"].splitlines()[:MAX_LINES]
        if text.strip()
    ]
    return _assemble(answer, _Walk(lines, cut=True))


def observe(browser: Browser, images: ImageStore | None, boxes: bool = True) -> tuple[Observation, str]:
    """The page as the agent is shown it.

    A page that hangs, crashes or goes away at the look has been closed by then: what is there instead is
    shown, and `browser.notices` says why.

    Args:
      images: where the screenshot is stored; None takes none.
      boxes: draw a dashed box around every indexed element.

    Returns:
      The observation, without a screenshot where none can be taken, and the text for `<page_stats>`.

    Raises:
      PageError: what is there instead cannot be looked at either.
    """
    try:
        return _observe(browser, images, boxes)
    except PageError as error:
        looked = _observe(browser, images, boxes)
        browser.notices.append(str(error))
        return looked


def _observe(browser: Browser, images: ImageStore | None, boxes: bool) -> tuple[Observation, str]:
    snapshot = take_snapshot(browser)
    png = None if images is None else take_picture(browser, snapshot, boxes)
    sha = None if images is None or png is None else images.put(png)
    observation = Observation(
        url=snapshot.url,
        title=snapshot.title,
        tabs=browser.tabs(),
        current_tab=browser.current_tab,
        page_text=snapshot.page_text,
        elements=snapshot.elements,
        fingerprint=snapshot.fingerprint,
        screenshot=sha,
        pages_above=snapshot.pages_above,
        pages_below=snapshot.pages_below,
    )
    return observation, snapshot.stats


def _walk_frame(
    browser: Browser,
    walk: _Walk,
    options: dict[str, Any],
    frames: tuple[int, ...],
    depth: int,
    offset: tuple[float, float],
) -> dict[str, Any]:
    limits = {"max_lines": MAX_LINES - len(walk.lines), "max_chars": MAX_CHARS - walk.chars}
    answer = browser.script(_SCRIPT, {**options, **limits})
    if not isinstance(answer, dict) or not isinstance(answer.get("lines"), list):
        raise JavascriptException("the page has changed what scripts answer")
    walk.links += answer["counts"]["links"]
    walk.elements += answer["counts"]["elements"]
    walk.chars += answer["chars"]
    walk.cut = walk.cut or answer["cut"]
    dx, dy = round(offset[0]), round(offset[1])
    for raw in answer["lines"]:
        left, top, right, bottom = raw[6] or (0, 0, 0, 0)
        box = (left + dx, top + dy, right + dx, bottom + dy)
        walk.lines.append(_Line(depth + raw[0], raw, answer["document"], frames, box))
        if not raw[10] or len(frames) >= MAX_FRAME_DEPTH:
            continue
        if walk.frames >= MAX_FRAMES or walk.cut:
            walk.cut = True
            continue
        walk.frames += 1
        element, x, y, covered, bounds, view = answer["frames"][raw[10] - 1]
        inner = {
            "peek": options["peek"],
            "known": options["known"] or not answer["first"],
            "covered": options["covered"] or covered,
            "bounds": bounds,
            "view": view,
        }
        at = (offset[0] + x, offset[1] + y)
        _enter_frame(browser, walk, element, inner, (*frames, raw[5]), depth + raw[0] + 1, at)
    return answer


def _enter_frame(
    browser: Browser,
    walk: _Walk,
    element: Any,
    options: dict[str, Any],
    frames: tuple[int, ...],
    depth: int,
    offset: tuple[float, float],
) -> None:
    """Walks a frame within the current one; one that is gone or cannot be read stays empty."""
    try:
        browser.call(browser.driver.switch_to.frame, element)
    except (NoSuchFrameException, StaleElementReferenceException):
        return
    try:
        _walk_frame(browser, walk, options, frames, depth, offset)
    except JavascriptException:
        walk.cut = True
    finally:
        browser.call(browser.driver.switch_to.parent_frame)


def _assemble(top: dict[str, Any], walk: _Walk) -> Snapshot:
    nodes: list[PageNode] = []
    targets: dict[int, Target] = {}
    elements: list[Element] = []
    secrets: list[tuple[int, int, int, int]] = []
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
            targets[index] = Target(uid, line.document, line.frames, tag, own, label, line.box)
            full = {**attributes, "href": href} if href and "href" in attributes else attributes
            elements.append(Element(index=index, tag=tag, text=own, attributes=full))
    return Snapshot(
        document=top["document"],
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


def _own_text(lines: list[_Line], position: int) -> str:
    """The text lines one deeper than line `position`, before the first line that is not."""
    depth, parts = lines[position].depth + 1, []
    for at in range(position + 1, len(lines)):
        line = lines[at]
        if line.depth < depth:
            break
        if line.depth == depth and not line.raw[1]:
            parts.append(line.raw[2])
    return squeeze(" ".join(parts))
