"""Reads and checks the evaluations named by `config.results`, for the tables."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from collection.evaluation.judge_error import JudgeError, read_error
from collection.evaluation.results import RESULTS, Results, load_results, score
from collection.report.published import BENCHMARKS
from collection.report.sources import RunFolder
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import AnyPath, local_path, parse_path

_LABEL = re.compile(r"[\w.+-]+")
_USAGE = "give --config.results=LABEL=DIR,LABEL=DIR,... with workdirs of experiments.evaluate"
_TITLES = {"miniwob": "MiniWoB++", **{name: one.title for name, one in BENCHMARKS.items()}}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A finished evaluation of one policy on one benchmark.

    Attributes:
      label: name of the policy in tables.
      benchmark: short name; `benchmark_title` gives the display name.
      report: content of its `report.json`.
      seed: seed of the bootstrap.
      judge_error: errors of its judge, if they were measured.
    """

    label: str
    benchmark: str
    results: Results
    report: Mapping[str, Any]
    seed: int
    judge_error: JudgeError | None = None

    @functools.cached_property
    def score(self) -> dict[str, Any]:
        return score(self.results, self.seed)

    @property
    def left_out(self) -> int | None:
        """Number of benchmark tasks that were not played; None if the benchmark's size is unknown."""
        if known := BENCHMARKS.get(self.benchmark):
            return max(0, known.tasks - len(self.results.tasks))
        if self.benchmark == "miniwob":
            return 0  # Its tasks are generated from any number of seeds, so no fixed set can be incomplete.
        return self._about.get("excluded")

    @property
    def tasks_sha256(self) -> str:
        """SHA-256 of all tasks and prompts that were played; "" if not recorded."""
        return self._about.get("tasks_sha256", "")

    @property
    def _about(self) -> Mapping[str, Any]:
        about = self.report.get("benchmark")
        return about if isinstance(about, Mapping) else {}


def benchmark_title(benchmark: str) -> str:
    return _TITLES.get(benchmark, benchmark)


def read_evaluations(named: str, prices: str = "", seed: int = 0, judge_errors: str = "") -> list[Evaluation]:
    """Reads the evaluations of `config.results`, in the order given.

    Args:
      named: `LABEL=DIR` separated by commas; at most one per label and benchmark.
      prices: `LABEL=PROMPT/RESPONSE` separated by commas: US dollars per million tokens, for policies whose
        calls have no recorded price.
      judge_errors: `LABEL=FILE:JUDGE` separated by commas: a file of experiments.judge, and a judge in it.

    Raises:
      UserError: `named` is empty; a folder is missing, damaged or unfinished; a policy has two evaluations
        on a benchmark; a price or a judge's errors have no policy; or see `read_error`.
    """
    pairs = _pairs(named, "config.results", _USAGE)
    if not pairs:
        raise UserError(f"config.results is empty: {_USAGE}")
    paid, errors = _prices(prices), _errors(judge_errors)
    found: dict[tuple[str, str], Evaluation] = {}
    for label, folder in pairs:
        path = parse_path(folder, "config.results")
        report, results = _read(label, path)
        if label in paid:
            results = results.priced(*paid[label])
        key = (label, results.benchmark)
        if key in found:
            raise UserError(
                f"config.results has two evaluations of {label!r} on {benchmark_title(key[1])}: give the "
                "other one another label"
            )
        found[key] = Evaluation(*key, results, report, seed, errors.get(label))
    for setting, given in {"prices": paid, "judge_errors": errors}.items():
        if unknown := sorted(given.keys() - {label for label, _ in pairs}):
            raise UserError(f"config.{setting} names {unknown[0]!r}, which is not a label in config.results")
    return list(found.values())


def _pairs(text: str, setting: str, usage: str) -> list[tuple[str, str]]:
    pairs = []
    # A folder's name may have a comma.
    for part in filter(None, (one.strip(" ,") for one in re.split(r",(?=\s*[\w.+-]+=)", text))):
        label, equals, value = part.partition("=")
        if not equals or not value or not _LABEL.fullmatch(label):
            raise UserError(f"{setting} has {part!r}: {usage}")
        pairs.append((label, value))
    return pairs


def _prices(text: str) -> Mapping[str, tuple[float, float]]:
    usage = "give --config.prices=LABEL=PROMPT/RESPONSE,... in US dollars per million tokens"
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


def _errors(judge_errors: str) -> Mapping[str, JudgeError]:
    """Reads each file and judge once: policies with equal ones have the same errors."""
    usage = "give --config.judge_errors=LABEL=FILE:JUDGE,... with judge_errors.json of experiments.judge"
    named = dict(_pairs(judge_errors, "config.judge_errors", usage))
    read: dict[str, JudgeError] = {}
    for value in set(named.values()):
        file, colon, judge = value.rpartition(":")
        if not colon:
            raise UserError(f"config.judge_errors has {value!r}: {usage}")
        read[value] = read_error(local_path(file, "config.judge_errors"), judge, "config.judge_errors")
    return {label: read[value] for label, value in named.items()}


def _read(label: str, folder: AnyPath) -> tuple[Mapping[str, Any], Results]:
    if not folder.is_dir():
        raise UserError(f"config.results: there is no folder {folder} (of {label!r}): {_USAGE}")
    report = RunFolder(folder).report(".")
    if report is None:
        raise UserError(
            f"{folder}: this evaluation has not finished ({_progress(folder)}): run its command again to "
            "finish it, then make the table"
        )
    if report.get("stage") != "evaluate":
        raise UserError(f"{folder}: not a workdir of experiments.evaluate: {_USAGE}")
    results = load_results(folder)
    if (report.get("tasks"), report.get("runs")) != (len(results.tasks), results.runs):
        raise UserError(
            f"{folder}: report.json and {RESULTS} are not of the same evaluation: delete report.json and "
            "run its command again"
        )
    if not results.tasks:
        raise UserError(f"{folder}: its results hold no tasks: evaluate on some")
    return report, results


def _progress(folder: AnyPath) -> str:
    try:
        state = json.loads((folder / "progress.json").read_bytes())
        return f"{state['done']} of {state['total']} are done"
    except (OSError, ValueError, KeyError, TypeError):
        return "there is no report.json"
