"""Imports runs of other web agents as trajectories: browser-use, WebVoyager, Fara, MolmoWeb and others.

    python -m experiments.import_runs --config=configs/import_runs.py:browser_use \
        --config.source=/runs/browser_use --workdir=data/imported

The workdir becomes a data set folder of trajectories with their screenshots, as of `experiments.collect`.
`report.json` counts what was imported, skipped and missing; `import_report.jsonl` says it of every run.
The same command again continues where a killed run stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from collection.config import ImportSettings
from collection.formats import READERS, ImportReport, import_runs, load_tasks
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.storage import local_path


def main(settings: ImportSettings, workdir: Path) -> None:
    """Writes the data set and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    start = time.monotonic()
    source, kind = local_path(settings.source, "config.source"), READERS[settings.kind]
    tasks = load_tasks(local_path(settings.tasks, "config.tasks")) if settings.tasks else {}
    found = [path for _, path in kind.find(source)] if source.is_dir() else []
    with open(workdir / "import_report.jsonl", "w", encoding="utf-8") as file:
        report = ImportReport(lambda line: print(json.dumps(line), file=file))
        stream = import_runs(kind, source, ImageStore(workdir), tasks, settings.actor, report)
        trajectories = _watched(stream, Progress(workdir, "import_runs", len(found)), report)
        first = next(trajectories, None)
        if first is None:
            raise UserError(_nothing(source, kind.source, report))
        whole = itertools.chain([first], trajectories)
        provenance = {"source": str(source), "kind": settings.kind, "listing_sha256": _listing(found)}
        write_dataset(workdir, whole, "trajectories", provenance)
        file.flush()
        os.fsync(file.fileno())
    counts = {"stage": "import_runs", "seconds": time.monotonic() - start, "source": str(source)}
    summary = counts | {"kind": settings.kind, "actor": settings.actor, **report.to_json()}
    write_atomic(workdir / "report.json", json.dumps(summary, indent=1).encode())


def _watched(stream: Iterator[Trajectory], progress: Progress, report: ImportReport) -> Iterator[Trajectory]:
    for number, trajectory in enumerate(stream, start=1):
        yield trajectory
        progress.update(number + len(report.skipped))
    progress.close()


def _listing(paths: list[Path]) -> str:
    """Fingerprint of the source: changes with the names and times of its runs."""
    stamps = [f"{path} {path.stat().st_mtime_ns}" for path in paths]
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()


def _nothing(source: Path, name: str, report: ImportReport) -> str:
    if not report.skipped:
        return f"{source}: no {name} runs here: give the folder with the runs, or another --config variant"
    first = report.skipped[0]
    return (
        f"{source}: none of {len(report.skipped)} {name} runs could be imported "
        f"({first['run']}: {first['reason']}): see import_report.jsonl in the workdir"
    )


if __name__ == "__main__":
    cli.run(main, "configs/import_runs.py:browser_use", ImportSettings)
