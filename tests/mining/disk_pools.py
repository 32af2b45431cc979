"""Pools written to disk, and what the mining stage makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import collection
from configs.mine import get_config
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import write_rows
from tests.records.sets import stable
from tests.trajectories import PNG

# Other from run to run: the lock, the speed, the settings as given.
OWN = (".lock", "progress.json", "config.json")


def put_pool(folder: Path, runs: Sequence[Trajectory], shard_size: int = 1024) -> Path:
    """A data set of runs with the screenshots that they name."""
    names = {name for run in runs for name in record_images(run)}
    if hashlib.sha256(PNG).hexdigest() in names:
        ImageStore(folder).put(PNG)
    write_dataset(folder, runs, "trajectories", shard_size=shard_size)
    return folder


def put_entries(folder: Path, entries: Sequence[bytes], version: int, kind: str = "trajectories") -> Path:
    """A data set of one shard with any bytes as records, as a writer of that schema version left it."""
    folder.mkdir(exist_ok=True)
    ImageStore(folder).put(PNG)
    path = folder / "data-00000.array_record"
    write_rows(path, entries)
    shard = {"data": path.name, "images": "", "records": len(entries), "bytes": path.stat().st_size}
    manifest = {"schema_version": version, "kind": kind, "shards": [shard | {"content": ""}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def mine_pools_at(workdir: Path, *pools: Path, workers: int = 1) -> dict:
    """Runs the whole stage; its report."""
    config = get_config("demo")
    config.pools = ",".join(map(str, pools))
    config.workers = workers
    return collection.mine(config, workdir)


def outcome(workdir: Path) -> dict[str, bytes]:
    """Every file of a finished stage; without the seconds, the pools' names, and what names the sizes."""
    found = {}
    for path in sorted(workdir.rglob("*")):
        name = str(path.relative_to(workdir))
        # The script also counts tokens; `mine` does not.
        if path.is_file() and name not in OWN and not path.name.startswith("sizes-"):
            found[stable(name)] = _READ.get(path.name, Path.read_bytes)(path)
    return found


def _manifest(path: Path) -> bytes:
    manifest = json.loads(stable(path.read_text()))
    # The settings are there as well as the folders.
    for fields in (manifest["provenance"], manifest["provenance"]["settings"]):
        for name in ("pools", "workers"):
            fields.pop(name, None)
    return json.dumps(manifest).encode()


def _report(path: Path) -> bytes:
    report = json.loads(path.read_text())
    del report["seconds"], report["pools"]
    return json.dumps(report).encode()


_READ: dict[str, Callable[[Path], bytes]] = {"manifest.json": _manifest, "report.json": _report}
