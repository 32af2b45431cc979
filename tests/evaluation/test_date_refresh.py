"""Whole benchmarks are refreshed, rubrics with their prompts; the record is complete and resumable."""

import json
import re
from datetime import date, timedelta

import pytest

from collection.evaluation.dates.asking import answer_schema, ask_bound
from collection.evaluation.dates.benchmark import DIFF, RECORD, refresh_benchmark
from collection.evaluation.dates.moving import refresh
from collection.llm.config import ModelConfig, make_model
from rmsweb_jax.errors import UserError
from tests.evaluation.rows import (
    VOYAGER,
    load_benchmark,
    real_settings,
    tail_settings,
    voyager_settings,
    write_lines,
)
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer

TODAY = date(2026, 11, 22)


def test_prompts_rubrics_and_answers_of_a_benchmark(tmp_path):
    benchmark, record = refresh_benchmark(load_benchmark(tail_settings(tmp_path)), TODAY, 14, None, tmp_path)
    flight, calendar = benchmark.tasks
    assert flight.objective == "Book a flight from Oslo to Rome from December 7 to December 10."
    rubric = benchmark.notes[flight.task_id].rubric
    assert rubric[0].description == "Dec 7–10 (Monday to Thursday), or Dec 7 alone for half."
    assert rubric[1].condition == "Only if nothing flies on December 7." and rubric[0].max_points == 4
    assert calendar.objective == "Buy a 2023 calendar."
    assert record.summary() == {
        "today": "2026-11-22",
        "lead_days": 14,
        "written": "2025-11-10",
        "dated": 1,
        "changed": 1,
        "rubric_texts_changed": 2,
        "kept": [],
        "asked_of_a_model": 0,
        "moved_by_years": [],
        "name_a_year_that_stays": [],
    }
    assert (tmp_path / DIFF).read_text().splitlines() == [
        "--- as published",
        "+++ on 2026-11-22",
        "@@ webtailbench/air_1: 54 weeks later @@",
        "-Book a flight from Oslo to Rome from November 24 to November 27.",
        "+Book a flight from Oslo to Rome from December 7 to December 10.",
        "-Nov 24–27 (Monday to Thursday), or Nov 24 alone for half.",
        "+Dec 7–10 (Monday to Thursday), or Dec 7 alone for half.",
        "-Only if nothing flies on November 24.",
        "+Only if nothing flies on December 7.",
    ]
    stored = json.loads((tmp_path / RECORD).read_text())
    assert stored["changed"][0]["prompt"]["dates"][0] == {
        "old": "November 24",
        "new": "December 7",
        "before": ["2025-11-24"],
        "after": ["2026-12-07"],
    }


def test_an_answer_found_for_the_old_days_is_not_the_only_right_one(tmp_path):
    benchmark, record = refresh_benchmark(
        load_benchmark(voyager_settings(tmp_path)), TODAY, 14, None, tmp_path
    )
    stay, papers, _ = (benchmark.notes.get(task.task_id) for task in benchmark.tasks)
    assert stay.reference.golden is False and papers.reference.golden is True
    assert record.kept == ("webvoyager/Papers--0",) and record.dated == 2


def test_a_resumed_run_goes_by_the_day_on_which_it_was_begun(tmp_path):
    published = load_benchmark(voyager_settings(tmp_path))
    first, _ = refresh_benchmark(published, TODAY, 14, None, tmp_path)
    files = [(tmp_path / name).read_bytes() for name in (DIFF, RECORD)]
    later, record = refresh_benchmark(published, TODAY + timedelta(days=40), 14, None, tmp_path)
    assert later == first and record.today == TODAY
    assert [(tmp_path / name).read_bytes() for name in (DIFF, RECORD)] == files
    other = load_benchmark(voyager_settings(tmp_path, excluded_file=""))
    with pytest.raises(UserError, match=r"date_refresh\.json: this run was begun with other prompts"):
        refresh_benchmark(other, TODAY, 14, None, tmp_path)
    (tmp_path / RECORD).write_text("{}")
    with pytest.raises(UserError, match="written by another version"):
        refresh_benchmark(published, TODAY, 14, None, tmp_path)


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
        asked, record = refresh_benchmark(published, TODAY, 14, lambda text: ask_bound(text, model), tmp_path)
        assert len(server.calls) == 2
        prompts = [json.dumps(call.body) for call in server.calls]
    assert "Jan 1, 2024; Jan 3, 2024" in prompts[0] and "Who plays" in prompts[1]
    assert record.asked == {"webvoyager/Papers--0": False, "webvoyager/Games--0": True}
    assert asked.tasks[-1].objective == "Who plays on December 7, 2026?"
    again, _ = refresh_benchmark(published, TODAY, 14, None, tmp_path)
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


