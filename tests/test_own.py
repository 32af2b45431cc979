"""Judge, site, actor and benchmark of one's own: what is refused at the door, and what a run is made of."""

import contextlib
import hashlib
import itertools
import json
import sys
from typing import Any, cast

import pytest

from collection.environments.sites import Sites
from collection.evaluation.benchmarks import load_benchmark
from collection.evaluation.config import evaluate_settings
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.collect import collect
from collection.fleet.config import CollectSettings
from collection.fleet.journal import RunJournal
from collection.gym.session import find
from collection.judges import build
from collection.judges.build import JudgeConfig, judge_config, make_judge, make_judges
from collection.judges.config import JudgeDataSettings, JudgeSettings
from collection.llm.build import make_actor
from collection.llm.calls import CALLS, Calls
from collection.llm.config import ActorConfig, ModelConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.own import file_digest
from rmsweb_jax.records.schema import Task
from rmsweb_jax.settings import from_config
from rmsweb_jax.workdir import run_stage
from tests.fleet.acting import config, run
from tests.fleet.test_judging import job, script

OWN = """
from collection import ActorModel, ActorReply, Benchmark, Criterion, Environment, TaskNotes, Verdict
from rmsweb_jax import Task

class Judge:
    name = "mine"

    def judge(self, trajectory, images):
        return Verdict(trajectory.final_text.startswith("0"), "The price is compared.")

class Asks(Judge):
    def __init__(self, model, notes):
        self.model, self.notes = model, notes

class Careless(Judge):
    def judge(self, trajectory, images):
        return True

class NoJudge:
    name = "none"

class Broken(Judge):
    def __init__(self):
        raise ValueError("no rules")

class Actor(ActorModel):
    pass

class Page(Environment):
    @staticmethod
    def tasks(seed):
        task = Task(task_id=f"page/{seed}", website="page", objective="Read it.")
        return [task, Task(task_id="page/always", website="page", objective="Read it again.", seed=7)]

    def observe(self):
        pass

    def act(self, actions, extract, deadline):
        pass

    def reward(self):
        pass

class Unpaid(Page):
    reward = Environment.reward

class Method(Page):
    def tasks(self, seed):
        return []

class Words(Page):
    @staticmethod
    def tasks(seed):
        return ["Read it."]

def mugs():
    task = Task(task_id="mugs/1", website="https://www.shop.example/", objective="Find the cheapest mug.")
    notes = {"mugs/1": TaskNotes(rubric=(Criterion(criterion="cheapest", max_points=1),))}
    return Benchmark("mugs", (task,), notes=notes, levels={"mugs/1": "easy"})

def twice():
    return [*mugs().tasks, *mugs().tasks]

def fails():
    return 1 / 0
"""
CHAT = ModelConfig(kind="chat", model="m", base_url="http://127.0.0.1:1/v1", price=(1.0, 1.0, 1.0))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The file of the module `own_parts`."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "own_parts.py").write_text(OWN)
    file_digest.cache_clear()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    return folder / "own_parts.py"


def judge(name):
    """A judge without a model."""
    made = judge_config(JudgeSettings(method=f"own_parts:{name}"), CHAT, {})
    return make_judge(cast(Any, made), cast(Any, None))


