"""Versions of data sets: readers keep to the version that they began with.

In a bucket each publish is a version. On disk the episodes of a run that has not ended are in its journal: a
reader writes those that are there to `versions/VERSION` in its folder, a data set of its own.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import MANIFEST, read_manifest, read_manifest_bytes, version_name
from rmsweb_jax.records.episodes import EPISODES, has_not_ended, write_episodes
from rmsweb_jax.records.files import link_or_copy, make_folder, sync_folder, write_atomic
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.storage.paths import IMAGES, VERSIONS

# In the workdir of a run that reads data sets in buckets: the version of each.
_FILE = "versions.json"


def pinned(folder: AnyPath) -> AnyPath:
    """Returns the newest version of a data set in a bucket; others may publish there while it is read.

    A folder on disk and one that has a version already are returned as they are.

    Raises:
      UserError: as `read_manifest`.
    """
    if not isinstance(folder, StorePath) or folder.version:
        return folder
    return folder.at(version_name(read_manifest_bytes(folder)[1]))


def pinned_for_run(folder: AnyPath, workdir: AnyPath) -> AnyPath:
    """Returns the newest version of a data set, or the one with which the run in this workdir has begun.

    A finished data set on disk is returned as it is; of a run that has not ended the version is kept.

    Raises:
      UserError: as `read_manifest`; the version that the run has begun with is gone; or one cannot be kept.
    """
    if isinstance(folder, StorePath) and folder.version:
        return folder
    path = workdir / _FILE
    try:
        versions = json.loads(path.read_bytes())
    except FileNotFoundError:
        versions = {}
    if version := versions.get(str(folder)):
        return folder.at(version) if isinstance(folder, StorePath) else _kept(folder, version)
    if isinstance(folder, StorePath):
        newest = pinned(folder)
        assert isinstance(newest, StorePath)
        version = newest.version
    elif (newest := keep_version(folder)) == folder:
        return folder
    else:
        version = newest.name
    data = json.dumps({**versions, str(folder): version}, indent=1).encode()
    if isinstance(path, StorePath):
        path.write_bytes(data)
    else:
        write_atomic(path, data)
    return newest


def keep_version(folder: Path) -> Path:
    """Keeps what a run has played so far as a data set; returns its folder, or that of a finished data set.

    Raises:
      UserError: as `read_manifest` and `write_episodes`; or the folder cannot be written.
    """
    journal = folder / EPISODES
    if not has_not_ended(folder):
        read_manifest(folder)
        return folder
    # A journal is only appended to.
    kept = folder / VERSIONS / f"{journal.stat().st_size:015d}"
    if kept.exists():
        return kept
    new = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
    try:
        make_folder(new)
        (new / IMAGES).symlink_to(Path("..", "..", IMAGES))
        if (folder / "config.json").exists():
            link_or_copy(folder / "config.json", new / "config.json")
        manifest = write_episodes(journal, new, {"run": folder.name})
        try:
            new.rename(kept)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # Of another reader, which does the same.
                raise
        sync_folder(kept.parent)
    except OSError as error:
        raise UserError(
            f"{kept}: the episodes of a run that has not ended cannot be kept ({error.strerror}): "
            "wait until it has ended"
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    print(f"{folder}: not ended, {manifest.records} episodes so far", file=sys.stderr, flush=True)
    return kept


def _kept(folder: Path, version: str) -> Path:
    if not (kept := folder / VERSIONS / version / MANIFEST).exists():
        raise UserError(
            f"{kept}: this run has begun with this version, and it is gone: use another --workdir"
        )
    return kept.parent


def list_versions(folder: StorePath) -> list[StorePath]:
    """Lists the versions of a published data set, by the number of their records.

    Raises:
      UserError: the manifest of one is damaged.
    """
    entries = (folder / VERSIONS).entries()
    paths = (StorePath(folder.scheme, folder.bucket, entry.key) for entry in entries)
    versions = [folder.at(path.parent.name) for path in paths if path.name == MANIFEST]
    return sorted(versions, key=lambda version: (read_manifest(version).records, version))
