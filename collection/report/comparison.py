"""Selects the pairs of policies to compare in a table; corrects their p-values over the table."""

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
      same_tasks: False if the two were started with different lists of tasks and prompts: one played only
        a part, or its dates were refreshed on another day. True if that was not recorded.
      figures: of `collection.evaluation.results.compare`.
      holm_p: the permutation test's p corrected over all comparisons of the table.
    """

    first: str
    second: str
    benchmark: str
    same_tasks: bool
    figures: dict[str, Any]
    holm_p: float


def differences(
    table: str, evaluations: Sequence[Evaluation], across_judges: bool = False
) -> list[Difference]:
    """Computes every comparison of a table, on each benchmark that both policies were evaluated on.

    Raises:
      UserError: two evaluations on one benchmark have no task in common, or other judges (unless
        `across_judges`).
    """
    by_key = {(one.label, one.benchmark): one for one in evaluations}
    benchmarks = list(dict.fromkeys(one.benchmark for one in evaluations))
    compared: list[tuple[str, str, str, bool, dict[str, Any]]] = []
    for first, second in pairs(table, list(dict.fromkeys(one.label for one in evaluations))):
        for benchmark in benchmarks:
            mine, theirs = by_key.get((first, benchmark)), by_key.get((second, benchmark))
            if mine and theirs:
                # Results from before the digest was recorded count as the same.
                same = len({mine.tasks_sha256, theirs.tasks_sha256} - {""}) < 2
                figures = compare(mine.results, theirs.results, mine.seed, across_judges)
                compared.append((first, second, benchmark, same, figures))
    corrected = holm([figures["permutation_p"] for *_, figures in compared])
    return [Difference(*one, p) for one, p in zip(compared, corrected, strict=True)]


def pairs(table: str, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the labels to compare, as (first, second).

    The ablation compares every variant with the full recipe (if that is missing, with the first variant
    given). The reflection table compares the policy with reflection to the one without. The main table
    compares each policy with the previous one: policies of the paper in its order within a model size, all
    others in the order given.
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
