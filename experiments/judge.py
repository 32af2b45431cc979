"""Judges on recorded runs: their verdicts, how far they agree, and what became of failures.

    python -m experiments.judge --config=configs/judge.py:own --config.data=runs/evaluate/sft \
        --config.actor.base_url=URL --config.actor.model=gpt-4o --workdir=runs/judge

The workdir gets `judgements.jsonl` (a line a run and judge), `judge_errors.json` (how often each judge passes
successes and fails failures of the reference, by which `experiments.report` corrects rates),
`cross_check.jsonl` (a line a failure that was looked at again), the sheet `agreement.md` and `.tex`,
`calls.jsonl` with what each call took and what was answered, so that the same command asks nothing twice, and
last `report.json` with all figures.
"""

from __future__ import annotations

import functools
import itertools
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from collection.evaluation.judge_error import ERRORS
from collection.judges.agreement import LABELS, agreement_figures, agreement_sheet
from collection.judges.base import Judge
from collection.judges.build import make_cross_check, make_judges
from collection.judges.config import JudgeDataSettings
from collection.judges.cross_check import CrossCheck, CrossChecked, is_worth_it, summarize
from collection.judges.judgements import Judgement, RunFacts, in_order, judge_runs
from collection.judges.labels import read_labels
from collection.judges.model_judge import ModelJudge
from collection.judges.notes import read_notes
from collection.llm.calls import CALLS, Calls
from collection.report.tables import to_latex, to_markdown
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.bucket import address, freeze
from rmsweb_jax.records.dataset import dataset_size, read_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.storage import AnyPath, local_path, parse_path


def main(settings: JudgeDataSettings, workdir: Path) -> None:
    """Writes judgements and sheet and then the report, whose presence means that the stage is done."""
    path, sheet = workdir / "report.json", workdir / "agreement.md"
    if not path.exists():
        report = judge_data(settings, workdir)
        document = agreement_sheet(report, shlex.join(["python", "-m", "experiments.judge", *sys.argv[1:]]))
        write_atomic(sheet, to_markdown(document).encode())
        write_atomic(sheet.with_suffix(".tex"), to_latex(document).encode())
        write_atomic(path, json.dumps(report, indent=1).encode())
    print(f"{sheet.read_text()}\n{sheet}: this sheet; {sheet.with_suffix('.tex')}: for LaTeX")


def judge_data(settings: JudgeDataSettings, workdir: Path) -> dict[str, Any]:
    """Lets all judges pass their verdicts; returns the report.

    Raises:
      UserError: a setting or a file is not as it has to be; or a model will answer no question.
    """
    start = time.monotonic()
    data = [freeze(path, workdir) for path in _folders(settings.data)]
    runs = _facts(data)
    # Before the first call: labels of other runs are not to cost one.
    labels = None
    if settings.labels:
        labels = read_labels(local_path(settings.labels, "config.labels"), runs, settings.labels_agent)
    notes = read_notes(local_path(settings.notes, "config.notes")) if settings.notes else {}
    actor, of = settings.actor.resolve(), settings.cross_check
    calls = Calls(workdir / CALLS)
    judges = make_judges(settings, actor, notes, calls)
    checker = make_cross_check(actor, calls, settings.show_screenshots) if of else None
    given = [LABELS] if labels and labels.verdicts else []
    reference = settings.reference or "".join(given)
    _refuse_unknown("reference", reference, {"", *judges, *given})
    if checker:
        _refuse_unknown("cross_check", of, set(judges))
    judgements = _judge(data, judges, settings.workers, workdir)
    checked = _check(data, checker, of, judges, judgements, settings.workers, workdir) if checker else []
    report = {
        "stage": "judge",
        "seconds": round(time.monotonic() - start, 1),
        "data": ", ".join(map(address, data)),
        "labels": str(labels) if labels else "",
        "runs": len({one.trajectory_id for one in judgements}),
        "tasks": len({one.task_id for one in judgements}),
        **agreement_figures(runs, judgements, labels.verdicts if labels else {}, reference, settings.rows),
        "cross_check": {"of": of, "name": checker.model.name, **summarize(checked)} if checker else {},
        **_spent(judges, checker, calls),
    }
    write_atomic(workdir / ERRORS, json.dumps(report["errors"], indent=1).encode())
    for name, judge in judges.items():
        report["judges"][name]["name"] = judge.name
    return report


