"""Worker processes with real browsers: resuming, dying, and what is left behind."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from collection import fleet
from collection.agent.prompt import GUIDANCE_TAG
from collection.environments.miniwob import make_task
from collection.fleet_config import fleet_config
from collection.rounds import Job, yield_report
from configs.collect import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset

PAGES = ("click-tab", "enter-text", "search-engine")


def settings(**fleet_settings):
    config = get_config("smoke").to_dict()
    config["fleet"] |= {"workers": 2, **fleet_settings}
    config["actor"]["kind"] = "scripted"
    return config


def jobs():
    return [Job(make_task(page, 0), 5, 2, True) for page in PAGES]


def strip(trajectory):
    return trajectory.model_copy(update={"seconds": 0.0})


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, fleet.run_tasks(jobs(), folder, fleet_config(settings()), "collect")


def test_data_set_is_complete_sorted_and_without_guidance(played):
    folder, result = played
    trajectories = list(read_dataset(folder, Trajectory))
    assert trajectories == result.trajectories
    ids = [one.trajectory_id for one in trajectories]
    assert ids == sorted(set(ids))
    images = ImageStore(folder)
    assert all(step.observation.screenshot in images for one in trajectories for step in one.steps)
    lines = (folder / "reflections.jsonl").read_text().splitlines()
    guidance = [json.loads(line)["guidance"] for line in lines]
    assert guidance
    for one in trajectories:
        text = one.model_dump_json()
        assert GUIDANCE_TAG not in text and not any(line in text for line in guidance)


def test_workers_do_not_change_what_comes_out(played, tmp_path):
    alone = fleet.run_tasks(jobs(), tmp_path, fleet_config(settings(workers=1)), "collect")
    assert [strip(one) for one in alone.trajectories] == [strip(one) for one in played[1].trajectories]
    assert alone.reflections == played[1].reflections


def test_reflection_raises_the_yield(tmp_path):
    many = [Job(make_task("click-tab", seed), 5, 2, True) for seed in range(5)]
    plain = [Job(job.task, 5, 2, False) for job in many]
    config = settings()
    config["mistakes"]["rate"] = 0.9
    reports = [
        yield_report(fleet.run_tasks(batch, tmp_path / name, fleet_config(config), "c").trajectories, 5)
        for name, batch in (("with", many), ("without", plain))
    ]
    guided, blind = (report["solve_at_2_by_round"]["5"] for report in reports)
    assert guided > blind + 0.2


_PARENT = """
import json, os, signal, sys
from pathlib import Path
from collection import fleet, rounds
from collection.environments.miniwob import make_task
from collection.fleet_config import fleet_config
settings, pages, stop = json.loads(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
hear, heard = fleet._Fleet._hear, []
def counted(self, worker, message):
    hear(self, worker, message)
    heard.append(message)
    if len(heard) == stop:
        print(json.dumps([one.process.pid for one in self._workers]), flush=True)
        sys.stdin.readline()
fleet._Fleet._hear = counted
if __name__ == "__main__":
    jobs = [rounds.Job(make_task(page, 0), 5, 2, True) for page in pages]
    fleet.run_tasks(jobs, Path(sys.argv[1]), fleet_config(settings), "collect")
"""


def test_a_killed_run_is_continued(played, tmp_path):
    """SIGKILL to the parent at a known point: workers and browsers end, and no episode is lost or doubled."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    workdir = tmp_path / "run"
    for stop in (1, 3):
        process = subprocess.Popen(
            [sys.executable, str(script), str(workdir), json.dumps(settings()), json.dumps(PAGES), str(stop)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert process.stdout is not None
        family = [psutil.Process(pid) for pid in json.loads(process.stdout.readline())]
        family += [child for worker in family for child in worker.children(recursive=True)]
        assert any("chrom" in member.name() for member in family)
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    kept = {one for history in fleet.load_histories(workdir).values() for one in history.trajectories}
    assert kept and not (workdir / "manifest.json").exists()
    finished = fleet.run_tasks(jobs(), workdir, fleet_config(settings()), "collect")
    assert [strip(one) for one in finished.trajectories] == [strip(one) for one in played[1].trajectories]


def test_a_dying_worker_is_replaced_and_its_job_continued(played, tmp_path, monkeypatch):
    hear, killed = fleet._Fleet._hear, []

    def kill_once(self, worker, message):
        hear(self, worker, message)
        if not killed:
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGKILL)

    monkeypatch.setattr(fleet._Fleet, "_hear", kill_once)
    result = fleet.run_tasks(jobs(), tmp_path, fleet_config(settings()), "collect")
    assert killed
    assert [strip(one) for one in result.trajectories] == [strip(one) for one in played[1].trajectories]


def test_a_task_that_keeps_killing_workers_ends_as_crashed(tmp_path, monkeypatch):
    hand_out = fleet._Fleet._hand_out

    def kill_at_login(self):
        hand_out(self)
        for worker in self._workers:
            if worker.job and worker.job.task.site == "login-user" and worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGKILL)
                worker.process.join()

    monkeypatch.setattr(fleet._Fleet, "_hand_out", kill_at_login)
    batch = [Job(make_task(page, 0), 1) for page in ("click-tab", "login-user")]
    result = fleet.run_tasks(batch, tmp_path, fleet_config(settings(retries=1)), "collect")
    tab, login = result.trajectories
    assert tab.outcome == "done"
    assert login.outcome == "crashed" and "died 2 times" in login.detail and not login.success


def test_a_users_error_in_a_worker_ends_the_run_in_one_line(tmp_path):
    config = settings()
    config["actor"] |= {"kind": "chat", "base_url": "http://127.0.0.1:9/v1", "calls": 1}
    with pytest.raises(UserError, match="no answer after 1 calls"):
        fleet.run_tasks(jobs(), tmp_path, fleet_config(config), "collect")
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    "actor,message",
    [
        ({"kind": "chat"}, "config.actor.base_url is empty"),
        ({"kind": "policy"}, "config.actor.model is empty"),
        ({"kind": "oracle"}, "unknown"),
        ({"kind": "gemini"}, "set GEMINI_API_KEY"),
    ],
)
def test_actors_that_cannot_be_are_refused(actor, message, monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    config = settings()
    config["actor"] |= actor
    with pytest.raises(UserError, match=message):
        fleet_config(config)


@pytest.mark.parametrize("key,kind", [("", "scripted"), ("key", "gemini")])
def test_auto_takes_gemini_when_there_is_a_key(key, kind, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", key)
    config = settings()
    config["actor"]["kind"] = "auto"
    assert fleet_config(config).worker.actor.kind == kind
