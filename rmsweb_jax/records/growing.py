"""Data sets that readers can use while a run makes them.

Each `publish` adds shards and replaces the manifest as a whole. Shards never change. Small ones at the end
are joined when they have become many; those that are then no longer named stay for `KEPT_S`, since a reader
may have begun with an earlier manifest. Records are in the order in which they came; `finish` writes them
again in the order of the finished data set.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import (
    SHARD_RECORDS,
    Manifest,
    Shard,
    check_lengths,
    iter_shard,
    remove_strays,
    save_manifest,
    write_shard,
)
from rmsweb_jax.records.files import link_or_copy, make_folder, sync_folder
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SCHEMA_VERSION

# Time for which shards stay that newer manifests do not name, in seconds.
KEPT_S = 3600.0
# Shards with fewer records than `_SMALL` are joined when there are so many of them.
_SMALL, _MOST_SMALL = SHARD_RECORDS // 2, 64


class GrowingDataset:
    """The writer of a growing data set; one for a folder at a time.

    It goes on from the manifest of an earlier run, finished or not, as a growing one. A manifest that cannot
    be used is replaced by the first `publish`.

    Args:
      folder: created if missing.
      kind: of the records.
    """

    def __init__(self, folder: Path, kind: str):
        make_folder(folder)
        self._folder = folder
        self._manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            kind=kind,
            finished=False,
            growing=True,
            records=0,
            shards=(),
            provenance={},
        )
        try:
            earlier = check_lengths(folder)
        except UserError:
            return
        if earlier.kind == kind:
            self._manifest = earlier if earlier.growing else self._reopened(earlier)

    @property
    def size(self) -> int:
        """The number of records that are published."""
        return self._manifest.records

    def records(self) -> Iterator[bytes]:
        """Yields the records that are published.

        Raises:
          UserError: a shard has changed.
        """
        return self._entries(self._manifest.shards)

    def reflections(self) -> Iterator[bytes]:
        """Yields the reflections that are published; raises as `records`."""
        return self._entries(self._manifest.reflections)

    def forget(self) -> None:
        """Lets the next `publish` begin anew; until then readers see what they saw."""
        self._manifest = self._manifest.model_copy(update={"records": 0, "shards": (), "reflections": ()})

    def publish(
        self, records: Iterable[bytes], reflections: Iterable[bytes], provenance: dict[str, Any]
    ) -> None:
        """Adds records and reflections, which readers see as soon as all of them are on disk.

        Raises:
          UserError, OSError: they could not be written; readers see what they saw.
        """
        before = self._manifest
        shards = self._extended(before.shards, before.kind, records)
        guidance = self._extended(before.reflections, "reflections", reflections)
        self._replace(
            before.model_copy(
                update={
                    "records": sum(shard.records for shard in shards),
                    "shards": shards,
                    "reflections": guidance,
                    "provenance": provenance,
                }
            )
        )

    def finish(self, records: Iterable[bytes], provenance: dict[str, Any]) -> Manifest:
        """Writes the finished data set, which has these records in this order.

        Readers see the growing one until all of it is on disk.

        Raises:
          UserError: as `publish`; or there are no records.
        """
        kind = self._manifest.kind
        shards = tuple(self._write(records, (f"{kind}-{number:05d}" for number in itertools.count())))
        if not shards:
            raise UserError(f"{self._folder}: no records to write ({kind})")
        # Links to screenshots must be durable before a manifest whose records name them.
        ImageStore(self._folder).sync()
        self._replace(
            self._manifest.model_copy(
                update={
                    "finished": True,
                    "growing": False,
                    "records": sum(shard.records for shard in shards),
                    "shards": shards,
                    "reflections": (),
                    "provenance": provenance,
                }
            )
        )
        return self._manifest

    def _reopened(self, earlier: Manifest) -> Manifest:
        """Makes a finished data set a growing one, with names for its shards that `finish` does not use."""
        shards = []
        for shard in earlier.shards:
            file = f"{_unique(earlier.kind)}.array_record"
            link_or_copy(self._folder / shard.file, self._folder / file)
            shards.append(shard.model_copy(update={"file": file}))
        sync_folder(self._folder)
        changes = {"shards": tuple(shards), "files": (), "finished": False, "growing": True}
        manifest = earlier.model_copy(update=changes)
        save_manifest(self._folder, manifest)
        return manifest

    def _replace(self, manifest: Manifest) -> None:
        save_manifest(self._folder, manifest)
        named = {shard.file for shard in manifest.all_shards}
        for shard in self._manifest.all_shards:
            if shard.file not in named:
                os.utime(self._folder / shard.file)  # From now on it is unused.
        self._manifest = manifest
        remove_strays(self._folder, manifest, KEPT_S)

    def _extended(self, shards: tuple[Shard, ...], kind: str, entries: Iterable[bytes]) -> tuple[Shard, ...]:
        """Returns the shards and those of new entries; joins the small ones at the end if they are many."""
        names = iter(lambda: _unique(kind), None)
        shards = (*shards, *self._write(entries, names))
        small = tuple(itertools.takewhile(lambda shard: shard.records < _SMALL, reversed(shards)))[::-1]
        if len(small) < _MOST_SMALL and sum(shard.records for shard in small) < SHARD_RECORDS:
            return shards
        return (*shards[: len(shards) - len(small)], *self._write(self._entries(small), names))

    def _entries(self, shards: Iterable[Shard]) -> Iterator[bytes]:
        return itertools.chain.from_iterable(iter_shard(self._folder, shard) for shard in shards)

    def _write(self, entries: Iterable[bytes], names: Iterator[str]) -> Iterator[Shard]:
        """Writes entries to shards with these names, with one of them in memory at a time."""
        stream = iter(entries)
        for first in stream:
            some = itertools.chain([first], itertools.islice(stream, SHARD_RECORDS - 1))
            yield write_shard(self._folder / f"{next(names)}.array_record", some)


def _unique(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(8)}"
