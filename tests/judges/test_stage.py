"""Judging a data set: files, figures, no repeated calls, and one line for each error."""

import json
import re

import pytest

from collection.judges.judgements import in_order
from collection.llm.calls import CALLS, BudgetError, Calls
from rmsweb_jax.errors import UserError
from tests.judges.data_sets import OUTCOME, judge, put_data, reply_to, runs, settings
from tests.judges.server import kind_of
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.mining.label_server import kept_in

# Outcome: a question a run, and again after "unsuccessful"; the rubric of task 0; two failures of the outcome
# judge.
ASKED_OUTCOME = len(OUTCOME) + 1
QUESTIONS = ASKED_OUTCOME + 2 + 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return put_data(tmp_path_factory.mktemp("judged") / "data")


@pytest.fixture
def server():
    with PromptServer(reply_to) as server:
        yield server


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_judges_on_the_same_runs(tmp_path, data, server):
    report = judge(tmp_path / "judge", settings(data, server.url))
    assert len(server.calls) == QUESTIONS == report["requests"]["asked"]
    assert (report["runs"], report["tasks"]) == (7, 4)
    counts = {
        name: [one[v] for v in ("passed", "failed", "unjudged")] for name, one in report["judges"].items()
    }
    assert counts == {
        "reward": [0, 0, 7],
        "recorded": [0, 0, 7],
        "own_outcome": [2, 3, 2],
        "own_rubric": [1, 2, 4],
    }
    assert report["judges"]["own_rubric"]["mean_score"] == pytest.approx(0.8)
    assert report["judges"]["own_outcome"]["name"] == "own_outcome (judge-1)"
    judgements = lines(tmp_path / "judge/judgements.jsonl")
    assert len(judgements) == 7 * 4 and {tuple(sorted(line)) for line in judgements} == {
        ("fingerprint", "judge", "key", "score", "success", "task_id", "text", "trajectory_id", "usage")
    }
    assert [line["success"] for line in judgements if line["judge"] == "own_outcome"] == [
        *(True, True, False, False, None, None, False)
    ]
    ours = ("own_outcome", "own_rubric")
    pair = next(one for one in report["pairs"] if (one["first"], one["second"]) == ours)
    assert pair["confusion"] == [[1, 1, 0], [0, 1, 2], [0, 0, 2]] and pair["both_judged"] == 3
    assert pair["kappa"]["mean"] == pytest.approx(0.4)
    people = report["against_reference"]["own_outcome"]
    assert report["reference"] == "labels" and people["runs"] == 6
    assert (people["precision"], people["recall"], people["wrong_passed"]) == (1 / 2, 1 / 3, 1 / 3)
    errors = json.loads((tmp_path / "judge/judge_errors.json").read_text())
    # Of each task: successes passed and failed, failures passed and failed.
    assert errors["own_outcome"]["counts"] == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert "labels" not in errors
    found = report["cross_check"]
    assert (found["of"], found["checked"], found["false_negatives"]) == ("own_outcome", 2, 1)
    again = lines(tmp_path / "judge/cross_check.jsonl")
    assert [(line["trajectory_id"][-1], line["finding"]) for line in again] == [
        ("2", "confirmed_failure"),
        ("3", "dom_only_evidence"),
    ]
    sheet = (tmp_path / "judge/agreement.md").read_text().replace("\\", "")
    rows = [line.strip("| ").split(" | ") for line in sheet.splitlines() if line.startswith("| ")]
    by_name = {row[0]: row[1:] for row in reversed(rows)}
    assert by_name["teacher"][:4] == ["7 (4, few)", "0", "0", "0"]
    assert by_name["own_outcome"] == [
        "2",
        "3",
        "2",
        "6",
        "—",
        "0.0000",
        "6",
        "0.500",
        "0.333",
        "0.333",
        "0.500",
    ]
    assert by_name["own_outcome and own_rubric"][:6] == ["3", "1", "1", "0", "1", "66.7"]
    assert by_name["dom_only_evidence"] == ["1", "1.000"]
    assert "own_outcome: own_outcome, model judge-1, temperature 0" in sheet
    assert "labels: labels: 6 runs labelled" in sheet and "outcome: Input should be 'success'" in sheet
    assert "own\\_outcome" in (tmp_path / "judge/agreement.tex").read_text()
    assert report["rows"][0]["judges"]["own_outcome"]["share"]["mean"] == pytest.approx(2 / 5)
    assert report["cost_usd"] == 0 and report["calls"]["judge"]["calls"] == QUESTIONS


