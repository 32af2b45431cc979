"""Versions of published data sets: readers of one that grows keep to the version that they began with."""

from __future__ import annotations

import json

from rmsweb_jax.records.dataset import MANIFEST, read_manifest, read_manifest_bytes, version_name
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.storage.paths import VERSIONS

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
    """Returns `pinned`, or the version with which the run in this workdir has begun.

    Raises:
      UserError: as `read_manifest`.
    """
    if not isinstance(folder, StorePath) or folder.version:
        return folder
    path = workdir / _FILE
    try:
        versions = json.loads(path.read_bytes())
    except FileNotFoundError:
        versions = {}
    if version := versions.get(str(folder)):
        return folder.at(version)
    newest = pinned(folder)
    assert isinstance(newest, StorePath)
    data = json.dumps({**versions, str(folder): newest.version}, indent=1).encode()
    if isinstance(path, StorePath):
        path.write_bytes(data)
    else:
        write_atomic(path, data)
    return newest


def list_versions(folder: StorePath) -> list[StorePath]:
    """Lists the versions of a published data set, by the number of their records.

    Raises:
      UserError: the manifest of one is damaged.
    """
    entries = (folder / VERSIONS).entries()
    paths = (StorePath(folder.scheme, folder.bucket, entry.key) for entry in entries)
    versions = [folder.at(path.parent.name) for path in paths if path.name == MANIFEST]
    return sorted(versions, key=lambda version: (read_manifest(version).records, version))
