"""Files of running applications: set back while their server has the databases among them open."""

from __future__ import annotations

import filecmp
import pathlib
import shutil
from collections.abc import Iterable, Mapping

from collection.environments.apps import sqlite
from rmsweb_jax.records.files import make_folder

# SQLite's own, next to a database.
_JOURNALS = ("-journal", "-wal", "-shm")


def files_of(folder: pathlib.Path) -> list[str]:
    """Returns the relative paths of all files in a folder and below; journals of databases are left out."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(_JOURNALS)
    )


def restore_files(kept: pathlib.Path, live: pathlib.Path) -> None:
    """Gives the folder `live` the files of `kept`."""
    names = files_of(kept)
    _remove_others(names, live)
    for name in names:
        old, new = kept / name, live / name
        if new.exists() and sqlite.is_database(new):
            sqlite.restore(old, new)
        elif not (new.exists() and filecmp.cmp(old, new)):
            make_folder(new.parent)
            shutil.copy2(old, new)


def read_files(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the contents of all files, for `replace_files`."""
    return {
        name: sqlite.serialize(folder / name)
        if sqlite.is_database(folder / name)
        else (folder / name).read_bytes()
        for name in files_of(folder)
    }


def replace_files(snapshot: Mapping[str, bytes], live: pathlib.Path) -> None:
    """Gives the folder `live` files with these contents."""
    _remove_others(snapshot, live)
    for name, data in snapshot.items():
        path = live / name
        if path.exists() and sqlite.is_database(path):
            sqlite.deserialize(path, data)
        elif not (path.exists() and path.read_bytes() == data):
            make_folder(path.parent)
            path.write_bytes(data)


def _remove_others(names: Iterable[str], live: pathlib.Path) -> None:
    make_folder(live)
    for name in set(files_of(live)) - set(names):
        (live / name).unlink(missing_ok=True)  # A request that ends just now may remove it.
