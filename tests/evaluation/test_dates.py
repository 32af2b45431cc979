"""Dated prompts get later days by a user's file or an answer of a model that holds; all others stay."""

import dataclasses
import json
import threading
from datetime import date

import pytest

from collection.evaluation.config import RefreshSettings
from collection.evaluation.dates import RECORD, check_answer, find_dates, read_overrides, refresh_benchmark
from collection.llm.build import make_model
from collection.llm.calls import Calls
from collection.llm.config import ModelConfig
from collection.llm.model import Model, ModelReply
from rmsweb_jax.errors import UserError
from tests.evaluation.rows import load_benchmark, real_settings, tail_settings, voyager_settings, write_lines
from tests.llm.answers import completion
from tests.llm.server import ModelServer

TODAY = date(2026, 11, 22)
DAY = RefreshSettings(today="2026-11-22")
OLD = "Book a flight from Oslo to Rome from November 24 to November 27."
NEW = "Book a flight from Oslo to Rome from December 7 to December 10."
RUBRIC = [
    "Nov 24–27 (Monday to Thursday), or Nov 24 alone for half.",
    "Only if nothing flies on November 24.",
]
MOVED = ["Dec 7–10 (Monday to Thursday), or Dec 7 alone for half.", "Only if nothing flies on December 7."]


def answer(prompt: str = NEW, notes: list[str] = MOVED, bound: bool = True) -> str:
    return json.dumps({"reason": "a journey", "bound": bound, "prompt": prompt, "notes": notes})


def model_at(server):
    config = ModelConfig(kind="chat", base_url=f"{server.url}/v1", calls=1, temperature=0.0)
    return make_model(config.resolve())


@pytest.fixture
def benchmark(tmp_path):
    return load_benchmark(tail_settings(tmp_path)).select(["webtailbench/air_1"])


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("from Nov 24–27", ["2026-11-24"]),
        ("16/12/2026 - 17/12/2026", ["2026-12-16", "2026-12-17"]),
        ("10 March to 12 March 2027", ["2027-03-10", "2027-03-12"]),
        ("the 3rd of May, or May 30th", ["2027-05-03", "2027-05-30"]),
        ("from 11/24/2025 to 12/14/25", ["2025-11-24", "2025-12-14"]),
        ("in June 2026 or by 2026-12-24 at 7:00", ["2026-06-30", "2026-12-24"]),
        ("a 2023 calendar", ["2023-12-31"]),
        ("on Feb 29", ["2028-02-29"]),
        ("You may book Marriott 12 times for 30 guests", []),
        ("on 31/31", []),
    ],
)
def test_days_are_found_in_order(text, days):
    assert [str(day) for day in find_dates(text, TODAY)] == days


@pytest.mark.parametrize(
    ("prompt", "notes", "problem"),
    [
        (NEW, MOVED, ""),
        (OLD, RUBRIC, "2026-11-24 is too early"),
        (NEW.replace("December 10", "November 28"), MOVED, "2026-11-28 is too early"),
        (NEW.replace("Oslo", "Bergen"), MOVED, "more than days has changed"),
        (NEW, [MOVED[0], "Always."], "more than days has changed"),
        (NEW, MOVED[:1], "1 lines of a rubric of 2"),
    ],
)
def test_an_answer_holds_if_all_days_are_ahead_and_only_days_have_changed(prompt, notes, problem):
    assert problem in check_answer(OLD, RUBRIC, prompt, notes, TODAY)
    assert bool(check_answer(OLD, RUBRIC, prompt, notes, TODAY)) == bool(problem)


def test_no_number_or_word_changes_that_is_of_no_date():
    old = "Book 2 adults under $200 in Monaco on March 5, 2024."
    assert not check_answer(old, [], old.replace("5, 2024", "4, 2027"), [], TODAY)
    for right, wrong in (("2 adults", "6 adults"), ("$200", "$900"), ("Monaco", "Montreal")):
        new = old.replace("5, 2024", "4, 2027").replace(right, wrong)
        assert "more than days has changed" in check_answer(old, [], new, [], TODAY)


def test_a_model_moves_a_prompt_with_its_rubric_once_and_other_runs_take_it(benchmark, tmp_path, capsys):
    asks = DAY.model_copy(update={"ask": True})
    with ModelServer([completion(answer(NEW.replace("Oslo", "Bergen"))), completion(answer())]) as server:
        refreshed, summary = refresh_benchmark(benchmark, asks, model_at(server), tmp_path)
        assert len(server.calls) == 2
        question = json.dumps(server.calls[0].body, ensure_ascii=False)
        assert "Today is Sunday, 22 November 2026" in question and "later than 2026-11-29" in question
        assert all(text in question for text in (OLD, *RUBRIC))
        # Resumed, also on a later day.
        again, _ = refresh_benchmark(benchmark, asks, model_at(server), tmp_path)
        assert len(server.calls) == 2 and again == refreshed
    assert refreshed.tasks[0].objective == NEW
    first, second = refreshed.notes["webtailbench/air_1"].rubric
    assert (first.description, second.condition) == tuple(MOVED) and first.max_points == 4
    assert summary == {
        "today": "2026-11-22",
        "lead_days": 7,
        "dated": 1,
        "changed": 1,
        "overridden": [],
        "refused": [],
        "asked_of_a_model": 1,
    }
    own = write_lines(tmp_path / "own.jsonl", [{"task_id": "webtailbench/air_1", "prompt": NEW}])
    (tmp_path / "without").mkdir()
    overrides = DAY.model_copy(update={"overrides": str(own)})
    refresh_benchmark(benchmark, overrides, None, tmp_path / "without")
    assert "1 rubrics keep their dates" in capsys.readouterr().err
    overrides = DAY.model_copy(update={"overrides": str(tmp_path / RECORD)})
    (tmp_path / "other").mkdir()
    assert refresh_benchmark(benchmark, overrides, None, tmp_path / "other")[0] == refreshed
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("replies", "by"),
    [
        (["Yes, it is bound.", "yes"], "refused"),
        (['{"reason": "r", "bound": "yes"}', answer(OLD, RUBRIC)], "refused"),
        ([answer("", [], bound=False)], "model"),
        ([f"```json\n{answer(NEW, MOVED, bound=False)}\n```"], "model"),
    ],
    ids=["prose", "another type, then too early", "not bound", "not bound and new days"],
)
def test_without_an_answer_that_holds_a_prompt_stays(benchmark, tmp_path, replies, by):
    with ModelServer([completion(reply) for reply in replies]) as server:
        same, summary = refresh_benchmark(benchmark, DAY, model_at(server), tmp_path)
        assert len(server.calls) == len(replies)
    assert same == benchmark and summary["changed"] == 0
    assert summary["refused"] == (["webtailbench/air_1"] if by == "refused" else [])
    assert json.loads((tmp_path / RECORD).read_text())["by"] == by


