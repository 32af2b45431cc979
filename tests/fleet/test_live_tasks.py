"""Tasks on live pages: a teacher's collection, and a policy that plays the same tasks."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from collection.fleet.collect import collect
from configs import evaluate
from configs.collect import VARIANTS, get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import read_progress
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from tests.judges.verdicts import outcome
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer
from tests.loopback import PageHandler, serving

ROOT = Path(__file__).parents[2]
DONE = {"done": {"text": "12 EUR", "success": True}}
REPLY = {"evaluation_previous_goal": "Unknown", "memory": "", "next_goal": "Say it", "action": [DONE]}
SHOP = "<title>Shop</title><h1>Lamps</h1><p>Green lamp: 12 EUR</p>"
WALL = "<title>Just a moment...</title><p>Verify you are human by completing the action below.</p>"


class _Handler(PageHandler):
    def get(self):
        if self.path == "/robots.txt":
            self.reply("User-agent: *\nDisallow: /private\n", "text/plain")
        else:
            self.reply(WALL if self.headers["Host"].startswith("wall") else SHOP)


@pytest.fixture(scope="module")
def site():
    with serving(_Handler) as address:
        yield address


@pytest.fixture
def models():
    """Servers of the agent's and of the judge's model."""
    with (
        ModelServer([completion(json.dumps(REPLY))]) as agent,
        ModelServer([completion(outcome("success"))]) as judge,
    ):
        yield agent, judge


def settings(variant, site, models, **sections):
    agent, judge = (f"{server.url}/v1" for server in models)
    config = get_config(variant)
    guard = {
        # Names of this machine stand for the public ones of a real run; all else is the variant's.
        "hosts": tuple(f"{name}.test={site}" for name in ("shop", "wall", "other")),
        "private": ("http://*.test",),
    }
    changes = {
        "actor": {"kind": "chat", "base_url": agent, "model": "agent"},
        "judge": {"kind": "chat", "base_url": judge, "model": "judge"},
        "browser": {"width": 500, "height": 320, "quiet_ms": 20},
        "fleet": {"workers": 1, "site_interval_s": 0.0},
        "guard": guard,
    }
    for name, values in sections.items():
        changes[name] = {**changes.get(name, {}), **values} if isinstance(values, dict) else values
    config.update(changes)
    return config


def tasks_file(folder, *sites):
    lines = [
        {
            "task_id": f"{name}-{number}",
            "website": f"http://{name}.test/",
            "objective": "What is the lamp's price?",
        }
        for number, name in enumerate(sites)
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.slow
def test_a_policy_plays_the_tasks_of_a_web_collection_as_the_readme_says(site, models, tmp_path):
    file = tasks_file(tmp_path, "shop", "other")
    taught = collect(settings("web", site, models, tasks_file=file, rounds=1), tmp_path / "collect")
    assert (taught["successes"], taught["outcomes"]) == (2, {"done": 2})
    # What the README's command leaves to the variant: sites, search engine, judge, rounds.
    config = settings("paper_policy", site, models, tasks_from=str(tmp_path / "collect"))
    report = collect(config, tmp_path / "policy")
    assert (report["trajectories"], report["successes"], report["outcomes"]) == (2, 2, {"done": 2})
    for one in read_dataset(tmp_path / "policy", Trajectory):
        assert "12 EUR" in one.steps[0].observation.page_text
        assert (one.actor, one.attempt, one.final_text) == ("sft", 1, "12 EUR") and one.judge


@pytest.mark.parametrize("gpt", ["", "_gpt"])
def test_a_policy_reaches_what_the_teacher_reached_and_has_the_teachers_judge(gpt):
    web, policy = get_config(f"web{gpt}"), get_config(f"paper_policy{gpt}")
    for section in ("guard", "search_urls", "browser", "prompt", "limits"):
        assert web[section] == policy[section]
    assert policy.actor.kind == "policy" and policy.judge.kind == web.actor.kind
    assert (policy.judge.model, policy.judge.base_url) == (web.actor.model, web.actor.base_url)


def run_script(workdir, *flags):
    command = [sys.executable, "-m", "experiments.collect", "--config=configs/collect.py:paper_policy"]
    return subprocess.run(
        [*command, f"--workdir={workdir}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )


def test_a_run_that_may_open_none_of_its_sites_exits_with_one_line(tmp_path, models):
    agent, judge = models
    flags = [
        "--config.actor.kind=chat",
        f"--config.actor.base_url={agent.url}/v1",
        "--config.judge.kind=chat",
        f"--config.judge.base_url={judge.url}/v1",
        f"--config.tasks_file={tasks_file(tmp_path, 'shop', 'other')}",
        "--config.guard.task_site=False",
    ]
    ended = run_script(tmp_path / "run", *flags)
    line = ended.stderr.strip().splitlines()[-1]
    assert ended.returncode == 2 and line.startswith(
        "error: no task can be played: the guard refuses http://shop"
    )
    assert "config.guard.task_site=True" in line
    assert not agent.calls and not (tmp_path / "run" / "episodes.jsonl").exists()


@pytest.mark.slow
def test_a_run_whose_sites_all_refuse_is_an_error(site, models, tmp_path):
    models[0].always = completion(json.dumps(REPLY | {"action": [{"wait": {"seconds": 0}}]}))
    config = settings("web", site, models, tasks_file=tasks_file(tmp_path, "wall"), rounds=1)
    with pytest.raises(
        UserError, match=r"no task could be played \(captcha 1\); first wall-0: the last page"
    ) as error:
        collect(config, tmp_path / "run")
    assert error.value.exit_code == 2 and "\n" not in str(error.value)
    assert not (tmp_path / "run" / "report.json").exists()
    # And the run says it again, without playing anything.
    before = len(models[0].calls)
    with pytest.raises(UserError, match="no task could be played"):
        collect(config, tmp_path / "run")
    assert len(models[0].calls) == before


def test_a_task_whose_start_page_robots_txt_disallows_is_set_aside_at_once(site, models, tmp_path, capfd):
    file = Path(tasks_file(tmp_path, "shop", "shop"))
    file.write_text(file.read_text().replace("http://shop.test/", "http://shop.test/private", 1))
    report = collect(settings("web", site, models, tasks_file=str(file)), tmp_path / "run")
    # The other task of the site is played as usual.
    assert report["outcomes"] == {"done": 2, "unreachable": 1} and report["set_aside"] == {"shop.test": 1}
    printed = capfd.readouterr().err
    assert "set aside, 1 of shop.test: shop-0: " in printed
    assert "robots.txt of the site disallows this page" in printed
    runs = {run.trajectory_id: run for run in read_dataset(tmp_path / "run", Trajectory)}
    assert [one.kind for one in runs["shop-0#teacher-1"].incidents] == ["robots_refused"]


def test_robots_txt_is_obeyed_in_collecting_on_the_web_and_ignored_in_evaluation():
    modes = {name: get_config(name).guard.robots for name in VARIANTS}
    live = {"web", "web_gpt", "paper_policy", "paper_policy_gpt"}
    assert modes == {name: "obey" if name in live else "ignore" for name in VARIANTS}
    assert {evaluate.get_config(name).guard.robots for name in evaluate.VARIANTS} == {"ignore"}


def test_tasks_that_the_guard_refuses_are_counted(site, models, tmp_path, capfd):
    file = tasks_file(tmp_path, "shop", "other")
    guard = {"task_site": False, "private": ("http://shop.test",)}
    report = collect(settings("web", site, models, tasks_file=file, rounds=1, guard=guard), tmp_path / "run")
    assert report["outcomes"] == {"done": 1, "unreachable": 1}
    assert "1 of 2 tasks cannot be played: the guard refuses http://other.test/" in capfd.readouterr().err


def test_without_a_judge_a_line_says_so(site, models, tmp_path, capfd):
    config = settings("web", site, models, tasks_file=tasks_file(tmp_path, "shop"), rounds=1)
    config.judge.kind = "none"
    assert collect(config, tmp_path / "run")["successes"] == 0
    assert "no episode on live pages will count as a success" in capfd.readouterr().err


@pytest.mark.slow
def test_an_outage_of_the_model_ends_no_episode(site, models, tmp_path):
    """The model answers the call before the run, and then not until the status of the run has shown it."""
    agent, _ = models
    good = completion(json.dumps(REPLY))
    agent.answers = [good, Answer(503, {"error": {"message": "overloaded"}})]
    notes = []

    def repair():
        while "models without answers agent for 0 min, next try in" not in "".join(notes):
            notes.append((read_progress(tmp_path / "run") or {}).get("note", ""))
            time.sleep(0.05)
        agent.always = good

    watcher = threading.Thread(target=repair, daemon=True)
    watcher.start()
    file = tasks_file(tmp_path, "shop", "other", "shop")
    config = settings("web", site, models, tasks_file=file, rounds=1, fleet={"workers": 2})
    config.actor.calls = 1
    report = collect(config, tmp_path / "run")
    watcher.join()
    assert (report["trajectories"], report["outcomes"], report["successes"]) == (3, {"done": 3}, 3)
    assert {one.retries for one in read_dataset(tmp_path / "run", Trajectory)} == {0}
    calls = report["model_calls"]["reply"]
    # Every step was asked for once, in however many attempts.
    assert (calls["calls"], calls["without_answer"]) == (3, 0) and calls["attempts"] > 3
    assert read_progress(tmp_path / "run")["note"].count("without answers") == 0


def test_episodes_without_a_verdict_are_judged_and_not_played_again(site, models, tmp_path):
    agent, judge = models
    # The call before the run is answered, and no other.
    judge.answers = [completion(outcome("success")), Answer(401, {"error": {"message": "no such key"}})]
    config = settings("web", site, models, tasks_file=tasks_file(tmp_path, "shop"), rounds=2, stop_after=1)
    with pytest.raises(UserError, match="no such key"):
        collect(config, tmp_path / "run")
    played = len(agent.calls)
    judge.always = completion(outcome("success"))
    report = collect(config, tmp_path / "run")
    # The verdict ends the task, so that there is no second round.
    assert (report["trajectories"], report["successes"]) == (1, 1)
    assert len(agent.calls) == played + 1, "the call before the run"
    (run,) = read_dataset(tmp_path / "run", Trajectory)
    assert run.judge and run.judge_usage.tokens > 0
