"""Evaluations to put into a table: what `config.results` names, read and checked."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collection.evaluation.results import Results, load_results, score
from collection.report.published import BENCHMARKS
from collection.report.sources import RunFolder
from rmsweb_jax.errors import UserError

_LABEL = re.compile(r"[\w.+-]+")
_USAGE = "give --config.results=LABEL=DIR,LABEL=DIR,... with workdirs of experiments.evaluate"
_TITLES = {"miniwob": "MiniWoB++", **{name: one.title for name, one in BENCHMARKS.items()}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """Settings of `experiments.report`.

    Attributes:
      run: the folder whose stages are reported; those that have not run are shown so.
      table: instead of the page one of the paper's tables: "main", "ablation" or "reflection" (also
        `--table=NAME`).
      results: its evaluations: LABEL=DIR,LABEL=DIR,... with workdirs of experiments.evaluate, one for each
        benchmark.
      prices: LABEL=PROMPT/RESPONSE,...: US dollars a million tokens, for policies without a price on record.
      seed: of the bootstrap.
    """

    run: str = ""
    table: str = ""
    results: str = ""
    prices: str = ""
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A finished evaluation of one policy on one benchmark.

    Attributes:
      label: what the policy is called in tables.
      benchmark: name; see `benchmark_title`.
      report: its `report.json`.
      seed: of the bootstrap.
    """

    label: str
    benchmark: str
    results: Results
    report: Mapping[str, Any]
    seed: int

    @functools.cached_property
    def score(self) -> dict[str, Any]:
        return score(self.results, self.seed)

    @property
    def left_out(self) -> int | None:
        """Number of the benchmark's tasks that were not played; None if its size is unknown."""
        if known := BENCHMARKS.get(self.benchmark):
            return max(0, known.tasks - len(self.results.tasks))
        if self.benchmark == "miniwob":
            return 0  # Its tasks are made, from as many seeds as one likes.
        return self._about.get("excluded")

    @property
    def tasks_sha256(self) -> str:
        """Of all tasks and prompts that were played; "" where it was not recorded."""
        return self._about.get("tasks_sha256", "")

    @property
    def _about(self) -> Mapping[str, Any]:
        about = self.report.get("benchmark")
        return about if isinstance(about, Mapping) else {}


def benchmark_title(benchmark: str) -> str:
    return _TITLES.get(benchmark, benchmark)


def read_evaluations(named: str, prices: str = "", seed: int = 0) -> list[Evaluation]:
    """The evaluations of `config.results`, in the order given.

    Args:
      named: `LABEL=DIR` separated by commas; a label comes once for each benchmark.
      prices: `LABEL=PROMPT/RESPONSE` separated by commas: US dollars a million tokens, for policies whose
        calls have no price on record.

    Raises:
      UserError: nothing is named, a folder is missing, damaged or half finished, a policy has two
        evaluations on a benchmark, or a price fits no policy.
    """
    pairs = _pairs(named, "config.results", _USAGE)
    if not pairs:
        raise UserError(f"config.results is empty: {_USAGE}")
    paid = _prices(prices)
    found: dict[tuple[str, str], Evaluation] = {}
    for label, folder in pairs:
        report, results = _read(label, Path(folder))
        if label in paid:
            results = results.priced(*paid[label])
        key = (label, _benchmark(results, Path(folder)))
        if key in found:
            raise UserError(
                f"config.results has two evaluations of {label!r} on {benchmark_title(key[1])}: give the "
                "other one a label of its own"
            )
        found[key] = Evaluation(*key, results, report, seed)
    if unknown := sorted(paid.keys() - {label for label, _ in pairs}):
        raise UserError(f"config.prices names {unknown[0]!r}, which is no label of config.results")
    return list(found.values())


def _pairs(text: str, setting: str, usage: str) -> list[tuple[str, str]]:
    pairs = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        label, equals, value = part.partition("=")
        if not equals or not value or not _LABEL.fullmatch(label):
            raise UserError(f"{setting} has {part!r}: {usage}")
        pairs.append((label, value))
    return pairs


def _prices(text: str) -> Mapping[str, tuple[float, float]]:
    usage = "give --config.prices=LABEL=PROMPT/RESPONSE,... in US dollars a million tokens"
    prices = {}
    for label, value in _pairs(text, "config.prices", usage):
        try:
            prompt, response = (float(one) for one in value.split("/"))
        except ValueError:
            prompt = response = -1.0
        if prompt < 0 or response < 0:
            raise UserError(f"config.prices has {label}={value}: {usage}")
        prices[label] = (prompt, response)
    return prices


def _read(label: str, folder: Path) -> tuple[Mapping[str, Any], Results]:
    if not folder.is_dir():
        raise UserError(f"config.results: {label!r} is at {folder}, where no folder is: {_USAGE}")
    report = RunFolder(folder).report(".")
    if report is None:
        raise UserError(
            f"{folder}: this evaluation has not finished ({_progress(folder)}): run its command again to "
            "finish it, then make the table"
        )
    if report.get("stage") != "evaluate":
        raise UserError(f"{folder}: was not made by experiments.evaluate: {_USAGE}")
    path = folder / "results.json"
    if not path.exists():
        raise UserError(f"{path} is missing next to report.json: copy it too, or evaluate again")
    results = load_results(path)
    if (report.get("tasks"), report.get("runs")) != (len(results.tasks), results.runs):
        raise UserError(
            f"{folder}: report.json and results.json are not of the same evaluation: delete report.json and "
            "run its command again"
        )
    if not results.tasks:
        raise UserError(f"{path} holds no tasks: evaluate on some")
    return report, results


def _progress(folder: Path) -> str:
    try:
        state = json.loads((folder / "progress.json").read_bytes())
        return f"{state['done']} of {state['total']} are done"
    except (OSError, ValueError, KeyError, TypeError):
        return "there is no report.json"


def _benchmark(results: Results, folder: Path) -> str:
    """Its name; results from before it was recorded tell it by their tasks' ids."""
    names = {results.benchmark} - {""} or {task.task_id.partition("/")[0] for task in results.tasks}
    if len(names) > 1:
        raise UserError(
            f"{folder}: holds tasks of several benchmarks ({', '.join(sorted(names))}): evaluate each by "
            "itself"
        )
    return names.pop()
