"""A process that publishes one version of a data set after the other until it is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.publish import LEASE, publish_dataset
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.storage import Lease, StorePath, parse_path
from tests.records.sets import png, trajectories

# Each version has so many records more than the one before, in a shard of their own.
RECORDS = 4
LEASE_SECONDS = 2.0


def version_records(version: int) -> list[Trajectory]:
    return trajectories(RECORDS * version)


def publish_versions(variables: Mapping[str, str], folder: Path, target: str, first: int, said: Path) -> None:
    """Publishes versions from `first` on; writes a line `begin N` before and `published N` after each.

    Args:
      variables: of the store's clients.
      folder: on this machine's disk.
      said: file that gets the lines, and `error ...` where the store does not answer for too long.
    """
    os.environ.update(variables)
    with open(said, "a", buffering=1) as lines, contextlib.ExitStack() as stack:
        try:
            path = parse_path(target, "target")
            assert isinstance(path, StorePath)
            lease = Lease(path.store, (path / LEASE).key, target, LEASE_SECONDS)
            stack.enter_context(lease)
            for version in itertools.count(first):
                disk = folder / str(version)
                records, images = version_records(version), ImageStore(disk)
                for number in range(len(records)):
                    images.put(png(number // 2))
                write_dataset(disk, records, "trajectories", {"version": version}, shard_size=RECORDS)
                lines.write(f"begin {version}\n")
                publish_dataset(disk, path, lease)
                lines.write(f"published {version}\n")
                shutil.rmtree(disk)
        except UserError as error:
            lines.write(f"error {error}\n")
