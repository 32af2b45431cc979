"""Does the miner find what was planted, and do its rules label as people would? On made-up pairs.

python -m tests.proofs.mining --output=docs/results/mining.md
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from collection.mining.audit import to_audit
from collection.mining.balance import BalanceConfig, passes_runtime_gate
from collection.mining.failure_modes import TAXONOMY, rule_label
from collection.mining.runs import parse_run
from rmsweb_jax.records.files import write_atomic
from tests.mining.case_files import Case, load_cases
from tests.mining.measured import Measured, measure
from tests.mining.planted import CATEGORIES, Planted, planted_pair, unplanted_pair
from tests.mining.planted.unplanted import KINDS

PAGE = """\
# Failure-mode mining on pairs whose divergence is known

    make proof-mining

runs `{command}`,
which writes this page.

**Every pair on this page is made up.** Planted and unplanted pairs are generated (`tests/mining/planted`:
two walks over a small made-up site, filled up with elements of real pages); labelled cases and told
contrasts are written by hand (`tests/mining/cases`). No run of a real model on a real site is among them,
and a case's label is its writer's alone. So the page says that the miner finds what it is meant to find where
that is known, not how often it is right on real runs.

Rules and weights were tuned on planted and unplanted seeds 0-19 and on the {tuned} labelled cases, and the
scale of the scores on the four told contrasts. Nothing was tuned on the seeds from {first} on, nor on the
{held_out} cases held out. Seeds from {first} on are new pairs, but of the same stories.

Labels are the rules' (no model is asked); each pair is mined by itself, with the recipe's gates.

{goals}

## Planted divergences

Seeds {first}-{last} of each category. *Step found*: the pair is kept at the planted success step, so the RL
corpus gets that prompt. *Pair found*: the localization step, too, is one at which the run stands before that
decision. *Label right*: the rules name the planted failure mode; *other labels*: the commonest three.

| category | pairs | mean success steps | step found | pair found | label right | other labels |
|---|---|---|---|---|---|---|
{planted}

Of {kept} kept pairs {elsewhere} are kept at another step: those would be wrong prompts. A step drawn from the
success's candidates would be the planted one in {chance} of the pairs.

Labels are worse than steps: {mislabelled} pairs are labelled otherwise than planted. The label is a soft
prior, so in {found_mislabelled} of them the step is found all the same; but it is by labels that the corpus
is balanced. Balancing is not part of this page. It is stricter about runtime failures: of {runtime} kept
pairs labelled `runtime_evaluation`, {runtime_trusted} pass its gate.

## Nothing planted

Seeds {first}-{last_unplanted}, kinds in turns. The second run failed, or was longer, for no decision at an
aligned state: the judge saw the same actions otherwise; the runs differ by looking around, by searching or by
spelling alone; the browser was elsewhere; the record lost its pages. None should be kept.

| kind | pairs | kept | decisions |
|---|---|---|---|
{unplanted}

## Misses

Planted steps missed: {missed}. Unplanted pairs kept: {false}. Steps found beside another localization step:
{other_side}. Shown, in that order: {shown}. The decision is `kept`, or the gate that no candidate passed.
Steps count from 1; *planted* is the success step and every localization step that would do.

| pair | decision | label | chosen | planted | state | action | category | total \
| closure | violation | recovered |
|---|---|---|---|---|---|---|---|---|---|---|---|
{listed}

## Rule labels beside the writers'

The first guess of the rules on the {tuned} cases they were tuned on, and on the {held_out} held out.

| category | tuned on | held out |
|---|---|---|
{labels}

Rows: the writer's label; columns: the rules', by number. A cell: of those tuned on + of those held out.

| | {numbers} |
{rules}
{confusion}

## Contrasts told in the paper

RMSWeb tells four mined pairs, in a line each. Their pages and the steps around them are this project's, so
S_total may differ by up to {tolerance}.

