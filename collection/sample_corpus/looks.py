"""Generated pages as Chromium shows them: element lines, screenshots with boxes, Markdown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collection.browser.page_actions import MAX_EXTRACT_CHARS, page_markdown
from collection.browser.session import Browser, BrowserConfig
from collection.browser.snapshot import observe
from collection.environments.page_server import PageServer
from collection.sample_corpus.pages import KINDS, PHOTO, make_page, photo
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Observation

WIDTH, HEIGHT = 1280, 720
_SITE = "www.example.com"


@dataclasses.dataclass(frozen=True)
class Look:
    """A page at one scroll position.

    Attributes:
      markdown: of the whole page, as an extraction reads it.
    """

    kind: str
    observation: Observation
    page_stats: str
    markdown: str


def record_looks(folder: Path, images: ImageStore, pages: int, per_page: int) -> list[Look]:
    """Shows `pages` pages of all kinds in turn, each at `per_page` scroll positions.

    Args:
      folder: for the HTML files.
      images: where the screenshots of 1280x720 pixels go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PHOTO).write_bytes(photo())
    looks = []
    with PageServer(folder, _SITE) as server, Browser(_browser_config(server)) as browser:
        for number in range(pages):
            kind = KINDS[number % len(KINDS)]
            name = f"{kind}-{number}.html"
            (folder / name).write_text(make_page(kind, number), encoding="utf-8")
            browser.goto(f"http://{_SITE}/{name}")
            browser.settle()
            markdown = page_markdown(browser, links=False)[:MAX_EXTRACT_CHARS]
            for position in range(per_page):
                # The first one is the top, which agents see most.
                browser.script("scrollTo(0, arguments[0] * innerHeight)", position * 1.5)
                observation, stats = observe(browser, images)
                looks.append(Look(kind, observation, stats, markdown))
    return looks


def _browser_config(server: PageServer) -> BrowserConfig:
    return BrowserConfig(
        width=WIDTH, height=HEIGHT, host_rules=server.host_rules, quiet_ms=50, settle_ms=1000
    )
