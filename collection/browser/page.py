"""A page as it was at one moment, and what its indices stand for."""

from __future__ import annotations

import dataclasses

from collection.browser.page_text import PageNode, render_page
from rmsweb_jax.records.schema import Element


@dataclasses.dataclass(frozen=True)
class Target:
    """What an index stands for.

    Attributes:
      uid: the element's number in its frame; it stays the same for as long as the element lives.
      document: when its document was opened: numbers start again in a new one.
      frames: numbers of the enclosing frame elements, outermost first.
      text: visible text of its own.
      label: attributes that tell what it is, as opposed to the state it is in.
      box: left, top, right, bottom of the part inside the viewport, CSS pixels.
    """

    uid: int
    document: float
    frames: tuple[int, ...]
    tag: str
    text: str
    label: tuple[str, ...]
    box: tuple[int, int, int, int]

    @property
    def identity(self) -> tuple[float, tuple[int, ...], int]:
        return self.document, self.frames, self.uid


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A page as it was at one moment.

    Attributes:
      nodes: its lines in order.
      targets: by index, 1..N in page order.
      elements: visible elements with text of their own, for records; links with their whole address.
      secrets: boxes of fields with a secret that the page shows in plain, in CSS pixels of the window.
      stats: for `<page_stats>`.
      fingerprint: hash of the URL and the lines without indices.
    """

    document: float
    url: str
    title: str
    nodes: tuple[PageNode, ...]
    targets: dict[int, Target]
    elements: tuple[Element, ...]
    secrets: tuple[tuple[int, int, int, int], ...]
    stats: str
    fingerprint: str
    pages_above: float
    pages_below: float

    @property
    def page_text(self) -> str:
        return render_page(self.nodes)
