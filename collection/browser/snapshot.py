"""Looking at a page: one script a frame, then lines, stats and an `Observation`."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from typing import TYPE_CHECKING, Any

from selenium.common.exceptions import NoSuchFrameException, StaleElementReferenceException

from collection.browser.page import Snapshot, Target
from collection.browser.page_text import PageNode, render_node, squeeze
from collection.browser.screenshot import Box, draw_boxes
from collection.browser.session import Browser
from rmsweb_jax.records.schema import Element, Observation

if TYPE_CHECKING:
    from rmsweb_jax.records.images import ImageStore

MAX_FRAME_DEPTH = 5
_SCRIPT = pathlib.Path(__file__).with_name("snapshot.js").read_text(encoding="utf-8")
_NEW, _INTERACTIVE = 1, 2
_LABELLED_BELOW = 3  # Characters of own text.


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


def take_snapshot(browser: Browser, peek: bool = False) -> Snapshot:
    """Looks at the current tab.

    Args:
      peek: look without becoming what indices and new-element marks refer to.

    Returns:
      The snapshot, kept in `browser.latest` and, unless `peek`, in `browser.snapshot`.
    """
    browser.recover_tab()
    walk = _Walk()
    top = _walk_frame(browser, walk, {"peek": peek, "known": False, "covered": False}, (), 0, (0, 0))
    snapshot = browser.latest = _assemble(top, walk)
    if not peek:
        browser.snapshot = snapshot
    return snapshot


def observe(browser: Browser, images: ImageStore | None, boxes: bool = True) -> tuple[Observation, str]:
    """The page as the agent is shown it.

    Args:
      images: where the screenshot is stored; None takes none.
      boxes: draw a dashed box around every indexed element.

    Returns:
      The observation and the text for `<page_stats>`.
    """
    snapshot = take_snapshot(browser)
    sha = None
    if images is not None:
        png = browser.screenshot()
        if boxes:
            png = draw_boxes(png, [_box(index, target) for index, target in snapshot.targets.items()])
        sha = images.put(png)
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


def _box(index: int, target: Target) -> Box:
    return Box(index, *target.box, labelled=len(target.text) < _LABELLED_BELOW)


def _walk_frame(
    browser: Browser,
    walk: _Walk,
    options: dict[str, bool],
    frames: tuple[int, ...],
    depth: int,
    offset: tuple[float, float],
) -> dict[str, Any]:
    answer = browser.script(_SCRIPT, options)
    walk.links += answer["counts"]["links"]
    walk.elements += answer["counts"]["elements"]
    dx, dy = round(offset[0]), round(offset[1])
    for raw in answer["lines"]:
        left, top, right, bottom = raw[6] or (0, 0, 0, 0)
        walk.lines.append(
            _Line(
                depth + raw[0],
                raw,
                answer["document"],
                frames,
                (left + dx, top + dy, right + dx, bottom + dy),
            )
        )
        if raw[10] and len(frames) < MAX_FRAME_DEPTH:
            element, x, y, covered = answer["frames"][raw[10] - 1]
            inner = {
                "peek": options["peek"],
                "known": options["known"] or not answer["first"],
                "covered": options["covered"] or covered,
            }
            try:
                browser.call(browser.driver.switch_to.frame, element)
            except (NoSuchFrameException, StaleElementReferenceException):
                continue  # It has gone while we looked.
            try:
                at = (offset[0] + x, offset[1] + y)
                _walk_frame(browser, walk, inner, (*frames, raw[5]), depth + raw[0] + 1, at)
            finally:
                browser.call(browser.driver.switch_to.parent_frame)
    return answer


def _assemble(top: dict[str, Any], walk: _Walk) -> Snapshot:
    nodes: list[PageNode] = []
    targets: dict[int, Target] = {}
    elements: list[Element] = []
    digest = hashlib.sha256(top["url"].encode())
    for position, line in enumerate(walk.lines):
        _, tag, text, attributes, flags, uid, _, marker, above, below, _, href, *_ = line.raw
        attributes = dict(attributes or ())
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
        stats=f"{walk.links} links, {len(targets)} interactive, {walk.elements} elements",
        fingerprint=digest.hexdigest()[:32],
        pages_above=round(top["scroll"][0], 2),
        pages_below=round(top["scroll"][1], 2),
    )


def _own_text(lines: list[_Line], position: int) -> str:
    """The text lines one deeper than line `position`, before the first line that is not."""
    depth, parts = lines[position].depth + 1, []
    for line in lines[position + 1 :]:
        if line.depth < depth:
            break
        if line.depth == depth and not line.raw[1]:
            parts.append(line.raw[2])
    return squeeze(" ".join(parts))
