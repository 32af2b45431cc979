r"""Draws the report of a run: its figures, tables and plots, and the viewer's pages, which open from disk.

`summary.json` has all figures; the tables and plots are of its evaluations and trainings; `pages/index.html`
is the place to look. The folder of one stage gets these pages alone.

    python -m experiments.report --config=configs/report.py:demo --config.run=runs/demo \
        --workdir=runs/demo/report

It may be drawn at any time and again: stages that have not finished are shown as not run. With
`--table=main`, `ablation` or `reflection` it writes that table of the paper instead, from evaluations
(`config.results`), as `table.md` and a LaTeX file for each table in it, with all figures in `table.json`, and
plots of pass@1 over policies and of accuracy against cost, as PDF and PNG with the CSV of their data.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from collection.config import ReportSettings
from collection.evaluation.results import to_json
from collection.report.evaluations import Evaluation, read_evaluations
from collection.report.published import TABLES
from collection.report.sources import LABELS, STAGES, RunFolder
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import parse_path

_TABLE = flags.DEFINE_string("table", "", f"One of the paper's tables: {', '.join(TABLES)}.")


def main(settings: ReportSettings, workdir: Path) -> None:
    """Reads what is there and writes the report of the run, or the table.

    Raises:
      UserError: there is no such run or table, no stage has finished, or a file is damaged; for a table also
        when an evaluation has not finished, or shares no task with one that it is compared with. Policies
        to compare have different judges, and `config.across_judges` is not set.
    """
    if settings.table:
        if settings.table not in TABLES:
            raise UserError(f"config.table is {settings.table!r}: use one of {', '.join(TABLES)}")
        evaluations = read_evaluations(settings.results, settings.prices, judge_errors=settings.judge_errors)
        figures = write_tables(settings.table, evaluations, settings, workdir)
        write_atomic(workdir / "table.json", to_json(figures))
        print(f"{workdir / 'table.md'}: {len(evaluations)} evaluations; also as LaTeX and JSON, and plots")
    else:
        write_report(settings, workdir)


def write_report(settings: ReportSettings, workdir: Path) -> None:
    # They draw figures, whose package takes a second to import; so does the viewer.
    from collection.report.plots import curve_plots, dynamics_plot
    from collection.report.summary import build_summary

    root = parse_path(settings.run, "config.run")
    if not settings.run or not root.is_dir():
        raise UserError(f"config.run is {settings.run!r}: give --config.run=DIR, a demo's workdir")
    run = RunFolder(root)
    is_recipe = any(run.report(stage) for stage in STAGES)
    if not is_recipe and run.report(".") is None:
        raise UserError(
            f"{root}: has no report.json, and no stage of the recipe has finished below it: let the run "
            f"finish, or look at it with python -m experiments.view {root}"
        )
    # What is in a bucket has no pages.
    pages = export_pages(root, workdir / "pages", settings.pages) if isinstance(root, Path) else None
    if is_recipe:
        summary = build_summary(run, across_judges=settings.across_judges)
        write_atomic(workdir / "summary.json", to_json(summary))
        named = [f"{label}={root / f'evaluate/{label}'}" for label in LABELS if summary["models"][label]]
        if named:
            write_tables("main", read_evaluations(",".join(named)), settings, workdir)
        for stage in ("sft", "rl"):
            rows = run.curves(stage)
            for plot in (*curve_plots(rows, stage), *(dynamics_plot([rows]) if stage == "rl" else ())):
                plot.write(workdir / "curves")
    elif pages is None:
        raise UserError(f"{root}: pages are made of a folder on disk, and of at least one episode")
    if pages is not None:
        print(f"{pages}: open it in a browser")


def write_tables(
    name: str, evaluations: Sequence[Evaluation], settings: ReportSettings, workdir: Path
) -> dict[str, Any]:
    """Writes the tables around one of the paper's, and their plots; returns their figures."""
    from collection.report.document import build_document, write_document

    command = shlex.join(["python", "-m", "experiments.report", *sys.argv[1:]])
    columns = [one.strip() for one in settings.columns.split(",") if one.strip()]
    document, figures, plots = build_document(
        name, evaluations, command, settings.across_judges, settings.published, columns
    )
    write_document(document, plots, workdir)
    return figures


def export_pages(root: Path, folder: Path, most: int) -> Path | None:
    """Replaces the exported pages of a run; returns the first one, None if `most` is 0."""
    from collection.viewer.export import export
    from collection.viewer.folders import Folders
    from collection.viewer.index import EpisodeIndex
    from collection.viewer.labels import LABELS_FOLDER, Labels
    from collection.viewer.pages import Pages

    if not most:
        return None
    made = folder.with_name("pages.new")
    for old in (made, folder):
        shutil.rmtree(old, ignore_errors=True)
    folders = Folders([root])
    with tempfile.TemporaryDirectory() as scratch:
        index = EpisodeIndex(Path(scratch) / "index.sqlite", folders)
        index.refresh()
        start = export(Pages(folders, index, Labels(root / LABELS_FOLDER)), index, made, most)
    made.rename(folder)
    return folder / start.name


def _entry(settings: ReportSettings, workdir: Path) -> None:
    main(settings.model_copy(update={"table": _TABLE.value or settings.table}), workdir)


if __name__ == "__main__":
    cli.run(_entry, "configs/report.py:demo", ReportSettings, free=True)
