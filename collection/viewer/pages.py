"""What all pages are made from: folders, the index, labels and screenshots."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collection.viewer.folders import Folders, Found
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import Labels
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory

# The largest number of mined pairs, groups, replies or tasks that a page lists.
MOST = 500
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The parameters of an address.
Asked = Mapping[str, str]


class NotFoundError(Exception):
    """There is no such page; the text says what is missing."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A template and its values."""

    template: str
    title: str
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Pages:
    """What pages show: folders, the index of their episodes, and labels."""

    folders: Folders
    index: EpisodeIndex
    labels: Labels

    def folder(self, asked: Asked, file: str = "") -> Found:
        """The folder named by `data`, which has that file.

        Raises:
          NotFoundError: there is no such folder or file.
        """
        found = self.folders.find(asked.get("data", ""), file)
        if found is None:
            raise NotFoundError(f"no {file or 'run'} in {asked.get('data')!r}")
        return found

    def episode(self, data: str, name: str) -> Trajectory:
        """An episode of a data set.

        Raises:
          NotFoundError: there is no such data set or episode, or it cannot be read.
        """
        found = self.folders.find(data)
        if found is None or found.kind != "trajectories":
            raise NotFoundError(found.problem if found and found.problem else f"no data set {data!r}")
        run = self.index.read(data, name)
        if run is None:
            raise NotFoundError(f"no episode {name!r} in {data}")
        return run

    def images(self, data: str) -> Callable[[str | None], bool]:
        """Whether a screenshot of a data set is there, and can be read."""
        store = _images(self.folders.all()[data].path)

        def is_there(sha256: str | None) -> bool:
            with contextlib.suppress(UserError, OSError):
                return sha256 is not None and sha256 in store
            return False

        return is_there

    def image(self, asked: Asked) -> bytes:
        """The bytes of the screenshot `sha` of the data set `data`.

        Raises:
          NotFoundError: there is no such data set or screenshot.
        """
        found, sha256 = self.folders.all().get(asked.get("data", "")), asked.get("sha", "")
        if found is None or not _SHA256.fullmatch(sha256):
            raise NotFoundError("no such screenshot")
        try:
            return _images(found.path).get(sha256)
        except (UserError, OSError) as error:
            raise NotFoundError("this screenshot is missing or damaged") from error


@functools.lru_cache(maxsize=256)
def _images(folder: Path) -> ImageStore:
    """The screenshots of a folder, whose places are read once."""
    return ImageStore(folder)


def names(asked: Asked, name: str = "data") -> list[str]:
    """The values of a parameter that are separated by commas, each once."""
    return list(dict.fromkeys(filter(None, asked.get(name, "").split(","))))


def whole(text: str | None, default: int) -> int:
    """A number of an address; the default for what is none."""
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else default
