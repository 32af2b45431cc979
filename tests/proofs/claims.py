"""Each claim of the paper: how it was tested here, and the verdict, from other proofs. A second."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.proofs.arms import points
from tests.proofs.page import RESULTS, Check, publish, table

SUPPORTED, CONTRADICTED = "supported", "contradicted"
UNDECIDED, UNTESTED = "undecided", "not tested here"
# Points of success that may be lost where the paper says that none are.
UNCHANGED = 5.0
_TESTED = ("power", "baseline", "control", "result", "verdict")
Row = dict[str, str]


def figures(name: str) -> Mapping[str, Any]:
    """What a proof has measured; empty if it was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_bytes())["figures"] if path.exists() else {}


def row(claim: str, paper: str, tested: str = "", **given: str) -> Row:
    """A row of the table; a claim that was not tested has only what the paper says."""
    return {
        "claim": claim,
        "the paper": paper,
        "tested by": tested or "-",
        **{name: given.get(name, "-") for name in _TESTED[:-1]},
        "verdict": given.get("verdict", UNTESTED),
    }


def by_interval(low: float, high: float, complete: bool) -> str:
    """The verdict on a difference that should be above 0."""
    if not complete:
        return UNDECIDED
    return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED


def of_ablations() -> Iterator[Row]:
    found = figures("ablations")
    control = found.get("minus_start", {}).get("SFT, whole corpus")
    for one in found.get("claims", ()):
        yield row(
            one["claim"],
            "not tested" if one["paper"] == "-" else f"{one['paper']} points",
            f"[ablations](ablations.md), {one['seeds']} trainings",
            power=f"{one['detectable']:.1f} points",
            baseline="the other arm, of the same start and tasks",
            control=f"SFT on the whole corpus: {points(control)}" if control else "-",
            result=f"{points(one)} points",
            verdict=one["verdict"],
        )
    courses = {name: some["RL"] for name, some in found.get("courses", {}).items() if "RL" in some}
    yield of_course(
        "RL turns hard states into mastered ones",
        "rejections by the std gate 32 to 44 %, by the competence gate 31 to 21 %",
        courses,
        {"gates/std_rejected": 1, "gates/competence_rejected": -1},
    )
    yield of_course(
        "the best of a group gets better, and replies differ less",
        "0.63 to 0.72; deviation 0.19 to 0.14",
        courses,
        {"reward/best_of_k": 1, "reward/group_std": -1},
    )
    yield of_course(
        "the correct action becomes likelier, and likelier than the wrong one",
        "log-probability -0.59 to -0.37, gap -0.23 to 0.04",
        courses,
        {"logp/correct": 1, "logp/gap": 1},
    )
    yield of_brake(found.get("courses", {}).get("kl_ref", {}))


def of_course(claim: str, paper: str, courses: Mapping[str, Any], signs: Mapping[str, int]) -> Row:
    """A claim about metrics of RL: each changes by its sign."""
    if not signs.keys() <= courses.keys():
        return row(claim, paper)
    changes = [courses[name]["change"] for name in signs]
    verdicts = {
        by_interval(*sorted((sign * one["low"], sign * one["high"])), complete=True)
        for sign, one in zip(signs.values(), changes, strict=True)
    }
    return row(
        claim,
        paper,
        "[ablations](ablations.md), arm RL",
        baseline="the first iterations",
        result="; ".join(
            f"{name} {courses[name]['begin']:.2f} to {courses[name]['end']:.2f}" for name in signs
        ),
        verdict=verdicts.pop() if len(verdicts) == 1 else UNDECIDED,
    )


def of_brake(courses: Mapping[str, Any]) -> Row:
    claim, paper = "the KL term keeps the policy near its start", "bounded with it, rising without"
    if not {"RL", "no KL"} <= courses.keys():
        return row(claim, paper)
    braked, free = courses["RL"]["change"], courses["no KL"]["change"]
    return row(
        claim,
        paper,
        "[ablations](ablations.md), arms RL and no KL",
        baseline="RL without the term",
        result=f"divergence at the end {courses['RL']['end']:.3f}, without {courses['no KL']['end']:.3f}",
        verdict=SUPPORTED
        if braked["high"] < free["low"]
        else CONTRADICTED
        if braked["low"] > free["high"]
        else UNDECIDED,
    )


