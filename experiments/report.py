r"""Draws the report of a run: `index.html`, which opens from disk, and `summary.json`.

    python -m experiments.report --config=configs/report.py:demo --config.run=runs/demo \
        --workdir=runs/demo/report

It may be drawn at any time and again: stages that have not finished are shown as not run.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from collection.evaluation.results import to_json
from collection.report.page import render_page
from collection.report.sources import RunFolder
from collection.report.summary import build_summary
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic


def main(config: ConfigDict, workdir: Path) -> None:
    """Reads what is there and writes both files.

    Raises:
      UserError: there is no such run, or one of its files is damaged.
    """
    settings = config.to_dict()
    root = Path(settings["run"])
    if not settings["run"] or not root.is_dir():
        raise UserError(f"config.run is {settings['run']!r}: give --config.run=DIR, a demo's workdir")
    run = RunFolder(root)
    summary = build_summary(run, settings["seed"])
    write_atomic(workdir / "summary.json", to_json(summary))
    write_atomic(workdir / "index.html", render_page(run, summary, root.resolve().name).encode())


if __name__ == "__main__":
    cli.run(main, "configs/report.py:demo", ("run", "seed"))