# A reader of its own, with nothing of the code that is tested.
NAMES = [date(2024, month, 1).strftime("%B") for month in range(1, 13)]
MONTH = "|".join([*NAMES, *(f"{name[:3]}\\.?" for name in NAMES), "Sept"])
PLAIN = re.compile(
    rf"\b(?:(?P<month>{MONTH}) ?(?P<day>\d\d?)(?:st|nd|rd|th)?(?![\d:])(?:[-–]\d\d?(?:st|nd|rd|th)?\b)?"
    rf"|(?P<day2>\d\d?)(?:st|nd|rd|th)? (?P<month2>{MONTH})\b)(?:,? (?P<year>20\d\d))?"
    rf"|\b(?P<m>\d\d?)/(?P<d>\d\d?)/(?P<y>20\d\d|\d\d)\b|\b(?P<iso>20\d\d-\d\d-\d\d)\b"
)


def read_plainly(text: str, today: date) -> list[date]:
    """Days as somebody reads them today: without a year, the next one."""
    days, day_first = [], re.search(r"\b(?:1[3-9]|2\d|3[01])/\d\d?/20", text)
    for match in PLAIN.finditer(text):
        if match["iso"]:
            days.append(date.fromisoformat(match["iso"]))
        elif match["m"]:
            month, day = (match["d"], match["m"]) if day_first else (match["m"], match["d"])
            days.append(date(int(match["y"][-2:]) + 2000, int(month), int(day)))
        else:
            name = (match["month"] or match["month2"])[:3]
            month = 1 + [one[:3] for one in NAMES].index(name)
            day = int(match["day"] or match["day2"])
            year = int(match["year"]) if match["year"] else today.year
            found = date(year, month, day)
            days.append(found if match["year"] or found >= today else date(year + 1, month, day))
    return days


# About days that have been; all others of the real rows that name a day plan something for it.
ABOUT_THE_PAST = {
    *("ArXiv--31", "ArXiv--42", "ESPN--15", "GitHub--28", "Wolfram Alpha--10", "Wolfram Alpha--37"),
}
REAL = {"webvoyager": 83, "webtailbench": 134}


def published_tasks(name):
    excluded = {"excluded_file": ""} if name == "webvoyager" else {}
    return load_benchmark(real_settings(name) | excluded)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("day", ["2026-11-22", "2027-02-10", "2028-02-29", "2026-07-04", "2031-12-31"])
def test_all_real_rows(name, day, tmp_path):
    published, today = published_tasks(name), date.fromisoformat(day)
    refreshed, record = refresh_benchmark(published, today, 14, None, tmp_path)
    changes = {change.task_id: change for change in record.changed}
    ids = {task.task_id for task in published.tasks if task.task_id.partition("/")[2] in ABOUT_THE_PAST}
    # All that name a day for a reader who knows nothing of the code, but for those that look back.
    naming = {task.task_id for task in published.tasks if read_plainly(task.objective, today)}
    assert naming - ids <= changes.keys() | set(record.kept) and ids <= set(record.kept)
    if day == "2026-11-22":
        assert len(changes) == REAL[name] and set(record.kept) == ids
    floor = today + timedelta(days=14)
    for before, after in zip(published.tasks, refreshed.tasks, strict=True):
        change = changes.get(before.task_id)
        if change is None:
            assert after == before
            assert published.notes.get(before.task_id) == refreshed.notes.get(before.task_id)
            continue
        assert (after.objective, before.objective) == (change.prompt.new, change.prompt.old)
        assert change.prompt.new != change.prompt.old or change.notes
        days = [day for one in change.prompt.dates for day in one.after]
        assert min(days) >= floor
        # But where a day first in numbers has to stay above 12.
        late = timedelta(weeks=3 if before.task_id.endswith("Booking--8") else 1)
        assert min(days) < floor + late or change.yearly
        for one in (*change.prompt.dates, *(one for note in change.notes for one in note.dates)):
            assert all(
                (new - old).days == 7 * change.weeks for old, new in zip(one.before, one.after, strict=True)
            )
        assert refresh(after.objective, today, today).text == after.objective
    # What people get to read.
    new = [line[1:] for line in (tmp_path / DIFF).read_text().splitlines()[2:] if line.startswith("+")]
    assert len(new) >= len(changes)
    for line in new:
        found = read_plainly(line, today)
        assert all(floor <= one < today + timedelta(days=500) for one in found), line


def test_real_rows_are_rewritten_as_somebody_would():
    def prompt(benchmark, name, today=TODAY):
        published = published_tasks(benchmark)
        task = next(task for task in published.tasks if task.task_id.endswith(f"/{name}"))
        return refresh(task.objective, today, published.written).text

    assert "from Dec 7 to Dec 10, 2026" in prompt("webvoyager", "Booking--5")
    assert "for 16/12/2026 - 17/12/2026." in prompt("webvoyager", "Booking--8")
    assert "Valentine's Day week, February 17-24, 2027" in prompt("webvoyager", "Booking--10")
    assert "(9 December to 11 December 2026)" in prompt("webvoyager", "Booking--40")
    assert "for Saturday, December 12 at 7:00 PM" in prompt("webtailbench", "longshots-bar_1")
    assert "December 11 checking out on the 18." in prompt("webtailbench", "caesars_162")
    assert "over 12/10-12/14" in prompt("webtailbench", "discounts.aaa_theme_park_16")
