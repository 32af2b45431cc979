"""The pages: from an address to a template and what it shows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from collection.viewer.folders import Folders
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import Labels
from collection.viewer.pages import episodes, evaluation, mined, runs, training
from collection.viewer.pages.base import NotFoundError, Page, Sources

__all__ = ["NotFoundError", "Page", "Pages"]

# Parameters of an address -> its page.
Make = Callable[[Mapping[str, str]], Page]


class Pages:
    """Makes the pages of what is in some folders.

    Args:
      labels: where labels are kept.

    Attributes:
      routes: path -> what makes its page from the parameters of an address. It raises `NotFoundError` for
        what is not there, and `UserError` for what is damaged.
    """

    def __init__(self, folders: Folders, index: EpisodeIndex, labels: Labels):
        self._sources = Sources(folders, index, labels)
        self.routes: dict[str, Make] = {
            "/": self._made(runs.all_runs),
            "/live": self._made(runs.live),
            "/episodes": self._made(episodes.listed),
            "/episode": self._made(episodes.one),
            "/chain": self._made(episodes.chain),
            "/compare": self._made(episodes.compare),
            "/mined": self._made(mined.listed),
            "/pair": self._made(mined.pair),
            "/training": self._made(training.training),
            "/evaluation": self._made(evaluation.evaluation),
            "/judges": self._made(evaluation.judges),
            "/dates": self._made(evaluation.dates),
        }

    def _made(self, make: Callable[[Sources, Mapping[str, str]], Page]) -> Make:
        return functools.partial(make, self._sources)

    def image(self, data: str, sha256: str) -> bytes:
        """The bytes of a screenshot of a data set.

        Raises:
          NotFoundError: there is no such data set or screenshot.
        """
        return self._sources.image(data, sha256)

    def plot(self, asked: Mapping[str, str]) -> str:
        """A curve as an SVG file.

        Raises:
          NotFoundError: there is no such run or metric.
        """
        return training.plot(self._sources, asked)
