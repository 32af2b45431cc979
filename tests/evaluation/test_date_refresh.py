"""Whole benchmarks are refreshed, rubrics with their prompts; the record is complete and resumable."""

import json
from datetime import date, timedelta

import pytest

from collection.evaluation.dates.asking import answer_schema, ask_bound
from collection.evaluation.dates.benchmark import PAGE, RECORD, refresh_benchmark
from collection.evaluation.dates.moving import LEAD_DAYS, refresh
from collection.evaluation.dates.overrides import read_overrides
from collection.llm.build import make_model
from collection.llm.config import ModelConfig
from rmsweb_jax.errors import UserError
from tests.evaluation.date_checker import broken, find, rubric_broken
from tests.evaluation.rows import (
    VOYAGER,
    load_benchmark,
    real_settings,
    tail_settings,
    voyager_settings,
    write_json,
    write_lines,
)
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer

TODAY = date(2026, 11, 22)


def test_prompts_rubrics_and_answers_of_a_benchmark(tmp_path):
    benchmark, record = refresh_benchmark(load_benchmark(tail_settings(tmp_path)), TODAY, 7, None, tmp_path)
    flight, calendar = benchmark.tasks
    assert flight.objective == "Book a flight from Oslo to Rome from December 7 to December 10."
    rubric = benchmark.notes[flight.task_id].rubric
    assert rubric[0].description == "Dec 7–10 (Monday to Thursday), or Dec 7 alone for half."
    assert rubric[1].condition == "Only if nothing flies on December 7." and rubric[0].max_points == 4
    assert calendar.objective == "Buy a 2023 calendar."
    assert record.summary() == {
        "today": "2026-11-22",
        "lead_days": 7,
        "written": "2025-11-10",
        "dated": 1,
        "changed": 1,
        "rubric_texts_changed": 2,
        "rules": {"lead": 1},
        "outdated": {},
        "overridden": [],
        "relative": 0,
        "inverted": [],
        "asked_of_a_model": 0,
    }
    page = (tmp_path / PAGE).read_text()
    assert page.startswith("# Dates of the prompts on 2026-11-22\n")
    assert "| lead | 1 |" in page
    assert page.split("## Changed by the rule: lead (1)\n\n")[1].splitlines() == [
        "`webtailbench/air_1`: 378 days later; 14 days ahead when written, 15 now",
        "",
        "```diff",
        "-Book a flight from Oslo to Rome from November 24 to November 27.",
        "+Book a flight from Oslo to Rome from December 7 to December 10.",
        "```",
        "",
        "In its rubric: Nov 24–27 → Dec 7–10, Nov 24 → Dec 7, November 24 → December 7",
    ]
    stored = json.loads((tmp_path / RECORD).read_text())
    assert stored["changed"][0]["prompt"]["dates"][0] == {
        "old": "November 24",
        "new": "December 7",
        "before": ["2025-11-24"],
        "after": ["2026-12-07"],
    }


def test_what_needs_a_person_is_listed(tmp_path):
    questions = {
        "a": "Buy Stampede 2026 tickets for July 6.",
        "b": "Buy Riverfest 2025 tickets.",
        "c": "Book a table on the upcoming Friday.",
        "d": "Flights out 11/23/2025 and back 11/18/2025",
        "e": "A hotel in Rome on Christmas, December 25.",
    }
    rows = [VOYAGER[0] | {"id": name, "ques": question} for name, question in questions.items()]
    settings = voyager_settings(
        tmp_path,
        tasks_file=str(write_lines(tmp_path / "x.jsonl", rows)),
        excluded_file="",
        references_file="",
    )
    _, record = refresh_benchmark(load_benchmark(settings), TODAY, 7, None, tmp_path)
    assert record.outdated == {
        "webvoyager/a": "names an event of 2026, whose days have passed",
        "webvoyager/b": "names an event of 2025",
    }
    assert record.relative == {"webvoyager/c": ("upcoming Friday",)}
    assert record.inverted == ("webvoyager/d",) and record.unchanged == {"event": ("webvoyager/a",)}
    page = (tmp_path / PAGE).read_text()
    for line in (
        "## Outdated: no date can repair these (2)",
        "- `webvoyager/b` names an event of 2025: Buy Riverfest 2025 tickets.",
        "## The return comes before the departure, as published (1)",
        "- `webvoyager/c` (upcoming Friday): Book a table on the upcoming Friday.",
        "## Unchanged: event (1)",
        # The same day of another year.
        " A hotel in Rome on Christmas, December 25.",
    ):
        assert line in page.splitlines()


