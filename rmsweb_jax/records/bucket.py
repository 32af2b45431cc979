"""Data sets in buckets, which have the same layout as on disk; and as a run has begun to read them.

Shards are copied once and the manifest last, so that readers see all of a data set or what was there before.
Shards that no manifest names any more stay: frozen manifests may name them.
"""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import EPISODES, has_not_ended, write_episodes
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.shards import MANIFEST, Manifest, read_manifest, read_rows, shards_folder
from rmsweb_jax.storage import AnyPath, StorePath

# The folder of a workdir that keeps what `freeze` returns.
FROZEN = "frozen"
REPORT = "report.json"
_SIDE_FILES = (".json", ".jsonl", ".md")
# They change while a stage runs.
_OF_THE_RUN = (MANIFEST, REPORT, "calls.jsonl", "progress.json", "elapsed.json", EPISODES)
_THREADS = 8


def side_files(folder: Path) -> list[Path]:
    """Lists what a stage wrote next to its records, but for its report, which says that it has finished."""
    found = (path for path in folder.iterdir() if path.suffix in _SIDE_FILES and path.is_file())
    return sorted(path for path in found if path.name not in _OF_THE_RUN and path.name[0] != ".")


def publish_dataset(folder: Path, target: StorePath) -> Manifest:
    """Copies a data set and its side files to a bucket; publishing it again copies only what is new.

    Raises:
      UserError: there is no data set, or a shard of it is missing or cut; there is another kind in the
        target; or the bucket cannot be used.
    """
    manifest = read_manifest(folder)
    target.store.check()
    if (target / MANIFEST).exists() and read_manifest(target).kind != manifest.kind:
        raise UserError(f"{target}: holds another kind of data set than {folder}: give another folder")
    place = shards_folder(folder, manifest)
    there = {entry.key: entry.size for entry in target.entries()}
    shards = [place / name for shard in manifest.shards for name in shard.files]
    for path in shards:
        read_rows(path, [0])  # Refuses one that is missing or cut.
    new = [path for path in shards if there.get((target / path.name).key) != path.stat().st_size]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda path: (target / path.name).upload(path), [*new, *side_files(folder)]))
    (target / MANIFEST).write_bytes(manifest.model_copy(update={"folder": ""}).encode())
    if (folder / REPORT).exists():
        (target / REPORT).upload(folder / REPORT)
    return manifest


def freeze(folder: AnyPath, workdir: AnyPath) -> AnyPath:
    """Returns the folder of a data set that does not change while runs in a workdir read it.

    Of one in a bucket, where others may publish, the workdir keeps the manifest; of a fleet's run that has
    not ended it keeps the episodes that it has now. Later calls return the same. Any other folder on disk is
    returned as it is.

    Raises:
      UserError: as `read_manifest`, or as `write_episodes`.
    """
    kept = _kept(folder, workdir)
    if (kept / MANIFEST).exists():
        return kept
    if isinstance(folder, StorePath):
        data = read_manifest(folder).model_copy(update={"folder": str(folder)}).encode()
        if isinstance(kept, StorePath):
            (kept / MANIFEST).write_bytes(data)
        else:
            kept.mkdir(parents=True, exist_ok=True)
            write_atomic(kept / MANIFEST, data)
        return kept
    if not has_not_ended(folder):
        read_manifest(folder)
        return folder
    if isinstance(kept, StorePath):
        raise UserError(f"{folder}: this run has not ended: wait until it has, or use a --workdir on disk")
    manifest = write_episodes(folder / EPISODES, kept, {"run": str(folder)}, images=ImageStore(folder))
    print(f"{folder}: not ended, {manifest.records} episodes so far", file=sys.stderr, flush=True)
    return kept


def frozen(folder: AnyPath, workdir: AnyPath) -> AnyPath:
    """Returns what the runs in a workdir have read of a data set: what `freeze` has kept, or its folder."""
    kept = _kept(folder, workdir)
    return kept if (kept / MANIFEST).exists() else folder


def _kept(folder: AnyPath, workdir: AnyPath) -> AnyPath:
    digest = hashlib.sha256(str(folder).encode()).hexdigest()
    return workdir / FROZEN / f"{folder.name}-{digest[:8]}"


def address(folder: AnyPath) -> str:
    """Returns where a data set comes from, also where a workdir has frozen it: for provenance."""
    manifest = read_manifest(folder)
    return manifest.folder or str(manifest.provenance.get("run", "")) or str(folder)