def benchmark(name):
    return load_benchmark(evaluate_settings({"benchmark": name}))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: judge("Nothing"),
            "judge.method is 'own_parts:Nothing': AttributeError: module 'own_parts' has",
        ),
        (
            lambda: judge("NoJudge"),
            "judge.method is 'own_parts:NoJudge': it has no judge; see Judge in docs/own",
        ),
        (lambda: judge("Broken"), "judge.method is 'own_parts:Broken': ValueError: no rules; see Judge in"),
        (lambda: judge("mugs"), "judge.method is 'own_parts:mugs': it is no class; see Judge in docs/own.md"),
        (
            lambda: make_actor(ActorConfig(kind="own_parts:Actor").resolve()),
            "actor.kind is 'own_parts:Actor': TypeError: Can't instantiate abstract class Actor",
        ),
        (
            lambda: make_actor(ActorConfig(kind="nowhere_at_all:Actor")),
            "actor.kind is 'nowhere_at_all:Actor': ModuleNotFoundError: No module",
        ),
        (
            lambda: Sites(["own_parts:Judge"], ""),
            "applications has 'own_parts:Judge': make it an Application, or",
        ),
        (
            lambda: Sites(["own_parts:Unpaid"], ""),
            "applications has 'own_parts:Unpaid': it lacks reward (docs",
        ),
        (
            lambda: Sites(["own_parts:Words"], "").tasks(3),
            "applications has 'own_parts:Words': tasks(3): it gives ['Read it.'], make that a list of Task",
        ),
        (
            lambda: Sites(["own_parts:Method"], "").tasks(3),
            "applications has 'own_parts:Method': tasks(3): TypeError: ",
        ),
        (
            lambda: benchmark("own_parts:fails"),
            "benchmark is 'own_parts:fails': ZeroDivisionError: division by",
        ),
        (lambda: benchmark("own_parts:Page"), "benchmark is 'own_parts:Page': TypeError: "),
        (
            lambda: benchmark("own_parts:twice"),
            "benchmark is 'own_parts:twice': tasks that come twice: mugs/1; ",
        ),
        (lambda: benchmark(""), "benchmark is empty: give your function that returns tasks, module:name"),
        (
            lambda: from_config(CollectSettings, {"judge": {"method": "mine"}}),
            "judge.method is 'mine': use one of",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(own, make, line):
    with pytest.raises(UserError) as raised:
        make()
    assert str(raised.value).startswith(f"config.{line}") and "\n" not in str(raised.value)


def test_a_judge_without_a_model_decides_and_says_what_it_was(own, tmp_path):
    jobs = [job(number) for number in range(2)]
    section = JudgeSettings(method="own_parts:Judge", kind="actor")
    made = judge_config(section, ModelConfig(kind="none"), {})
    assert made == JudgeConfig(None, "own_parts:Judge", {})
    run(jobs, tmp_path, script, config(), judge=made)
    with contextlib.closing(RunJournal(tmp_path)) as journal:
        judged = [journal.read(one) for of in journal.rounds.values() for one in of.values()]
    assert [(one.success, one.judge) for one in judged] == [(True, "mine"), (False, "mine")]
    fingerprint = judged[0].judge_fingerprint
    assert fingerprint is not None
    assert fingerprint.method == "own_parts:Judge"
    assert fingerprint.source == f"sha256:{hashlib.sha256(own.read_bytes()).hexdigest()}"


def test_a_judge_is_given_the_model_and_the_notes_that_it_takes(own, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "make_model", lambda config, calls: config.model)  # Clients load for seconds.
    notes = {"t": benchmark("own_parts:mugs").notes["mugs/1"]}
    settings = JudgeDataSettings(data="d", judges=("recorded", "own_parts:Asks", "own_parts:Judge"))
    with Calls(tmp_path / CALLS) as calls:
        judges = make_judges(settings, CHAT, notes, calls)
        asks = cast(Any, judges["own_parts:Asks"])._judge
        assert asks.model == "m" and asks.notes == notes
        with pytest.raises(
            UserError, match=r"config.judges.kind=actor: the actor is none, which cannot judge"
        ):
            make_judges(settings, ModelConfig(kind="none"), notes, calls)


def test_a_judge_that_gives_no_verdict_is_named(own):
    with pytest.raises(UserError, match="own_parts:Careless: it gave a bool, not a Verdict"):
        judge("Careless").judge(cast(Any, None), cast(Any, None))


def test_tasks_of_a_site_name_it_and_come_once(own, tmp_path):
    tasks = Sites(["own_parts:Page"], "").tasks(3)
    assert [(one.task_id, one.environment, one.site, one.seed) for one in tasks] == [
        ("page/3", "own_parts:Page", "Page", 3),
        ("page/always", "own_parts:Page", "Page", 7),
    ]
    held_out = load_benchmark(
        evaluate_settings({"benchmark": "apps", "applications": ("own_parts:Page",), "seeds": 2})
    )
    assert [one.task_id for one in held_out.tasks] == ["page/1000000", "page/always", "page/1000001"]


def test_what_a_record_names_is_not_imported(own, tmp_path):
    """A data set of others may name any class of this machine; only settings decide what runs."""
    task = Task(task_id="a", website="a", objective="a", environment="own_parts:Page")
    file = tmp_path / "tasks.jsonl"
    file.write_text(task.model_copy(update={"website": "https://a.test"}).model_dump_json())
    refused = "played at own_parts:Page, which this run does not name: add it to config.applications"
    with pytest.raises(UserError, match=refused):
        collect({"tasks_file": str(file)}, tmp_path / "run")
    settings = CollectSettings()
    with BrowserPool(settings.browser, settings.guard, settings.fleet) as pool:
        application = task.model_copy(update={"environment": "app", "task_id": "own_parts:Page/mugs/1"})
        for one, use in itertools.product((task, application), (pool.needs_browser, pool.browser)):
            with pytest.raises(UserError, match=refused):
                use(one)
        with pytest.raises(UserError, match="there is no application 'own_parts:Page'"):
            pool.application("own_parts:Page")
    with pytest.raises(UserError, match="there is no application 'own_parts:Page'"):
        find("own_parts:Page/mugs", 1)
    assert "own_parts" not in sys.modules


def test_a_benchmark_is_a_function(own):
    made = benchmark("own_parts:mugs")
    assert (made.name, made.tasks[0].site) == ("own_parts:mugs", "www.shop.example")
    assert made.levels == {"mugs/1": "easy"} and made.notes["mugs/1"].rubric
    (question,) = made.questions
    assert question.text == "Find the cheapest mug."


def test_a_run_goes_on_with_the_same_file_alone(own, tmp_path):
    def stage(settings, folder):
        (folder / "episodes.jsonl").write_text("1\n")
        return {}

    def go_on(**changed):
        settings = {"applications": ("own_parts:Page",), "judge": {"method": "own_parts:Judge"}, **changed}
        return run_stage(stage, from_config(CollectSettings, settings), tmp_path / "run")

    go_on()
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    written = json.loads((tmp_path / "run/config.json").read_bytes())
    assert written["own_files"] == {
        "applications": f"own_parts:Page {digest}",
        "judge": {"method": f"own_parts:Judge {digest}"},
    }
    go_on(apps_folder="elsewhere")
    with pytest.raises(
        UserError, match=r"other settings \(applications, own_files.applications; applications"
    ):
        go_on(applications=())
    own.write_text(f"{OWN}\nRULES = 2\n")
    file_digest.cache_clear()
    with pytest.raises(UserError, match=rf"own_files.judge.method; own_files.applications was .*{digest}'"):
        go_on()
