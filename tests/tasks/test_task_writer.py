"""Queries into tasks by a model of plain answers, interrupted and resumed."""

import datetime
import json
import os
import subprocess
import sys
import threading
import unittest.mock
from pathlib import Path

import pytest

from collection.llm.calls import BudgetError
from collection.llm.model import ModelReply
from collection.tasks.contamination import BenchmarkIndex, BenchmarkQuestion
from collection.tasks.files import BadLine, ParsedLines, read_tasks
from collection.tasks.seeds import CATEGORIES, Query, answer_schema, write_task
from collection.tasks.task_writer import BEGUN, JOURNAL, date_of_run, publish_tasks, write_tasks
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.journal import read_journal
from rmsweb_jax.records.schema import CallUsage
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer

ROOT = Path(__file__).parent.parent.parent
TODAY = datetime.date(2026, 11, 25)


def answer(query="tea", **change):
    return json.dumps(
        {
            "executable": True,
            "drop_reason": "",
            "website": "https://www.tea-house.example.com",
            "objective": f"On Example, find {query} and report its price.",
            "constraints": ["Under 9 EUR."],
            "category": "E-Commerce",
        }
        | change
    )


class ScriptedAnswers:
    """A model that answers by the query in the prompt; raises at the queries in `fail`."""

    name = "answers"

    def __init__(self, answers=None, fail=()):
        self.requests, self._answers, self._fail = [], answers or {}, dict(fail)
        self._lock = threading.Lock()

    def complete(self, request):
        query = request.messages[0].text.split("<query>\n")[1].split("\n</query>")[0]
        with self._lock:
            self.requests.append(request)
        if query in self._fail:
            raise self._fail[query]
        text = self._answers.get(query, answer(query))
        if isinstance(text, list):
            text = text.pop(0)
        return text if isinstance(text, ModelReply) else ModelReply(text, CallUsage(cost=0.25))


def test_a_query_becomes_a_task_that_names_its_site():
    model = ScriptedAnswers()
    written = write_task(Query(query="green tea", locale="de-AT"), model, TODAY)
    task = written.task
    assert task is not None and written.drop is None and written.usage.cost == 0.25
    assert task.website == "https://www.tea-house.example.com/" and task.site == "example.com"
    assert task.objective == "On Example, find green tea and report its price."
    assert task.constraints == ("Under 9 EUR.",) and task.category == "E-Commerce"
    assert task.task_id.startswith("web/example.com/")
    (request,) = model.requests
    assert request.purpose == "task" and request.schema == answer_schema()
    assert "de-AT" in request.messages[0].text and all(
        name in request.messages[0].text for name in CATEGORIES
    )
    assert "<today>Wednesday, 2026-11-25</today>" in request.messages[0].text
    nameless = write_task(Query(query="q"), ScriptedAnswers({"q": answer(objective="Find tea.")}), TODAY).task
    assert nameless is not None and nameless.objective == "On example.com: Find tea."


@pytest.mark.parametrize(
    "text,drop,reason,asks",
    [
        (answer(executable=False, drop_reason="It needs an account."), "not_executable", "an account", 1),
        (answer(website="https://127.0.0.1/"), "bad_website", "not on the public web", 1),
        (answer(website="tea"), "bad_website", "is no address", 1),
        (answer(category="Tea"), "invalid_answer", "category 'Tea'", 2),
        (answer(objective=" "), "invalid_answer", "objective is empty", 2),
        (answer(constraints="none"), "invalid_answer", "constraints: ", 2),
        (answer(constraints=[" "]), "invalid_answer", "constraints.0: ", 2),
        (answer(price=3), "invalid_answer", "price: Extra inputs", 2),
        ("Here is your task: find tea.", "invalid_answer", "Invalid JSON", 2),
        (ModelReply("{", problem="cut off"), "no_answer", "cut off", 2),
        # An answer of another shape is asked for once more, and both are paid.
        (["prose", f"```json\n{answer()}\n```"], None, "", 2),
    ],
)
def test_invalid_replies_are_dropped_with_the_reason(text, drop, reason, asks):
    model = ScriptedAnswers({"tea": text})
    written = write_task(Query(query="tea"), model, TODAY)
    assert (written.task is None) == bool(drop) and written.drop == drop and reason in written.reason
    assert len(model.requests) == asks == len({request.seed for request in model.requests})
    if not isinstance(text, ModelReply):
        assert written.usage.cost == asks * 0.25


def queries(*texts, bad=()):
    return ParsedLines(
        tuple((number, Query(query=text)) for number, text in enumerate(texts, start=1)), tuple(bad)
    )


