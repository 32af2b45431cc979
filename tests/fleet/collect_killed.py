"""`experiments.collect` whose processes kill themselves in the middle of a write.

A file `append`, `publish` or `manifest` in the folder RMSWEB_KILL asks for that: the first process to reach
that point removes the file and kills itself. Worker processes import this module as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from collection.fleet import publishing
from collection.fleet.collect import collect
from collection.fleet.config import CollectSettings
from experiments import cli
from rmsweb_jax.records import growing
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.settings import safe_keys

FOLDER = "RMSWEB_KILL"
_append, _read, _save = Journal.append, publishing.read_entry, growing.save_manifest
_finish = publishing.Publisher.finish


def _is_asked(what: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        Path(os.environ[FOLDER], what).unlink()
        return True
    return False


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _torn_append(self: Journal, record: bytes) -> int:
    if _is_asked("append"):
        os.write(self._file.fileno(), record[: len(record) // 2])
        _die()
    return _append(self, record)


def _torn_finish(*arguments: Any) -> Any:
    def read(*arguments: Any) -> Any:
        if _is_asked("publish"):
            _die()
        return _read(*arguments)

    publishing.read_entry = read
    return _finish(*arguments)


def _torn_save(*arguments: Any) -> Any:
    if _is_asked("manifest"):
        _die()
    return _save(*arguments)


# Only in runs that are to be killed: other tests import this module for its names.
if FOLDER in os.environ:
    Journal.append = _torn_append
    publishing.Publisher.finish = _torn_finish
    growing.save_manifest = _torn_save

if __name__ == "__main__":
    cli.run(collect, "configs/collect.py:demo", safe_keys(CollectSettings))
