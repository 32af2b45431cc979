"""`experiments.collect` whose writers die in the middle of a write when they are told to.

A file `append`, `publish` or `manifest` in the folder RMSWEB_KILL tells whoever comes to that first; the file
goes, and so does the process. Worker processes import this module as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from collection.fleet import publish
from experiments import cli, collect
from rmsweb_jax.records import shards
from rmsweb_jax.records.journal import Journal

FOLDER = "RMSWEB_KILL"
_append, _read, _save = Journal.append, publish.read_kept, shards.save_manifest


def _told(what: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        Path(os.environ[FOLDER], what).unlink()
        return True
    return False


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _torn_append(self: Journal, record: bytes) -> int:
    if _told("append"):
        os.write(self._file.fileno(), record[: len(record) // 2])
        _die()
    return _append(self, record)


def _torn_read(*arguments: Any) -> Any:
    if _told("publish"):
        _die()
    return _read(*arguments)


def _torn_save(*arguments: Any) -> Any:
    if _told("manifest"):
        _die()
    return _save(*arguments)


Journal.append = _torn_append
publish.read_kept = _torn_read
shards.save_manifest = _torn_save

if __name__ == "__main__":
    cli.run(collect.main, "configs/collect.py:demo", collect.SAFE_KEYS)