def test_tasks_are_published_in_order_with_reasons_for_the_others(tmp_path):
    texts = ("tea", "coffee", "tea", "same tea", "log in", "copied")
    model = ScriptedAnswers(
        {
            "same tea": answer("tea"),
            "log in": answer(executable=False, drop_reason="It needs an account."),
            "copied": answer(objective="On Example, compare the prices of tea, milk and honey."),
        }
    )
    index = BenchmarkIndex(
        [BenchmarkQuestion("webvoyager", "Tea--0", "Compare the prices of tea, milk and honey.")]
    )
    given = queries(*texts, bad=[BadLine(7, "not UTF-8 at byte 1")])
    written = write_tasks((query for _, query in given.good), model, TODAY, tmp_path, workers=3)
    assert len(model.requests) == 5
    report = publish_tasks(given, written, index, tmp_path)
    assert [task.objective[17:20] for _, task in read_tasks(tmp_path / "tasks.jsonl").good] == ["tea", "cof"]
    dropped = [json.loads(line) for line in (tmp_path / "dropped.jsonl").read_text().splitlines()]
    assert [(drop["line"], drop["kind"]) for drop in dropped] == [
        (3, "duplicate"),
        (4, "duplicate"),
        (5, "not_executable"),
        (6, "contaminated"),
        (7, "malformed_line"),
    ]
    assert "substring" in dropped[3]["reason"] and "webvoyager Tea--0" in dropped[3]["reason"]
    assert report["lines"] == 7 and report["malformed_lines"] == [7] and report["tasks"] == 2
    assert report["categories"]["E-Commerce"] == {"tasks": 2, "share": 1.0}
    assert report["categories"].keys() == CATEGORIES.keys()
    assert report["dropped"]["duplicate"] == 2
    assert report["contaminated_by"] == {"webvoyager: substring": 1} and report["contamination_checked"]
    assert publish_tasks(given, written, None, tmp_path)["contamination_checked"] is False


def test_answers_before_an_error_are_reused(tmp_path):
    texts = [f"query {number}" for number in range(12)]
    broken = ScriptedAnswers(fail={"query 5": BudgetError("spent")})
    with pytest.raises(BudgetError):
        write_tasks([Query(query=text) for text in texts], broken, TODAY, tmp_path, workers=2)
    kept = len(read_journal(tmp_path / JOURNAL))
    # Every call that was begun is kept, but for the one that failed; none is begun after it.
    assert kept == len(broken.requests) - 1 and 5 <= kept <= 7
    model = ScriptedAnswers()
    written = write_tasks([Query(query=text) for text in texts], model, TODAY, tmp_path, workers=2)
    assert len(model.requests) == 12 - kept and len(written) == 12
    assert {one.key for one in written.values() if one.task} == {Query(query=text).key for text in texts}


def test_no_task_at_all_is_an_error(tmp_path):
    given = queries("tea")
    written = write_tasks(
        [Query(query="tea")], ScriptedAnswers({"tea": answer(website="no")}), TODAY, tmp_path, workers=1
    )
    with pytest.raises(UserError, match=r"no query made a task: .*dropped\.jsonl"):
        publish_tasks(given, written, None, tmp_path)


def make_tasks(tmp_path, *arguments):
    command = [sys.executable, "-m", "experiments.make_tasks", f"--workdir={tmp_path / 'run'}", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "GEMINI_API_KEY"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_script_makes_tasks_up_to_its_cap_and_resumes_with_another(tmp_path):
    path = tmp_path / "queries.txt"
    path.write_bytes(b"green tea\n\xff\nblack tea\n")
    with ModelServer([completion(answer()), completion(answer("milk")), Answer(500, b"")]) as server:
        # A call costs 0.0011 $ and may cost, with 4,096 tokens, nearly 0.005 $.
        settings = (
            f"--config.queries={path}",
            "--config.actor.kind=chat",
            f"--config.actor.base_url={server.url}/v1",
            "--config.actor.price=1,0,1",
            "--config.workers=1",
            "--config.today=2027-02-03",
        )
        capped = make_tasks(tmp_path, *settings, "--config.actor.cap_usd=0.0055")
        assert capped.returncode == 4 and "error: budget: $0.0011 spent of a cap of $0.0055" in capped.stderr
        assert "line 2: not UTF-8" in capped.stderr
        ended = make_tasks(tmp_path, *settings, "--config.actor.cap_usd=1.0")
        assert ended.returncode == 0, ended.stderr
        assert len(server.calls) == 2
        assert all("<today>Wednesday, 2027-02-03</today>" in json.dumps(call.body) for call in server.calls)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["tasks"] == 2 and report["cost_usd"] == pytest.approx(0.0022)
    assert report["calls"]["task"]["calls"] == 2 and report["malformed_lines"] == [2]


def test_the_script_without_a_key_ends_in_one_line(tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("green tea\n")
    ended = make_tasks(tmp_path, f"--config.queries={path}")
    assert ended.returncode == 2 and ended.stderr.splitlines() == [
        "error: config.actor.kind=gemini: set GEMINI_API_KEY, or take another kind"
    ]


def test_a_run_that_goes_on_another_day_keeps_the_date_of_its_first(tmp_path):
    class Day(datetime.date):
        number = 25

        @classmethod
        def today(cls):
            return cls(2026, 11, cls.number)

    with unittest.mock.patch("collection.tasks.task_writer.datetime.date", Day):
        assert date_of_run("", tmp_path).isoformat() == "2026-11-25"
        Day.number = 26
        assert date_of_run("", tmp_path).isoformat() == "2026-11-25"
    assert date_of_run("2027-02-03", tmp_path) == datetime.date(2027, 2, 3)
    with pytest.raises(UserError, match=r"config\.today='tomorrow': write it as YYYY-MM-DD"):
        date_of_run("tomorrow", tmp_path)
    (tmp_path / BEGUN).write_text("{}")
    with pytest.raises(UserError, match=r"begun\.json: damaged"):
        date_of_run("", tmp_path)