def test_the_same_command_repeats_no_call(tmp_path, data, server):
    first = judge(tmp_path / "judge", settings(data, server.url))
    kept = {
        name: (tmp_path / "judge" / name).read_bytes() for name in ("judgements.jsonl", "cross_check.jsonl")
    }
    judge(tmp_path / "judge", settings(data, server.url))
    (tmp_path / "judge/report.json").unlink()
    again = judge(tmp_path / "judge", settings(data, server.url, workers=5))
    assert len(server.calls) == QUESTIONS
    assert again["requests"] == {"asked": 0, "cache_hits": QUESTIONS}
    untimed = ("seconds", "requests")
    assert {key: one for key, one in again.items() if key not in untimed} == {
        key: one for key, one in first.items() if key not in untimed
    }
    assert all((tmp_path / "judge" / name).read_bytes() == text for name, text in kept.items())
    # Another model is asked everything.
    judge(tmp_path / "other", settings(data, server.url, **{"actor.model": "judge-2"}))
    assert len(server.calls) == 2 * QUESTIONS


def test_the_money_cap_ends_the_stage_and_keeps_answers(tmp_path, data, server):
    prices = {"workers": 1, "actor.price": (100.0, 0.0, 100.0)}
    with pytest.raises(BudgetError) as error:
        judge(tmp_path / "judge", settings(data, server.url, **prices, **{"actor.cap_usd": 0.5}))
    assert error.value.exit_code == 4
    answered = kept_in(tmp_path / "judge" / CALLS)
    assert 0 < answered == len(server.calls) < QUESTIONS
    assert Calls(tmp_path / "judge" / CALLS).spent() <= 0.5
    report = judge(tmp_path / "judge", settings(data, server.url, **prices, **{"actor.cap_usd": 500.0}))
    assert len(server.calls) == QUESTIONS and report["cost_usd"] == pytest.approx(0.11 * QUESTIONS)
    assert report["judges"]["own_outcome"]["cost_usd"] == pytest.approx(0.11 * ASKED_OUTCOME)


def test_an_endpoint_that_fails_at_one_judge_leaves_its_runs_unjudged(tmp_path, data, server):
    server.reply_to = lambda prompt: (
        Answer(503, {"error": {"message": "overloaded"}})
        if kind_of(prompt) == "outcome"
        else reply_to(prompt)
    )
    report = judge(tmp_path / "judge", settings(data, server.url))
    assert [report["judges"]["own_outcome"][name] for name in ("passed", "failed", "unjudged")] == [0, 1, 6]
    reasons = report["judges"]["own_outcome"]["unjudged_runs"]
    assert len(reasons) == 6 and all("status 503: overloaded" in one["reason"] for one in reasons)
    assert report["judges"]["own_rubric"]["passed"] == 1


def test_without_a_model_recorded_verdicts_are_compared(tmp_path, data, server):
    none = {"judges": ("reward", "recorded"), "cross_check": "", "actor.kind": "none"}
    changes = settings(data, server.url, **none)
    report = judge(tmp_path / "judge", changes | {"labels": "", "reference": "recorded"})
    assert set(report["judges"]) == {"reward", "recorded"} and not server.calls
    assert report["cross_check"] == {} and report["against_reference"]["reward"]["runs"] == 0
    assert "not defined" in (tmp_path / "judge/agreement.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": ""}, "config.data is empty"),
        (
            {"reference": "nobody"},
            "config.reference='nobody': no judge of that name runs here: take one of labels",
        ),
        ({"cross_check": "webjudge"}, "config.cross_check='webjudge'"),
        ({"judges": ("oracle",)}, "config.judges is 'oracle': use one of"),
        ({"actor.kind": "none"}, "config.judges.kind=actor: the actor is none"),
        ({"workers": 0}, "config.workers is 0: make it 1 or more"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_user_errors_are_reported_before_the_first_call(tmp_path, data, server, changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        judge(tmp_path / "judge", settings(data, server.url, **changes))
    assert not server.calls


LABEL = json.dumps({"trajectory_id": runs()[0].trajectory_id, "success": True})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels", "{}\n", "neither labels (trajectory_id and success, one a line) nor"),
        ("labels", f"{LABEL}\n" + LABEL.replace("true", "1"), "entry 2: trajectory_id has to be a text"),
        ("labels", f"{LABEL}\n{LABEL[:-1]}", "line 2: cannot be read"),
        ("notes", '{"task_id": "a", "rubric": [{"criterion": "x", "max_points": 0}]}', "rubric.0.max_points"),
        ("notes", '{"task_id": "a"}\n{"task_id": "a"}', "a has notes already: keep one"),
    ],
    ids=["none", "a number", "broken off", "no points", "notes twice"],
)
def test_invalid_files_are_reported_before_the_first_call(tmp_path, data, server, name, text, message):
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        judge(tmp_path / "judge", settings(data, server.url, **{name: str(tmp_path / "file")}))
    assert not server.calls


def test_results_come_in_order_and_a_failure_ends_them():
    assert list(in_order([lambda n=n: n for n in range(50)], 3)) == list(range(50))
    begun = []

    def call(number):
        begun.append(number)
        if number == 4:
            raise UserError("no")
        return number

    with pytest.raises(UserError, match="no"):
        list(in_order([lambda n=n: call(n) for n in range(50)], 1))
    # No more than those that were in memory.
    assert begun[:5] == [0, 1, 2, 3, 4] and max(begun) < 10
