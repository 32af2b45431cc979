"""Written pages as the collector would have seen them."""

from __future__ import annotations

import hashlib

from rmsweb_jax.records.schema import Element, Observation, Tab
from tests.mining.labelled.writing import KINDS, Line, Page


def observe(page: Page, before: Page | None) -> Observation:
    """The page as the agent sees it; a star marks what `before`, the last step's page, had not."""
    old = set(before.lines) if before is not None and before.url == page.url else set(page.lines)
    lines: list[str] = []
    plain: list[str] = [page.url]
    elements: list[Element] = []
    index = 0
    for line in page.lines:
        tag, attributes = _tag(line)
        text = line.label if line.kind in ("tab", "opt", "div", "a", "button") or not line.acted_on else ""
        if line.acted_on:
            index += 1
            written = f"<{tag}{''.join(f' {key}={value}' for key, value in attributes.items())} />"
            lines.append(f"{'' if line in old else '*'}[{index}]{written}")
            plain.append(written)
            elements.append(Element(index=index, tag=tag, text=text, attributes=attributes))
        if text:
            lines.append("\t" * line.acted_on + text)
            plain.append(lines[-1])
            elements.append(Element(index=None, tag=tag, text=text))
    fingerprint = hashlib.sha256("\n".join(plain).encode()).hexdigest()
    # Now and then a page has no picture.
    shot = None if fingerprint.startswith("00") else hashlib.sha256(f"png {fingerprint}".encode()).hexdigest()
    return Observation(
        url=page.url,
        title=page.title,
        tabs=(Tab(tab_id="0001", url=page.url, title=page.title),),
        current_tab="0001",
        page_text="\n".join(lines),
        elements=tuple(elements),
        fingerprint=fingerprint[:32],
        screenshot=shot,
        pages_below=page.below,
    )


def _tag(line: Line) -> tuple[str, dict[str, str]]:
    tag, fixed = KINDS[line.kind]
    attributes = dict(fixed)
    if line.kind in ("check", "radio"):
        attributes |= {"checked": "true"} if line.value == "on" else {}
    elif line.value:
        attributes["value"] = line.value
    if line.kind in ("input", "pass", "area"):
        attributes["placeholder"] = line.label
    elif line.kind in ("check", "radio", "date", "select"):
        attributes["aria-label"] = line.label
    return tag, attributes
