"""Versions of data sets: readers of one that grows keep to the version that they began with.

In a bucket each publish is a version. On disk a run that reads a growing data set keeps its version: the
folder `versions/VERSION` in it is a data set of its own, of hard links.
"""

from __future__ import annotations

import json
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import MANIFEST, read_manifest, read_manifest_bytes, version_name
from rmsweb_jax.records.files import link_or_copy, make_folder, sync_folder, write_atomic
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.storage.paths import IMAGES, VERSIONS

# In the workdir of a run that reads data sets in buckets: the version of each.
_FILE = "versions.json"


def pinned(folder: AnyPath) -> AnyPath:
    """Returns the newest version of a data set in a bucket; others may publish there while it is read.

    A folder on disk and one that has a version already are returned as they are. What a growing data set on
    disk names stays there for an hour at least.

    Raises:
      UserError: as `read_manifest`.
    """
    if not isinstance(folder, StorePath) or folder.version:
        return folder
    return folder.at(version_name(read_manifest_bytes(folder)[1]))


def pinned_for_run(folder: AnyPath, workdir: AnyPath) -> AnyPath:
    """Returns the newest version of a data set, or the one with which the run in this workdir has begun.

    A finished data set on disk is returned as it is; of a growing one the version is kept.

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
    """Keeps the newest version of a growing data set on disk; returns its folder, or that of a finished set.

    Raises:
      UserError: as `read_manifest`; or the folder cannot be written.
    """
    while True:
        manifest, data = read_manifest_bytes(folder)
        if not manifest.growing:
            return folder
        kept = folder / VERSIONS / version_name(data)
        if (kept / MANIFEST).exists():
            return kept
        try:
            make_folder(kept)
            names = [shard.file for shard in manifest.all_shards]
            for name in [*names, *(name for name in ("config.json",) if (folder / name).exists())]:
                link_or_copy(folder / name, kept / name)
            if not (images := kept / IMAGES).is_symlink():
                images.symlink_to(Path("..", "..", IMAGES))
            sync_folder(kept)
        except FileNotFoundError:
            # If a newer manifest has come meanwhile, the shards of this one may be gone.
            if read_manifest_bytes(folder)[1] != data:
                continue
            raise
        except FileExistsError:  # Of another reader, which does the same.
            continue
        except OSError as error:
            raise UserError(
                f"{kept}: this version of a growing data set cannot be kept ({error.strerror}): "
                "wait until its run has ended, or publish it to a bucket"
            ) from error
        # Last: without it there is no data set here.
        write_atomic(kept / MANIFEST, data)
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