class OutOfQuota(Model):
    """Refuses the first prompt while `spent`, after it has answered the other, which is bound to no day."""

    spent, given, other = True, 0, threading.Event()

    def _answer(self, request, calls):
        if self.spent and OLD in request.messages[0].text:
            assert self.other.wait(60)
            raise UserError("the quota is used up")
        self.given += 1
        self.other.set()
        return ModelReply(answer("", [], bound=False))


def test_no_answer_is_paid_for_twice_where_another_question_ends_the_run(benchmark, tmp_path):
    (first,) = benchmark.tasks
    second = first.model_copy(update={"task_id": "webtailbench/air_2", "objective": "Be there on May 30."})
    both = dataclasses.replace(benchmark, tasks=(first, second), notes={})
    with Calls(tmp_path / "calls.jsonl") as calls:
        model = OutOfQuota(ModelConfig(kind="chat", base_url="http://model.test/v1").resolve(), calls)
        with pytest.raises(UserError, match="quota"):
            refresh_benchmark(both, DAY, model, tmp_path)
        model.spent = False
        _, summary = refresh_benchmark(both, DAY, model, tmp_path)
    assert (model.given, summary["asked_of_a_model"]) == (2, 2)


def test_without_a_model_and_overrides_a_run_says_in_one_line_how_many_prompts_keep_their_dates(
    tmp_path, capsys
):
    benchmark = load_benchmark(voyager_settings(tmp_path))
    same, summary = refresh_benchmark(benchmark, DAY, None, tmp_path)
    assert same == benchmark and not (tmp_path / RECORD).exists()
    assert (summary["dated"], summary["changed"]) == (3, 0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("3 prompts name a date and keep their text")


def test_a_users_prompts_are_taken_and_an_answer_for_the_old_days_is_not_the_only_right_one(tmp_path, capsys):
    benchmark = load_benchmark(voyager_settings(tmp_path))
    name, prompt = "webvoyager/Stays--0", "Find a hotel in Rome from Jan 1 to Jan 4, 2027."
    path = write_lines(tmp_path / "own.jsonl", [{"task_id": name, "prompt": prompt}])
    settings = DAY.model_copy(update={"overrides": str(path)})
    refreshed, summary = refresh_benchmark(benchmark, settings, None, tmp_path)
    assert {task.task_id: task.objective for task in refreshed.tasks}[name] == prompt
    assert summary["overridden"] == [name] and summary["changed"] == 1
    assert "2 prompts name a date" in capsys.readouterr().err
    golden = {one: note.reference and note.reference.golden for one, note in refreshed.notes.items()}
    assert golden == {name: False, "webvoyager/Papers--0": True}
    # The same file serves a subset of the benchmark.
    assert read_overrides(str(path), benchmark.select(["webvoyager/Papers--0"])).keys() == {name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task_id": "webtailbench/tea_9", "prompt": "x"}', "no tasks of webtailbench: webtailbench/tea_9;"),
        ('{"task_id": "webtailbench/air_1", "prompt": "x"}\n' * 2, "that come twice: webtailbench/air_1;"),
        (
            '{"task_id": "webtailbench/air_1", "prompt": "x"}\n{"prompt": 3}',
            "line 2: task_id: Field required",
        ),
        ('{"task_id": "webtailbench/air_1", "prompt": ""}', "prompt: String should have at least 1"),
        (None, "No such file"),
    ],
)
def test_an_overrides_file_that_cannot_be_used_is_one_line(benchmark, tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        read_overrides(str(path), benchmark)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "dated"), [("webvoyager", 113), ("webtailbench", 149)])
def test_the_dated_prompts_of_the_published_rows_take_overrides(name, dated, tmp_path):
    benchmark = load_benchmark(real_settings(name) | ({"excluded_file": ""} if name == "webvoyager" else {}))
    named = [task for task in benchmark.tasks if find_dates(task.objective, TODAY)]
    assert len(named) == dated
    rows = [{"task_id": task.task_id, "prompt": f"{task.objective} Later."} for task in named]
    path = write_lines(tmp_path / "own.jsonl", rows)
    refreshed, summary = refresh_benchmark(
        benchmark, DAY.model_copy(update={"overrides": str(path)}), None, tmp_path
    )
    assert (summary["dated"], summary["changed"]) == (dated, dated)
    assert sum(task.objective.endswith(" Later.") for task in refreshed.tasks) == dated
