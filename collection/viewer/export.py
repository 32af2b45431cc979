"""A copy of the pages as files, which open from disk without a server."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter, deque
from pathlib import Path
from typing import Any

from collection.viewer.app import BROKEN, ROUTES, STATIC, problem, render
from collection.viewer.index import EpisodeIndex, Query
from collection.viewer.pages import Asked, NotFoundError, Page, Pages
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

_START = "/"


class _Export:
    """Follows the links from the first page on; each page becomes a file."""

    def __init__(self, pages: Pages, folder: Path, most: int):
        self._pages, self._folder, self._most = pages, folder, most
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, dict[str, str]]] = deque()
        self._counts: Counter[str] = Counter()

    def run(self) -> Path:
        start = self.link(_START)
        while self._waiting:
            path, asked = self._waiting.popleft()
            self._write(path, asked)
        return self._folder / start

    def link(self, path: str, **asked: Any) -> str:
        """The file of a page, which is written later."""
        given = {name: str(value) for name, value in asked.items() if value not in ("", None)}
        key = "\n".join((path, *(f"{name}={value}" for name, value in sorted(given.items()))))
        if key not in self._names:
            if path in ("/episode", "/chain", "/pair", "/compare"):
                self._counts[path] += 1
                if self._counts[path] > self._most:
                    return "not-exported.html"
            name = f"{path.strip('/')}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
            suffix = "png" if path == "/image" else "html"
            self._names[key] = f"{'index' if path == _START else name}.{suffix}"
            self._waiting.append((path, given))
        return self._names[key]

    def _write(self, path: str, asked: Asked) -> None:
        target = self._folder / self.link(path, **asked)
        try:
            if path == "/image":
                return write_atomic(target, self._pages.image(asked))
            return self.save(target, ROUTES[path](self._pages, asked))
        except (NotFoundError, *BROKEN) as error:
            return self.save(target, problem("This cannot be shown", str(error)))

    def save(self, target: Path, page: Page) -> None:
        html = render(page, self.link, lambda name: f"static/{name}", exported=True)
        write_atomic(target, html.encode())


def export(pages: Pages, index: EpisodeIndex, folder: Path, most: int) -> Path:
    """Writes the pages to a folder that is empty or not there.

    Args:
      most: largest number of pages of episodes, of attempts, of pairs and of comparisons; links to others
        say so.

    Returns:
      The first page.

    Raises:
      UserError: the folder has files.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"--export={folder}: has files: give an empty folder or a new one")
    make_folder(folder)
    shutil.copytree(STATIC, folder / "static")
    text = (
        f"Only some of the {index.count(Query()):,} episodes were exported: give a larger --export_episodes."
    )
    job = _Export(pages, folder, most)
    job.save(folder / "not-exported.html", problem("Not exported", text))
    return job.run()
