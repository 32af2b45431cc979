"""Files of running applications: set back while their server has the databases among them open."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterable, Mapping

from collection.environments.apps import sqlite
from rmsweb_jax.records.files import make_folder

# SQLite's own, next to a database.
_JOURNALS = ("-journal", "-wal", "-shm")


def files_of(folder: pathlib.Path) -> list[str]:
    """Returns the relative paths of all files in a folder and below; journals of databases are left out."""
    # Not by pathlib: its objects take most of the time that a reset has.
    start = len(f"{folder}/")
    return sorted(
        f"{path}/{name}"[start:]
        for path, _, names in os.walk(folder)
        for name in names
        if not name.endswith(_JOURNALS)
    )


def restore_files(kept: pathlib.Path, live: pathlib.Path) -> None:
    """Gives the folder `live` the files of `kept`."""
    names = files_of(kept)
    there = _remove_others(names, live)
    for name in names:
        old, new = f"{kept}/{name}", f"{live}/{name}"
        if name not in there:
            make_folder(pathlib.Path(new).parent)
            shutil.copy2(old, new)
            continue
        with open(old, "rb") as file:
            start = file.read(len(sqlite.MAGIC))
            was, found = os.stat(old), os.stat(new)
            if start == sqlite.MAGIC:
                sqlite.restore(pathlib.Path(old), pathlib.Path(new))
            elif (was.st_size, was.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
                _overwrite(new, start + file.read())
                os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))


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
    there = _remove_others(snapshot, live)
    for name, data in snapshot.items():
        path = live / name
        if name in there and sqlite.is_database(path):
            sqlite.deserialize(path, data)
        elif name not in there:
            make_folder(path.parent)
            path.write_bytes(data)
        elif path.read_bytes() != data:
            _overwrite(path, data)


def _overwrite(path: pathlib.Path | str, data: bytes) -> None:
    # In place: ext4 writes a file that has been emptied first to the disk when it is closed.
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()


def _remove_others(names: Iterable[str], live: pathlib.Path) -> set[str]:
    """Removes other files; returns those that were there."""
    make_folder(live)
    there = set(files_of(live))
    for name in there - set(names):
        (live / name).unlink(missing_ok=True)  # A request that ends just now may remove it.
    return there
