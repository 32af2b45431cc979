"""Records element lists of real documents with the project's own browser, for `recorded.json`.

    python -m tests.mining.planted.record_pages FOLDER PAGE... OUTPUT

The pages in the repository are of the Rust documentation (MIT or Apache 2.0) and of MiniWoB++ (MIT): only
labels of navigation and lists, no prose.
"""

from __future__ import annotations

import json
import pathlib
import sys

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task
from collection.environments.page_server import PageServer

_MAX_WORDS, _MAX_LINES = 60, 140
_MINIWOB = ("email-inbox", "social-media", "navigate-tree", "click-menu")


def look(browser: Browser) -> list[list[object]]:
    """`[tag, text, attributes, interactive]` of the visible elements with short texts."""
    found: list[list[object]] = []
    for element in take_snapshot(browser).elements:
        if len(element.text) > _MAX_WORDS or len(found) >= _MAX_LINES:
            continue
        # A text inside an element that can be acted on is the element's own.
        if element.index is None and found and found[-1][3] and found[-1][1] == element.text:
            continue
        attributes = {
            name: value.removeprefix("http://docs.test")[:80]
            for name, value in element.attributes.items()
            if name != "value"
        }
        if element.text or element.index is not None:
            found.append([element.tag, element.text, attributes, element.index is not None])
    return found


def main(folder: str, pages: list[str], output: str) -> None:
    recorded: dict[str, list[list[object]]] = {}
    with PageServer(pathlib.Path(folder), "docs.test") as server:
        rules = BrowserConfig(width=1280, height=4000, host_rules=server.host_rules)
        with Browser(rules) as browser:
            for page in pages:
                browser.goto(f"http://docs.test/{page}")
                recorded[page] = look(browser)
    with MiniWobServer() as server, Browser(BrowserConfig(host_rules=server.host_rules)) as browser:
        for page in _MINIWOB:
            MiniWobEpisode(browser).reset(make_task(page, 1))
            recorded[page] = look(browser)
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(lines)}" for name, lines in recorded.items())
    pathlib.Path(output).write_text("{\n" + text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:-1], sys.argv[-1])
