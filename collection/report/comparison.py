"""Which policies of a table are compared, and what their comparisons come to together."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from collection.evaluation.results import compare
from collection.evaluation.statistics import holm
from collection.report.evaluations import Evaluation
from collection.report.published import ABLATION, REFLECTION, TABLES

FULL = "full"


@dataclasses.dataclass(frozen=True)
class Difference:
    """`first - second` on one benchmark.

    Attributes:
      same_tasks: False when the two did not begin with the same list of tasks and prompts: one played a
        part of them, or their days were moved on another day. True where that was not recorded.
      figures: of `collection.evaluation.results.compare`.
      holm_p: McNemar's p corrected over all comparisons of the table.
    """

    first: str
    second: str
    benchmark: str
    same_tasks: bool
    figures: dict[str, Any]
    holm_p: float


def differences(table: str, evaluations: Sequence[Evaluation]) -> list[Difference]:
    """Every comparison of a table, on each benchmark that both policies were evaluated on.

    Raises:
      UserError: two evaluations on one benchmark have no task in common.
    """
    by_key = {(one.label, one.benchmark): one for one in evaluations}
    benchmarks = list(dict.fromkeys(one.benchmark for one in evaluations))
    compared: list[tuple[str, str, str, bool, dict[str, Any]]] = []
    for first, second in pairs(table, list(dict.fromkeys(one.label for one in evaluations))):
        for benchmark in benchmarks:
            mine, theirs = by_key.get((first, benchmark)), by_key.get((second, benchmark))
            if mine and theirs:
                same = len({mine.tasks_sha256, theirs.tasks_sha256} - {""}) < 2
                figures = compare(mine.results, theirs.results, mine.seed)
                compared.append((first, second, benchmark, same, figures))
    corrected = holm([figures["mcnemar_p"] for *_, figures in compared])
    return [Difference(*one, p) for one, p in zip(compared, corrected, strict=True)]


def pairs(table: str, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Who is compared with whom, as (first, second).

    In the ablation every variant with the full recipe (without it, with the one given first), in the
    reflection table the one with reflection with the one without. In the main table each policy with the
    one before it: in the paper's order within a size, in the order given among all others.
    """
    if table == ABLATION.name:
        reference = FULL if FULL in labels else labels[0]
        return [(label, reference) for label in labels if label != reference]
    known = {row.label: row.note for row in TABLES[table].rows if row.label}
    if table == REFLECTION.name:
        with_, without = known
        found = [(with_, without)] if known.keys() <= set(labels) else []
        others = [label for label in labels if label not in known]
        return [*found, *((second, first) for first, second in itertools.pairwise(others))]
    groups: dict[str, list[str]] = {}
    for label in [*(one for one in known if one in labels), *(one for one in labels if one not in known)]:
        groups.setdefault(known.get(label, ""), []).append(label)
    return [(second, first) for group in groups.values() for first, second in itertools.pairwise(group)]