def of_sft_and_reflection() -> Iterator[Row]:
    found = figures("reflection_policies")
    sft = ("SFT improves the base", "51.1 to 82.7 / 36.6 to 59.4 / 23.3 to 55.4 %")
    steps = ("policies of a collection with reflection take fewer steps", "12.9 / 17.8 / 19.7 % fewer")
    success = ("and solve as much", "-0.6 / -1.3 / +5.3 points")
    if not {"with_steps_saved", "faultless_steps_saved"} <= found.keys():
        yield from (row(*sft), row(*steps), row(*success))
        return
    link = (
        f"[policies with and without reflection](reflection_policies.md), {found['seeds']['with']} trainings"
    )
    complete = min(found["seeds"].values()) >= found["planned"]
    solved, saved, gained = (found[name] for name in ("solved", "with_steps_saved", "with_minus_without"))
    control = found["faultless_steps_saved"]
    shown = f"a teacher without mistakes: {points(control)} %"
    yield row(
        *sft,
        link,
        baseline="the base, which solves none of 150 ([demo](demo.md))",
        result=f"{points(solved['without'])} %",
        verdict=by_interval(solved["without"]["low"], solved["without"]["high"], complete),
    )
    simulated = link + "; the teacher is simulated"
    yield row(
        *steps,
        simulated,
        power=f"{2.8 * (saved['high'] - saved['low']) / 3.92:.1f} %",
        baseline="a collection without",
        control=shown,
        result=f"{points(saved)} %",
        verdict=by_interval(saved["low"], saved["high"], complete and control["low"] > 0),
    )
    fails, holds = gained["high"] < 0, gained["low"] > -UNCHANGED
    yield row(
        *success,
        simulated,
        power=f"{2.8 * (gained['high'] - gained['low']) / 3.92:.1f} points",
        baseline="a collection without",
        result=f"{points(gained)} points",
        verdict=CONTRADICTED if fails else SUPPORTED if holds and complete else UNDECIDED,
    )


# Nothing here can test them: they are about sizes of models, live sites, prices or people's queries.
OTHERS = (
    ("reflection leads to more tasks with two successes", "33.6 against 20.9 % in round 5"),
    ("RL helps at 32B, too", "+1.2 / +2.0 / +7.7 points"),
    ("the 8B agent is on the best frontier of accuracy and cost", "WebVoyager and WebTailBench"),
    ("a verifier by screenshots fails runs that succeeded", "for three reasons: 42 / 37 / 21 %"),
    ("most failures are of evidence and of incomplete endpoints", "39.8 and 18.7 % of the corpus"),
)

ABOUT = f"""\
**No baseline, no control:** this page measures nothing. It gathers what other pages have measured, each with
its own baseline and control.

Every claim of the paper's tables, ablations and analyses has a row. Figures of the paper are of 8B on
WebVoyager / Online-Mind2Web / WebTailBench unless they say otherwise. Here the models have 2.4 million
parameters and play MiniWoB++, and the teacher is simulated: a verdict is about the recipe in that world.

The words, fixed before the runs: *{SUPPORTED}*, the interval of 95 % over trainings and pages lies on the
claim's side and the control shows an effect; *{CONTRADICTED}*, it lies on the other side; *{UNDECIDED}*,
anything else, also if trainings are missing; *{UNTESTED}*, no measurement here speaks to it. That success is
unchanged is supported if the interval lies above -{UNCHANGED:g} points. *Power* is the smallest difference
that four of five such studies would find.
"""


def main() -> None:
    rows = [*of_sft_and_reflection(), *of_ablations(), *(row(*one) for one in OTHERS)]
    counted = Counter(one["verdict"] for one in rows)
    checks: list[Check] = [(f"claims: {verdict}", str(counted[verdict]), None) for verdict in sorted(counted)]
    publish("claims", "The paper's claims", ABOUT, {"claims": rows}, checks, table(rows))


if __name__ == "__main__":
    main()
