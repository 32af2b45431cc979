"""Worker processes with real browsers: resuming, dying, and what is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from collection.agent.prompt import GUIDANCE_TAG
from collection.environments.miniwob import make_task
from collection.fleet.config import CollectSettings, resolved
from collection.fleet.fleet import Fleet, run_tasks
from collection.fleet.journal import RunJournal
from collection.fleet.rounds import Job
from collection.fleet.run import Run
from configs.collect import get_config
from rmsweb_jax.errors import StoppedError
from rmsweb_jax.records.bucket import freeze
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.settings import from_config
from tests.fleet.differences import first_difference
from tests.fleet.processes import kind_of

PAGES = ("click-tab", "enter-text", "search-engine")


def settings(**fleet_settings):
    config = get_config("smoke").to_dict()
    config["fleet"] |= {"workers": 2, **fleet_settings}
    config["actor"]["kind"] = "scripted"
    # These pages come to rest; on a busy machine, too, they are to be looked at when they have.
    config["browser"]["settle_ms"] = 20_000
    return config


def setup(**fleet_settings):
    run = from_config(CollectSettings, settings())
    fleet = run.fleet.model_copy(update=fleet_settings)
    return resolved(run.model_copy(update={"fleet": fleet}))


def jobs():
    return [Job(make_task(page, 0), 5, 2, True) for page in PAGES]


def play(living, workdir):
    with living.begin(jobs(), workdir, "collect") as playing:
        playing.play()
    return playing.result


def strip(trajectory):
    return trajectory.model_copy(update={"seconds": 0.0, "retries": 0})


def assert_equal(found, wanted):
    """Asserts equality except for seconds and retries, and names the differences."""
    pairs = zip(found.trajectories(), wanted.trajectories(), strict=True)
    differences = [
        f"{one.trajectory_id}{first_difference(strip(one).model_dump(), strip(other).model_dump())}"
        for one, other in pairs
        if strip(one) != strip(other)
    ]
    assert not differences


@pytest.fixture(scope="module")
def seen():
    """What the files of workers have said."""
    return []


@pytest.fixture(scope="module")
def played(tmp_path_factory, seen):
    folder = tmp_path_factory.mktemp("whole")
    with watched(folder, seen.extend):
        return folder, run_tasks(jobs(), folder, setup(), None, "collect")


@contextlib.contextmanager
def watched(folder, look):
    """Shows `look` what the workers of a run do, often."""
    wait = Run.wait_seconds

    def often(self):
        files = list(folder.glob("live/*.json"))
        with contextlib.suppress(FileNotFoundError):
            look([json.loads(file.read_bytes()) for file in files])
        return min(wait(self), 0.05)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "wait_seconds", often)
        yield


def test_data_set_is_complete_sorted_and_without_guidance(played):
    folder, result = played
    trajectories = list(read_dataset(folder, Trajectory))
    assert trajectories == list(result.trajectories())
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


def test_what_each_worker_does_is_in_a_file_while_it_runs(played, seen):
    folder, result = played
    assert not (folder / "live").exists(), "the run has ended"
    assert {row["worker"] for row in seen} == {"1", "2"}
    known = {(one.task.task_id, one.attempt): one for one in result.trajectories()}
    assert {row["waiting_for"] for row in seen} <= {"browser", "page", "model"}
    for row in seen:
        if row["step"]:
            played_round = known[row["task_id"], row["attempt"]]
            assert row["site"] == played_round.task.site and row["step"] <= len(played_round.steps)
            if row["screenshot"]:
                assert row["screenshot"] in {step.observation.screenshot for step in played_round.steps}


_PARENT = """
import json, sys
from pathlib import Path
from collection.environments.miniwob import make_task
from collection.fleet import run
from collection.fleet.fleet import run_tasks
from collection.fleet.rounds import Job
from experiments.cli import user_errors
from tests.fleet.test_local import setup
changes, pages, stop = json.loads(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
handle, handled = run.Run._played, []
def counted(self, slot, future):
    handle(self, slot, future)
    handled.append(future)
    if len(handled) == stop:
        print(json.dumps([one.process.pid for one in self._pool._workers.values()]), flush=True)
        sys.stdin.readline()
run.Run._played = counted
if __name__ == "__main__":
    jobs = [Job(make_task(page, 0), 5, 2, True) for page in pages]
    with user_errors():
        run_tasks(jobs, Path(sys.argv[1]), setup(**changes), None, "collect")
"""


@pytest.fixture
def parent(tmp_path):
    """Starts a run in a process that waits for a line after `stop` episodes; gives all its processes."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)

    def start(workdir, stop, **changes):
        arguments = (json.dumps(changes), json.dumps(PAGES), str(stop))
        process = subprocess.Popen(
            [sys.executable, str(script), str(workdir), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert process.stdout is not None
        family = [psutil.Process(pid) for pid in json.loads(process.stdout.readline())]
        family += [child for worker in family for child in worker.children(recursive=True)]
        assert any("chrom" in member.name() for member in family)
        return process, family

    return start


def assert_gone(family):
    deadline = time.monotonic() + 600
    while alive := [one for one in family if is_alive(one)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def is_alive(process):
    """An orphan that has ended stays a zombie for as long as the first process of the machine likes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.slow
def test_a_run_that_is_killed_and_one_that_is_stopped_are_continued(played, parent, tmp_path):
    """An uninterrupted run with one worker, so that the number of workers is covered too."""
    workdir = tmp_path / "run"
    process, family = parent(workdir, 1, workers=1)
    process.kill()
    process.communicate()
    assert_gone(family)
    # What there is can be used meanwhile.
    (first,) = read_dataset(freeze(workdir, tmp_path / "first"), Trajectory)
    process, family = parent(workdir, 1, workers=1, drain_seconds=60.0)
    before = episodes(workdir)
    process.terminate()
    _, output = process.communicate("go on\n")
    assert process.returncode == 75 and "run the same command again" in output.splitlines()[-1], output
    assert_gone(family)
    assert episodes(workdir) == before >= 2
    kept = freeze(workdir, tmp_path / "reader")
    assert first in read_dataset(kept, Trajectory) and check_dataset(kept).problems == []
    assert len(list(read_dataset(kept, Trajectory))) == before
    finished = run_tasks(jobs(), workdir, setup(workers=1), None, "collect")
    assert_equal(finished, played[1])
    assert freeze(workdir, tmp_path / "last") == workdir


def episodes(workdir):
    with contextlib.closing(RunJournal(workdir)) as journal:
        return sum(map(len, journal.rounds.values()))


def test_lost_workers_and_browsers_are_replaced(played, tmp_path, monkeypatch):
    """Each is killed once as soon as it is there, and what comes out is the same."""
    wait, killed = Run.wait_seconds, set()

    def kill_once(self):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                kind = kind_of(child)
                if kind and kind not in killed and kind == ("driver", "worker", "")[len(killed)]:
                    killed.add(kind)
                    child.kill()
        return min(wait(self), 0.1)

    monkeypatch.setattr(Run, "wait_seconds", kill_once)
    result = run_tasks(jobs()[:1], tmp_path, setup(workers=1, retries=3, crashes=5), None, "collect")
    assert killed == {"driver", "worker"}
    expected = [one for one in played[1].trajectories() if one.task.task_id == jobs()[0].task.task_id]
    trajectories = list(result.trajectories())
    assert [strip(one) for one in trajectories] == [strip(one) for one in expected]
    # The worker died over a round; the driver may have gone before one had begun.
    assert 1 <= sum(one.retries for one in trajectories) <= len(killed)


@pytest.mark.slow
def test_browsers_survive_from_one_run_of_a_fleet_to_the_next(played, tmp_path):
    """A worker that is lost between two runs is replaced."""
    browsers = []
    with Fleet(setup()) as living:
        for number in range(3):
            found = play(living, tmp_path / str(number))
            assert_equal(found, played[1])
            children = psutil.Process().children(recursive=True)
            browsers.append({child.pid for child in children if kind_of(child) == "browser"})
            if number == 1:
                next(child for child in children if kind_of(child) == "worker").kill()
    assert browsers[0] == browsers[1] and len(browsers[0]) == 2
    assert len(browsers[1] & browsers[2]) == 1
    assert not [one for one in psutil.Process().children(recursive=True) if kind_of(one)]


@pytest.mark.slow
def test_a_stopped_run_leaves_its_fleet_usable(played, tmp_path):
    with Fleet(setup(drain_seconds=0.0)) as living:
        with (
            watched(tmp_path, lambda rows: rows and signal.raise_signal(signal.SIGTERM)),
            pytest.raises(StoppedError) as stopped,
        ):
            play(living, tmp_path)
        assert stopped.value.exit_code == 75 and not (tmp_path / "files").exists()
        assert_equal(play(living, tmp_path), played[1])