def test_a_users_prompts_win_over_all_rules(tmp_path):
    benchmark = load_benchmark(tail_settings(tmp_path))
    prompts = {
        "webtailbench/air_1": "Book a flight from Oslo to Rome from March 2 to March 5.",
        "webtailbench/shop_2": "Buy a 2027 calendar.",
    }
    lines = [{"task_id": name, "prompt": prompt} for name, prompt in prompts.items()]
    for path in (write_lines(tmp_path / "own.jsonl", lines), write_json(tmp_path / "own.json", prompts)):
        assert read_overrides(str(path), benchmark) == prompts
    refreshed, record = refresh_benchmark(benchmark, TODAY, 7, None, tmp_path, prompts)
    assert {task.task_id: task.objective for task in refreshed.tasks} == prompts
    # Its rubric follows, because both dates moved by the same number of days.
    rubric = refreshed.notes["webtailbench/air_1"].rubric
    assert rubric[0].description == "Mar 2–5 (Monday to Thursday), or Mar 2 alone for half."
    assert record.rules() == {"override": 2} and record.summary()["overridden"] == list(prompts)
    page = (tmp_path / PAGE).read_text()
    assert "`webtailbench/shop_2`: 0 days later; its rubric keeps its dates: check it\n" in page
    # Taken back in a resumed run.
    with pytest.raises(UserError, match="begun with other prompts"):
        refresh_benchmark(benchmark, TODAY, 7, None, tmp_path)
    # The same file serves a subset of the benchmark.
    subset = benchmark.select(["webtailbench/shop_2"])
    assert read_overrides(str(tmp_path / "own.json"), subset) == prompts
    (tmp_path / "subset").mkdir()
    asked, _ = refresh_benchmark(subset, TODAY, 7, None, tmp_path / "subset", prompts)
    assert [task.objective for task in asked.tasks] == ["Buy a 2027 calendar."]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"task_id": "webtailbench/tea_9", "prompt": "x"}',
            "no tasks of webtailbench: webtailbench/tea_9;",
        ),
        ("a.json", '{"air_1": "x", "webtailbench/air_1": "y"}', "no tasks of webtailbench: air_1;"),
        (
            "a.json",
            '{"webtailbench/air_1": "x", "webtailbench/air_1": "y"}',
            "tasks that come twice: webtailbench/air_1;",
        ),
        ("a.jsonl", '{"task_id": "webtailbench/air_1"}', r"a\.jsonl.* line 1: prompt: Field required"),
        (
            "a.jsonl",
            '{"task_id": "webtailbench/air_1", "prompt": ""}',
            "line 1: prompt: String should have at least 1",
        ),
        ("a.json", '{"webtailbench/air_1": 3}', "not an object of prompts"),
        ("a.json", "[3]", "not an object of prompts"),
        ("a.json", '{"webtailbench', "not an object of prompts"),
        ("a.txt", "", r"a\.txt: name it \.jsonl"),
        ("none/a.json", None, "No such file"),
        ("none/a.jsonl", None, "No such file"),
    ],
)
def test_an_overrides_file_that_cannot_be_used_is_one_line(tmp_path, name, content, message):
    benchmark = load_benchmark(tail_settings(tmp_path))
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        read_overrides(str(tmp_path / name), benchmark)
    assert "\n" not in str(error.value)


def test_an_answer_found_for_the_old_days_is_not_the_only_right_one(tmp_path):
    benchmark, record = refresh_benchmark(
        load_benchmark(voyager_settings(tmp_path)), TODAY, 7, None, tmp_path
    )
    stay, papers, _ = (benchmark.notes.get(task.task_id) for task in benchmark.tasks)
    assert stay.reference.golden is False and papers.reference.golden is True
    assert record.unchanged == {"past": ("webvoyager/Papers--0",)} and record.dated == 2


def test_a_resumed_run_goes_by_the_day_on_which_it_was_begun(tmp_path):
    published = load_benchmark(voyager_settings(tmp_path))
    first, _ = refresh_benchmark(published, TODAY, 7, None, tmp_path)
    files = [(tmp_path / name).read_bytes() for name in (PAGE, RECORD)]
    later, record = refresh_benchmark(published, TODAY + timedelta(days=40), 7, None, tmp_path)
    assert later == first and record.today == TODAY
    assert [(tmp_path / name).read_bytes() for name in (PAGE, RECORD)] == files
    other = load_benchmark(voyager_settings(tmp_path, excluded_file=""))
    with pytest.raises(UserError, match=r"date_refresh\.json: this run was begun with other prompts"):
        refresh_benchmark(other, TODAY, 7, None, tmp_path)
    (tmp_path / RECORD).write_text("{}")
    with pytest.raises(UserError, match="written by another version"):
        refresh_benchmark(published, TODAY, 7, None, tmp_path)


def model_at(server):
    config = ModelConfig(kind="chat", base_url=f"{server.url}/v1", calls=1, temperature=0.0)
    return make_model(config.resolve())