def _folders(text: str) -> list[AnyPath]:
    folders = [parse_path(name.strip(), "config.data") for name in text.split(",") if name.strip()]
    return folders or [parse_path("", "config.data")]


def _facts(data: Sequence[AnyPath]) -> list[RunFacts]:
    """Reads all runs once; refuses data sets with equal runs, whose verdicts could not be distinguished."""
    names = [path.name for path in data]
    named = names if len(set(names)) == len(names) else list(map(str, data))
    runs: dict[str, RunFacts] = {}
    for path, name in zip(data, named, strict=True):
        for run in read_dataset(path, Trajectory):
            if run.trajectory_id in runs:
                raise UserError(f"config.data: {run.trajectory_id} is there twice: give each run once")
            runs[run.trajectory_id] = RunFacts.of(run, name if len(data) > 1 else "")
    return list(runs.values())


def _refuse_unknown(key: str, name: str, known: set[str]) -> None:
    if name not in known:
        names = ", ".join(sorted(known - {""})) or "none"
        raise UserError(f"config.{key}={name!r}: no judge of that name runs here: take one of {names}")


def _judge(
    data: Sequence[AnyPath], judges: Mapping[str, Judge], workers: int, workdir: Path
) -> list[Judgement]:
    progress = Progress(workdir, "judge", total=sum(map(dataset_size, data)) * len(judges))
    made = (judge_runs(read_dataset(one, Trajectory), judges, ImageStore(one), workers) for one in data)
    judgements = list(_watched(itertools.chain.from_iterable(made), progress))
    _write(workdir / "judgements.jsonl", judgements)
    return judgements


def _check(
    data: Sequence[AnyPath],
    checker: CrossCheck,
    of: str,
    judges: Mapping[str, Judge],
    judgements: Sequence[Judgement],
    workers: int,
    workdir: Path,
) -> list[CrossChecked]:
    judge = judges[of]
    seen = judge.sees if isinstance(judge, ModelJudge) else ""
    by_run = {one.trajectory_id: one for one in judgements if one.judge == of}

    def calls() -> Iterator[Callable[[], CrossChecked]]:
        for folder in data:
            images = ImageStore(folder)
            for run in read_dataset(folder, Trajectory):
                judgement = by_run[run.trajectory_id]
                if is_worth_it(run, judgement):
                    yield functools.partial(checker.check, run, judgement, seen, images)

    total = sum(one.success is False for one in by_run.values())
    checked = list(_watched(in_order(calls(), workers), Progress(workdir, "cross-check", total)))
    _write(workdir / "cross_check.jsonl", checked)
    return checked


def _watched(results: Iterable[Any], progress: Progress) -> Iterator[Any]:
    for done, result in enumerate(results, start=1):
        yield result
        progress.update(done)
    progress.close()


def _spent(judges: Mapping[str, Judge], checker: CrossCheck | None, calls: Calls) -> dict[str, Any]:
    """Questions that were answered now and before, and the calls of all runs of this workdir."""
    models = [one.model for one in (*judges.values(), checker) if isinstance(one, (ModelJudge, CrossCheck))]
    requests = {"asked": sum(one.asked for one in models), "cache_hits": sum(one.hits for one in models)}
    return {"requests": requests, "calls": calls.totals(), "cost_usd": round(calls.spent(), 6)}


def _write(path: Path, lines: Iterable[BaseModel]) -> None:
    write_atomic(path, "".join(f"{line.model_dump_json()}\n" for line in lines).encode())


if __name__ == "__main__":
    cli.run(main, "configs/judge.py:demo", JudgeDataSettings)
