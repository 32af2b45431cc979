r"""Draws the report of a run: `index.html`, which opens from disk, and `summary.json`.

    python -m experiments.report --config=configs/report.py:demo --config.run=runs/demo \
        --workdir=runs/demo/report

It may be drawn at any time and again: stages that have not finished are shown as not run. With
`--table=main`, `ablation` or `reflection` it writes that table of the paper instead, from evaluations
(`config.results`), as `table.md`, `table.tex` and `table.html`, with all figures in `table.json` and a plot
of accuracy against cost for each benchmark.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from collection.evaluation.results import to_json
from collection.report.document import build_document, document_files
from collection.report.evaluations import ReportSettings, read_evaluations
from collection.report.page import render_page
from collection.report.published import TABLES
from collection.report.sources import STAGES, RunFolder
from collection.report.summary import build_summary
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.settings import from_config, key_names
from rmsweb_jax.storage import parse_path

_TABLE = flags.DEFINE_string("table", "", f"One of the paper's tables: {', '.join(TABLES)}.")


def main(config: ConfigDict, workdir: Path) -> None:
    """Reads what is there and writes the page, or the table.

    Raises:
      UserError: there is no such run or table, no stage has finished, or a file is damaged; for a table also
        when an evaluation has not finished, or shares no task with one that it is compared with. Policies
        to compare have different judges, and `config.across_judges` is not set.
    """
    settings = from_config(ReportSettings, config)
    if settings.table:
        write_table(settings, workdir)
    else:
        write_page(settings, workdir)


def write_page(settings: ReportSettings, workdir: Path) -> None:
    root = parse_path(settings.run, "config.run")
    if not settings.run or not root.is_dir():
        raise UserError(f"config.run is {settings.run!r}: give --config.run=DIR, a demo's workdir")
    run = RunFolder(root)
    if all(run.report(stage) is None for stage in STAGES):
        raise UserError(
            f"{root}: no stage of the recipe has finished below it: give the folder above the stages, such "
            f"as runs/demo, or look at this one with python -m experiments.view {root}"
        )
    summary = build_summary(run, settings.seed, settings.across_judges)
    write_atomic(workdir / "summary.json", to_json(summary))
    title = root.resolve().name if isinstance(root, Path) else root.name
    write_atomic(workdir / "index.html", render_page(run, summary, title).encode())


def write_table(settings: ReportSettings, workdir: Path) -> None:
    name = settings.table
    if name not in TABLES:
        raise UserError(f"config.table is {name!r}: use one of {', '.join(TABLES)}")
    evaluations = read_evaluations(settings.results, settings.prices, settings.seed)
    command = shlex.join(["python", "-m", "experiments.report", *sys.argv[1:]])
    document, figures = build_document(name, evaluations, command, settings.across_judges, settings.published)
    for file, text in document_files(document).items():
        write_atomic(workdir / file, text.encode())
    write_atomic(workdir / "table.json", to_json(figures))
    print(f"{workdir / 'table.html'}: {len(evaluations)} evaluations; also as Markdown, LaTeX and JSON")


def _entry(config: ConfigDict, workdir: Path) -> None:
    if _TABLE.value:
        config.table = _TABLE.value
    main(config, workdir)


if __name__ == "__main__":
    cli.run(_entry, "configs/report.py:demo", key_names(ReportSettings))