def test_a_model_is_asked_about_prompts_that_no_rule_takes_and_its_word_is_kept(tmp_path):
    rows = [*VOYAGER, VOYAGER[3] | {"id": "Games--0", "ques": "Who plays on January 15, 2024?"}]
    settings = voyager_settings(tmp_path, tasks_file=str(write_lines(tmp_path / "x.jsonl", rows)))
    published = load_benchmark(settings)
    answers = [json.dumps({"reason": "r", "bound": bound}) for bound in (False, True)]
    with ModelServer([completion(answer) for answer in answers]) as server:
        model = model_at(server)
        asked, record = refresh_benchmark(published, TODAY, 7, lambda text: ask_bound(text, model), tmp_path)
        assert len(server.calls) == 2
        prompts = [json.dumps(call.body) for call in server.calls]
    assert "Jan 1, 2024; Jan 3, 2024" in prompts[0] and "Who plays" in prompts[1]
    assert record.asked == {"webvoyager/Papers--0": False, "webvoyager/Games--0": True}
    assert asked.tasks[-1].objective == "Who plays on December 28, 2026?"
    again, _ = refresh_benchmark(published, TODAY, 7, None, tmp_path)
    assert again == asked


@pytest.mark.parametrize(
    "replies",
    [
        ["Yes, it is bound.", "yes"],
        ['{"reason": "r", "bound": "yes"}', '{"bound": true}'],
        ['{"reason": "r", "bound": true, "text": "Another prompt"}', "{}"],
    ],
    ids=["prose", "another type", "more than asked"],
)
def test_without_a_proper_answer_a_prompt_stays(replies):
    with ModelServer([completion(reply) for reply in replies]) as server:
        assert ask_bound("Who plays on January 15, 2024?", model_at(server)) is False
        assert len(server.calls) == 2
    with ModelServer([completion('```json\n{"reason": "r", "bound": true}\n```')]) as server:
        assert ask_bound("Who plays on January 15, 2024?", model_at(server)) is True
    with ModelServer([Answer(401, {"error": {"message": "no"}})]) as server, pytest.raises(UserError):
        ask_bound("Who plays on January 15, 2024?", model_at(server))
    assert answer_schema()["required"] == ["reason", "bound"]


# About days that have been; all others of the real rows that name a day plan something for it.
ABOUT_THE_PAST = {
    *("ArXiv--31", "ArXiv--42", "ESPN--15", "GitHub--28", "Wolfram Alpha--10", "Wolfram Alpha--37"),
}
DATED = {"webvoyager": 89, "webtailbench": 134}


@pytest.mark.parametrize("name", DATED)
@pytest.mark.parametrize("day", ["2026-11-22", "2027-02-10", "2028-02-29", "2026-07-04", "2031-12-31"])
def test_all_real_rows(name, day, tmp_path):
    published = load_benchmark(real_settings(name) | ({"excluded_file": ""} if name == "webvoyager" else {}))
    today = date.fromisoformat(day)
    refreshed, record = refresh_benchmark(published, today, LEAD_DAYS, None, tmp_path)
    changes = {change.task_id: change for change in record.changed}
    naming = [task.task_id for task in published.tasks if find(task.objective)]
    kept = [one for ids in record.unchanged.values() for one in ids]
    assert sorted(naming) == sorted((*changes, *kept)) and record.dated == DATED[name]
    past = {one.partition("/")[2] for one in record.unchanged.get("past", ())}
    assert past == (ABOUT_THE_PAST if name == "webvoyager" else set())
    for before, after in zip(published.tasks, refreshed.tasks, strict=True):
        change = changes.get(before.task_id)
        if change is None:
            assert after == before
            assert published.notes.get(before.task_id) == refreshed.notes.get(before.task_id)
            continue
        assert published.written is not None
        assert broken(before.objective, after.objective, published.written, today, LEAD_DAYS) == []
        for note in change.notes:
            assert not rubric_broken(note.old, note.new, timedelta(days=change.days)), note
        again = refresh(after.objective, today, today)
        assert again.text == after.objective and again.rule in ("ahead", "holiday")


def test_real_rows_are_rewritten_as_somebody_would():
    def prompt(benchmark, name):
        published = load_benchmark(real_settings(benchmark))
        task = next(task for task in published.tasks if task.task_id.endswith(f"/{name}"))
        assert published.written is not None
        return refresh(task.objective, TODAY, published.written).text

    assert "from Jan 1 to Jan 4, 2027" in prompt("webvoyager", "Booking--5")
    assert "for 16/12/2026 - 17/12/2026." in prompt("webvoyager", "Booking--8")
    assert "Valentine's Day week, February 14-21, 2027" in prompt("webvoyager", "Booking--10")
    assert "(10 March to 12 March 2027)" in prompt("webvoyager", "Booking--40")
    assert "today (November 22, 2026)" in prompt("webvoyager", "Google Flights--1")
    assert "for Saturday, December 5 at 7:00 PM" in prompt("webtailbench", "longshots-bar_1")
    assert "February 5 checking out on the 12." in prompt("webtailbench", "caesars_162")
    assert "September 9, 2027 - September 26, 2027" in prompt("webtailbench", "westjet_47")
    assert "July 16 till August 10" in prompt("webtailbench", "iberia_41")