| contrast | failure mode | label | told steps | chosen steps | told S_total | S_total | S_state | S_action \
| S_category | as told |
|---|---|---|---|---|---|---|---|---|---|---|
{told}
"""


CASES, HELD_OUT, PAPER_CASES = map(load_cases, ("tuned", "held_out", "paper"))
# Rules and weights were tuned on seeds below 20.
FIRST = 1000
MIN_FOUND, MIN_LABELS, TOLERANCE = 0.95, 0.70, 0.08
SHOWN = 40
_SCORES = ("state", "action", "category", "total", "closure", "violation", "recovered")


@dataclasses.dataclass(frozen=True)
class Row:
    """What is told of a planted pair; the pair itself is let go.

    Attributes:
      chance: that a step drawn among the success's candidates is the planted one.
      trusted: kept, and by the stricter gate of balancing for runtime failures, too.
    """

    group: str
    decision: str
    label: str
    kept: bool
    found: bool
    exact: bool
    labelled: bool
    steps: int
    chance: float
    trusted: bool
    told: str

    @classmethod
    def of(cls, one: Measured, seed: int) -> Row:
        planted, case = one.planted, one.case
        group = planted.category or planted.note
        wanted = f"{planted.success_step}; {_numbers(planted.acceptable_localization_steps)}"
        scores = [f"{case.scores[name]:.2f}" if name in case.scores else "-" for name in _SCORES]
        return cls(
            group=group,
            decision=case.decision,
            label=case.label.category,
            kept=one.kept,
            found=one.found,
            exact=one.exact,
            labelled=one.labelled,
            steps=len(planted.success.steps),
            chance=1 / max(len(case.pair.success.candidates), 1),
            trusted=one.kept and passes_runtime_gate(to_audit(case, [case]), BalanceConfig()),
            told=_line(
                f"{group} {seed}",
                case.decision,
                f"{case.label.category} {case.label.confidence:.2f}",
                "; ".join(map(str, one.chosen or ("-",))),
                wanted if planted.category else "none",
                *scores,
            ),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the page.

    Raises:
      SystemExit: a goal was not reached; the page is written all the same.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="planted pairs of each category")
    parser.add_argument("--unplanted", type=int, default=30, help="pairs of each kind without a divergence")
    parser.add_argument("--output", type=Path, default=Path("docs/results/mining.md"))
    options = parser.parse_args(arguments)
    seeds = range(FIRST, FIRST + options.seeds)
    planted = [
        Row.of(measure(planted_pair(category, seed)), seed) for category in CATEGORIES for seed in seeds
    ]
    seeds = range(FIRST, FIRST + options.unplanted * len(KINDS))
    unplanted = [Row.of(measure(unplanted_pair(seed)), seed) for seed in seeds]
    goals = {
        f"at least {MIN_FOUND:.0%} of the planted success steps are found": _share(planted) >= MIN_FOUND,
        "no pair without a divergence is kept": not any(one.kept for one in unplanted),
        f"at least {MIN_LABELS:.0%} of the rule labels are the writer's, on both sets of cases": all(
            _right(cases) >= MIN_LABELS * len(cases) for cases in (CASES, HELD_OUT)
        ),
        "the four told contrasts are mined as told": all(holds for _, holds in map(told, PAPER_CASES)),
    }
    command = f"python -m tests.proofs.mining --seeds={options.seeds} --unplanted={options.unplanted}"
    text = page(planted, unplanted, goals, f"{command} --output={options.output}")
    write_atomic(options.output, text.encode())
    print(text)
    if missed := [goal for goal, holds in goals.items() if not holds]:
        sys.exit(f"error: not so: {'; '.join(missed)}")


def page(planted: Sequence[Row], unplanted: Sequence[Row], goals: dict[str, bool], command: str) -> str:
    missed = [one for one in planted if not one.found]
    other_side = [one for one in planted if one.found and not one.exact]
    false = [one for one in unplanted if one.kept]
    listed = [*missed, *false, *other_side]
    runtime = [one for one in planted if one.kept and one.label == "runtime_evaluation"]
    return PAGE.format(
        command=command,
        goals="\n".join(f"- {goal}: {'yes' if holds else 'NO'}" for goal, holds in goals.items()),
        first=FIRST,
        last=FIRST + len(planted) // len(CATEGORIES) - 1,
        last_unplanted=FIRST + len(unplanted) - 1,
        tuned=len(CASES),
        held_out=len(HELD_OUT),
        planted="\n".join(_planted_rows(planted)),
        found_mislabelled=sum(one.found and not one.labelled for one in planted),
        mislabelled=sum(not one.labelled for one in planted),
        chance=f"{statistics.mean(one.chance for one in planted):.0%}",
        runtime=len(runtime),
        runtime_trusted=sum(one.trusted for one in runtime),
        unplanted="\n".join(_unplanted_rows(unplanted)),
        missed=len(missed),
        kept=sum(one.kept for one in planted),
        elsewhere=sum(one.kept for one in missed),
        other_side=len(other_side),
        false=len(false),
        shown=min(SHOWN, len(listed)),
        listed="\n".join(one.told for one in listed[:SHOWN]) or _line(*["-"] * 12),
        labels="\n".join(_label_rows()),
        numbers=" | ".join(map(str, range(1, len(TAXONOMY) + 1))),
        rules="|---" * (len(TAXONOMY) + 1) + "|",
        confusion="\n".join(_confusion_rows()),
        told="\n".join(line for line, _ in map(told, PAPER_CASES)),
        tolerance=TOLERANCE,
    )


def _planted_rows(rows: Sequence[Row]) -> Iterable[str]:
    for name in (*CATEGORIES, "all"):
        part = [one for one in rows if name in (one.group, "all")]
        counts = [sum(getattr(one, field) for one in part) for field in ("found", "exact", "labelled")]
        cells = (f"{count} ({count / len(part):.1%})" for count in counts)
        others = Counter(one.label for one in part if not one.labelled).most_common(3)
        named = ", ".join(f"{label} {count}" for label, count in others) if name != "all" else ""
        yield _line(name, len(part), f"{statistics.mean(one.steps for one in part):.1f}", *cells, named)


def _unplanted_rows(rows: Sequence[Row]) -> Iterable[str]:
    for name in (*KINDS, "all"):
        part = [one for one in rows if name in (one.group, "all")]
        decisions = Counter(one.decision for one in part)
        found = ", ".join(f"{decision} {count}" for decision, count in decisions.most_common())
        yield _line(name, len(part), sum(one.kept for one in part), found)


def guess(case: Case) -> str:
    return rule_label(parse_run(case.success), parse_run(case.localization)).category


def _right(cases: Sequence[Case]) -> int:
    return sum(guess(case) == case.category for case in cases)


def _label_rows() -> Iterable[str]:
    for name in (*TAXONOMY, "all"):
        parts = [[case for case in cases if name in (case.category, "all")] for cases in (CASES, HELD_OUT)]
        counts = [f"{_right(part)} of {len(part)} ({_right(part) / len(part):.0%})" for part in parts]
        yield _line(name, *counts)


def _confusion_rows() -> Iterable[str]:
    tables = [Counter((case.category, guess(case)) for case in cases) for cases in (CASES, HELD_OUT)]
    for number, name in enumerate(TAXONOMY, start=1):
        pairs = [(tables[0][name, other], tables[1][name, other]) for other in TAXONOMY]
        yield _line(f"{number} {name}", *(f"{one}+{two}" if one or two else "" for one, two in pairs))


def told(case: Case) -> tuple[str, bool]:
    """A row of a told contrast, and whether it is mined as told."""
    assert case.divergence is not None and case.score is not None
    planted = Planted(case.success, case.localization, case.category, *case.divergence, (case.divergence[1],))
    one = measure(planted)
    label, scores = one.case.label, one.case.scores
    holds = one.exact and one.labelled and abs(scores.get("total", 0.0) - case.score) <= TOLERANCE
    measured = [f"{scores.get(name, 0.0):.2f}" for name in ("total", "state", "action", "category")]
    steps = (_numbers(case.divergence), _numbers(one.chosen or ()))
    cells = (case.name, case.category, f"{label.category} {label.confidence:.2f}", *steps)
    return _line(*cells, f"{case.score:.2f}", *measured, "yes" if holds else "NO"), holds


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "-"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _share(rows: Sequence[Row]) -> float:
    return sum(one.found for one in rows) / len(rows)


if __name__ == "__main__":
    main()
