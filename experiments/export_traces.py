r"""Writes episodes of a data set as files for other tools: ATIF documents, or sessions for the Hub's viewer.

    python -m experiments.export_traces --config=configs/export_traces.py:atif --config.data=data/collect \
        --workdir=data/atif

The workdir gets the folder `traces`: one file per episode, and `images`, to which the files refer by path.
`report.json` counts them. The same command again continues where a stopped one ended. Secrets are
placeholders, as in the data set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import rmsweb_jax
from collection.config import ExportTracesSettings
from collection.formats import TraceCounts, write_traces
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.bucket import address, freeze
from rmsweb_jax.records.dataset import iter_records
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.storage import AnyPath, parse_path

FOLDER = "traces"


def main(settings: ExportTracesSettings, workdir: Path) -> None:
    """Writes the files and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    start = time.monotonic()
    data = freeze(parse_path(settings.data, "config.data"), workdir)
    images, counts = ImageStore(data), TraceCounts()
    runs = read_trajectories(data, workdir)
    write_traces(runs, images, workdir / FOLDER, settings, rmsweb_jax.__version__, counts)
    summary = {"stage": "export_traces", "seconds": time.monotonic() - start, "data": address(data)}
    summary |= {"format": settings.format, **counts.to_json()}
    write_atomic(workdir / "report.json", json.dumps(summary, indent=1).encode())


def read_trajectories(data: AnyPath, workdir: Path) -> Iterator[Trajectory]:
    """Yields the episodes, with few of them in memory; long ones take megabytes each.

    Raises:
      UserError: as `read_dataset`; or these are no trajectories.
    """
    manifest = read_manifest(data)
    if manifest.kind != "trajectories":
        raise UserError(f"{data}: holds {manifest.kind}, not trajectories: give another --config.data")
    progress = Progress(workdir, "export_traces", manifest.records)
    for done, record in enumerate(iter_records(data, manifest, at_once=1), 1):
        assert isinstance(record, Trajectory)
        yield record
        progress.update(done)
    progress.close()


if __name__ == "__main__":
    cli.run(main, "configs/export_traces.py:atif", ExportTracesSettings)
