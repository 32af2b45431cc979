"""Agreement: figures worked out by hand and by their definitions, and the sheet that shows them."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.evaluation.statistics import rate_interval
from collection.judges.agreement import (
    NAMES,
    against,
    agreement_figures,
    agreement_sheet,
    cohens_kappa,
    compare,
    confusion,
    kappa_interval,
)
from collection.judges.judgements import Judgement, RunFacts
from collection.report.tables import to_latex, to_markdown
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint
from tests.judges.data_sets import judge, runs
from tests.trajectories import PNG

VERDICT = st.sampled_from(NAMES)
BOTH = st.dictionaries(st.integers(0, 30).map(str), st.tuples(VERDICT, VERDICT), max_size=25)


def column(**verdicts):
    names = {True: "passed", False: "failed", None: "unjudged"}
    return pandas.Series({run: names[one] for run, one in verdicts.items()}, dtype=object)


def columns(both) -> Any:
    table = pandas.DataFrame(both, index=["first", "second"], dtype=object).T
    return table["first"], table["second"]


def by_definition(pairs):
    """(p_o - p_e) / (1 - p_e) over pairs of truth values, exactly; None where it is not defined."""
    count = len(pairs)
    if not count:
        return None
    agreed = Fraction(sum(one == other for one, other in pairs), count)
    first, second = (
        Fraction(sum(one == "passed" for one in some), count) for some in zip(*pairs, strict=True)
    )
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else float((agreed - chance) / (1 - chance))


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        # Worked by hand: p_o = 35/50, p_e = (25*30 + 25*20)/2500.
        ([[20, 5], [10, 15]], 0.4),
        # Two tables of equal agreement (0.6) of which chance explains more and less.
        ([[45, 15], [25, 15]], 6 / 46),
        ([[25, 35], [5, 35]], 14 / 54),
        ([[5, 0], [0, 5]], 1.0),
        ([[0, 5], [5, 0]], -1.0),
        ([[1, 1], [1, 1]], 0.0),
        ([[7, 0], [0, 0]], math.nan),
        ([[0, 0], [0, 0]], math.nan),
    ],
)
def test_kappa_of_known_tables(table, kappa):
    assert cohens_kappa(np.array(table)) == pytest.approx(kappa, nan_ok=True)


@given(BOTH)
def test_figures_by_their_definitions(both):
    first, second = columns(both)
    table = confusion(first, second)
    for row, one in enumerate(NAMES):
        for place, other in enumerate(NAMES):
            assert table[row, place] == sum(pair == (one, other) for pair in both.values())
    tasks = {run: f"task {int(run) // 3}" for run in both}
    decided = [pair for pair in both.values() if "unjudged" not in pair]
    interval, wanted = kappa_interval(first, second, tasks, resamples=50), by_definition(decided)
    if wanted is None:
        assert interval is None
    else:
        assert interval is not None and interval.mean == pytest.approx(wanted)
        assert -1 <= interval.low <= interval.high <= 1
        drawn = {tasks[run] for run, pair in both.items() if "unjudged" not in pair}
        assert interval.tasks == len(drawn)
    found = against(first, second)
    assert all(found[name] is None or 0 <= found[name] <= 1 for name in list(found)[2:])
    assert found["runs"] == sum(other != "unjudged" for _, other in both.values())


def test_only_runs_that_both_know_count():
    first, second = column(a=True, b=False).align(column(b=None, c=True))
    assert confusion(first, second).tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    pair = compare(first, second, dict.fromkeys("abc", "t"))
    assert (pair["both_judged"], pair["agreement"], pair["kappa"]) == (0, None, None)


def test_the_interval_is_over_tasks_and_repeats():
    # Ten tasks of three equal runs: resampling runs would pretend to 30 independent ones.
    known = {f"{task}/{run}": task % 2 == 0 for task in range(10) for run in range(3)}
    first = column(**known)
    second = column(**{run: one if int(run[0]) < 8 else not one for run, one in known.items()})
    tasks = {run: run[0] for run in known}
    one, again = (kappa_interval(first, second, tasks, seed=7) for _ in range(2))
    assert one == again and one is not None and one.tasks == 10
    assert one.mean == pytest.approx(0.6) and one.low < 0.25 and one.high == 1.0
    each = kappa_interval(first, second, {run: run for run in known}, seed=7)
    assert each is not None and each.high - each.low < one.high - one.low


def test_shares_against_a_reference():
    reference = column(a=True, b=True, c=True, d=False, e=False, f=None)
    first = column(a=True, b=False, c=None, d=True, e=False, f=True, g=True)
    assert against(*first.align(reference)) == {
        "runs": 5,
        "unjudged": 1,
        "precision": 1 / 2,
        # The unjudged one is missing.
        "recall": 1 / 3,
        "wrong_passed": 1 / 2,
        "accuracy": 2 / 4,
    }
    nothing = against(*column().align(reference))
    assert nothing["runs"] == 0 and nothing["precision"] is None and nothing["recall"] is None


# --- The sheet ---

OFFICIAL = JudgeFingerprint(method="webjudge", model="o4-mini", temperature=0.0, source="fara@9b8af39")
HOSTILE = "<script>a_b & 50% | $x$</script>"
# Of four tasks with two runs each: policy, outcome, and the verdicts of two judges.
PLAYED = [
    ("sft", "done", True, True),
    ("sft", "done", True, False),
    ("sft", "done", False, None),
    ("sft", "captcha", False, False),
    (HOSTILE, "max_steps", False, False),
    (HOSTILE, "timeout", False, False),
    (HOSTILE, "unreachable", False, False),
    (HOSTILE, "done", None, True),
]
FACTS = [
    RunFacts(f"{number // 2}#{number % 2}", str(number // 2), policy, policy, "shop.test", "", outcome)
    for number, (policy, outcome, *_) in enumerate(PLAYED)
]
LABELS = {"0#0": True, "0#1": False, "1#0": False}


def report() -> dict:
    judgements = [
        Judgement(
            trajectory_id=run.trajectory_id,
            task_id=run.task_id,
            judge=name,
            success=verdict,
            score=None,
            text="why",
            usage=CallUsage(),
            key="",
            fingerprint=fingerprint,
        )
        for run, (_, _, *verdicts) in zip(FACTS, PLAYED, strict=True)
        for name, verdict, fingerprint in zip(("a", "b"), verdicts, (OFFICIAL, None), strict=True)
    ]
    figures = agreement_figures(FACTS, judgements, LABELS, "labels", "policy")
    return {"data": "runs", "labels": "3 labels", "cross_check": {}, **figures}


def test_runs_that_were_not_played_and_unjudged_ones_are_counted_apart():
    sft, other, every = report()["rows"]
    assert [row["row"] for row in (sft, other, every)] == ["sft", HOSTILE, "all"]
    assert [sft[name] for name in ("runs", "tasks", "blocked", "unreachable", "timed_out")] == [4, 2, 1, 0, 0]
    assert [other[name] for name in ("blocked", "unreachable", "timed_out")] == [0, 1, 1]
    interval = rate_interval(np.array([2, 0]), np.array([2, 1]))
    assert interval is not None
    assert sft["judges"]["a"] == {"passed": 2, "failed": 1, "unjudged": 0, "share": interval.as_dict()}
    assert [sft["judges"]["b"][name] for name in NAMES] == [1, 1, 1]
    assert [every["judges"]["a"][name] for name in NAMES] == [2, 2, 1]
    assert sft["judges"]["labels"]["share"]["mean"] == pytest.approx(1 / 3)
    assert other["judges"]["labels"]["share"] is None
    versions = {name: one["versions"] for name, one in report()["judges"].items()}
    assert versions == {
        "a": [f"webjudge, model o4-mini, temperature 0, from fara@9b8af39 (id {OFFICIAL.id}), 7 verdicts"],
        "b": ["a judge that was not recorded"],
    }


def test_the_sheet_is_the_same_in_both_formats_and_names_stay_text():
    document = agreement_sheet(report(), "python -m experiments.judge")
    markdown, latex = to_markdown(document), to_latex(document)
    assert "<script>a" not in markdown and "a_b & 50%" not in latex
    for text in (markdown, latex):
        assert "66.7 (" in text and "o4-mini" in text and "not recorded" in text and "3 labels" in text
        assert "none decided" in text
    (row,) = [line.split(" | ") for line in markdown.splitlines() if line.startswith("| a and b")]
    # Judge a passed two runs: b passed one of them and failed one.
    assert row[1:7] == ["6", "1", "1", "0", "4", "83.3"]


def test_several_data_sets_are_rows_and_equal_runs_are_refused(tmp_path):
    played = runs()[:4]
    for name, some in (("one", played[:2]), ("two", played[2:])):
        ImageStore(tmp_path / name).put(PNG)
        write_dataset(tmp_path / name, some, "trajectories")
    changes = {"judges": ("reward", "recorded"), "cross_check": "", "actor.kind": "none"}
    both = {"data": f"{tmp_path / 'one'}, {tmp_path / 'two'}", **changes}
    found = judge(tmp_path / "judge", both)
    rows = [("one: teacher", 2), ("two: teacher", 2), ("all", 4)]
    assert [(row["row"], row["runs"]) for row in found["rows"]] == rows
    found = judge(tmp_path / "sites", {**both, "rows": "site"})
    assert [row["row"] for row in found["rows"]] == ["shop.test"]
    with pytest.raises(UserError, match="is there twice"):
        judge(tmp_path / "twice", {**changes, "data": f"{tmp_path / 'one'},{tmp_path / 'one'}"})
