"""The sheet of judges: counts by hand, runs that were not played apart, and hostile names."""

import json

import pytest

from collection.evaluation.statistics import rate_interval
from collection.judges.judgements import Judgement, RunFacts
from collection.judges.report import agreement_report
from collection.report.sheet import sheet_document, sheet_figures
from collection.report.tables import to_latex, to_markdown
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint
from tests.judges.data_sets import judge, runs
from tests.trajectories import PNG

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


def facts() -> list[RunFacts]:
    return [
        RunFacts(f"{number // 2}#{number % 2}", str(number // 2), policy, policy, "shop.test", "", outcome)
        for number, (policy, outcome, *_) in enumerate(PLAYED)
    ]


def judgements() -> list[Judgement]:
    return [
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
        for run, (_, _, *verdicts) in zip(facts(), PLAYED, strict=True)
        for name, verdict, fingerprint in zip(("a", "b"), verdicts, (OFFICIAL, None), strict=True)
    ]


LABELS = {"0#0": True, "0#1": False, "1#0": False}


def report() -> dict:
    sheet = sheet_figures(facts(), judgements(), LABELS, "policy")
    return {
        "data": "runs",
        "labels": "3 labels",
        "sheet": sheet,
        **agreement_report(judgements(), LABELS, "labels"),
    }


def test_runs_that_were_not_played_and_unjudged_ones_are_counted_apart():
    sheet = report()["sheet"]
    sft, other, every = sheet["rows"]
    assert [row["row"] for row in sheet["rows"]] == ["sft", HOSTILE, "all"]
    assert [sft[name] for name in ("runs", "tasks", "blocked", "unreachable", "timed_out")] == [4, 2, 1, 0, 0]
    assert [other[name] for name in ("blocked", "unreachable", "timed_out")] == [0, 1, 1]
    interval = rate_interval([2, 0], [2, 1])
    assert interval is not None
    assert sft["judges"]["a"] == {"passed": 2, "failed": 1, "unjudged": 0, "share": interval.as_dict()}
    assert [sft["judges"]["b"][name] for name in ("passed", "failed", "unjudged")] == [1, 1, 1]
    assert [every["judges"]["a"][name] for name in ("passed", "failed", "unjudged")] == [2, 2, 1]
    assert sft["judges"]["labels"]["share"]["mean"] == pytest.approx(1 / 3)
    assert other["judges"]["labels"]["share"] is None
    assert sheet["judges"] == {
        "a": [f"webjudge, model o4-mini, temperature 0, from fara@9b8af39 (id {OFFICIAL.id}), 7 verdicts"],
        "b": ["a judge that was not recorded"],
    }


def test_the_sheet_is_the_same_in_all_formats_and_names_stay_text():
    document = sheet_document(report(), "python -m experiments.judge")
    markdown, latex = to_markdown(document), to_latex(document)
    assert "66.7 (" in markdown and "66.7 (" in latex
    assert "<script>a" not in markdown and "a_b & 50%" not in latex
    for text in (markdown, latex):
        assert "o4-mini" in text and "not recorded" in text and "3 labels" in text
        assert "none decided" in text
    rows = [line for line in markdown.splitlines() if line.startswith("| a passed")]
    # Judge a passed two runs: b passed one and failed one; so did people.
    assert [row.split("|")[2:5] for row in rows] == [[" 1 ", " 1 ", " 0 "], [" 1 ", " 1 ", " 0 "]]


def test_several_data_sets_are_rows_and_equal_runs_are_refused(tmp_path):
    played = runs()[:4]
    for name, some in (("one", played[:2]), ("two", played[2:])):
        ImageStore(tmp_path / name).put(PNG)
        write_dataset(tmp_path / name, some, "trajectories")
    changes = {"judges": ("reward", "recorded"), "cross_check": "", "actor.kind": "none"}
    both = {"data": f"{tmp_path / 'one'}, {tmp_path / 'two'}", **changes}
    judge(tmp_path / "judge", both)
    sheet = json.loads((tmp_path / "judge/sheet.json").read_text())
    assert [(row["row"], row["runs"]) for row in sheet["rows"]] == [
        ("one: teacher", 2),
        ("two: teacher", 2),
        ("all", 4),
    ]
    judge(tmp_path / "sites", {**both, "rows": "site"})
    sheet = json.loads((tmp_path / "sites/sheet.json").read_text())
    assert [row["row"] for row in sheet["rows"]] == ["shop.test"]
    with pytest.raises(UserError, match="is there twice"):
        judge(tmp_path / "twice", {**changes, "data": f"{tmp_path / 'one'},{tmp_path / 'one'}"})
