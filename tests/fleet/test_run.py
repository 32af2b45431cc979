"""The fleet without browsers: order of rounds, deaths and stops of workers, counts."""

import contextlib
import dataclasses
import errno
import math
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collection.fleet.config import SiteLimits
from collection.fleet.journal import RunJournal
from collection.fleet.pool import NotPlacedError, make_pool
from collection.fleet.run import go_on
from collection.fleet.scheduler import SiteState
from collection.fleet.worker import Episode, RunFailure, Worker
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import write_episodes
from rmsweb_jax.records.schema import Trajectory
from tests.fleet.acting import DIES, Act, ActedPool, begun, config, run, web_job

LIMITS = SiteLimits(max_per_site=1, site_interval_s=5.0, backoff_s=60.0, backoff_max_s=600.0)


def journal(workdir):
    with contextlib.closing(RunJournal(workdir)) as opened:
        return opened


def rounds(workdir):
    """By task and attempt."""
    return {
        (task, attempt): one for task, of in journal(workdir).rounds.items() for attempt, one in of.items()
    }


def lines(workdir):
    return (workdir / "episodes.jsonl").read_bytes().count(b"\n")


@settings(max_examples=15)
@given(
    attempts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    acts=st.lists(
        st.builds(
            Act,
            seconds=st.floats(0.1, 5.0),
            outcome=st.sampled_from(["done", "max_steps", "blocked"]),
            raises=st.sampled_from([None, None, DIES.raises, NotPlacedError()]),
        ),
        min_size=1,
        max_size=12,
    ),
    workers=st.integers(1, 3),
    stops=st.lists(st.floats(0.0, 8.0), max_size=2),
)
def test_no_round_is_lost_or_doubled_by_deaths_and_stops(attempts, acts, workers, stops):
    jobs = [web_job(f"site/{number}", count) for number, count in enumerate(attempts)]
    wanted = {(job.task.task_id, one) for job in jobs for one in range(1, job.attempts + 1)}
    setup = config(workers=workers, retries=100, drain_seconds=1.0)

    def script(task, number):
        # After a while all goes well, else it need not come to an end.
        return acts[number % len(acts)] if number < 40 else Act()

    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        for stop in stops:
            try:
                run(jobs, workdir, script, setup, lambda now, stop=stop: now >= stop)
            except StoppedError as error:
                assert error.exit_code == 75
        run(jobs, workdir, script, setup)
        assert rounds(workdir).keys() == wanted and lines(workdir) == len(wanted)
        write_episodes(workdir / "episodes.jsonl", workdir, {})
        ids = [one.trajectory_id for one in read_dataset(workdir, Trajectory)]
        assert ids == sorted(set(ids)) and len(ids) == len(wanted)


def test_sites_keep_their_rate_limits(tmp_path):
    jobs = [web_job("a/1"), web_job("a/2"), web_job("b/1"), web_job("b/2")]
    pool, fleet = run(jobs, tmp_path, lambda task, _: Act(seconds=2.0), config(LIMITS, workers=4))
    assert pool.begun == [(0.0, "a/1"), (0.0, "b/1"), (5.0, "a/2"), (5.0, "b/2")]
    assert pool.slots == {1, 2}, "no more workers than had something to do"
    assert fleet.status().tasks_done == 4


def test_a_site_that_blocks_is_visited_less_and_shown(tmp_path):
    seen = []

    def script(task, number):
        seen.append(number)
        return Act(outcome="captcha" if task.startswith("bad") else "done")

    jobs = [web_job("bad/1", attempts=3), web_job("good/1", attempts=3)]
    pool, fleet = run(jobs, tmp_path, script, config(LIMITS))
    assert [now for now, task in pool.begun if task == "bad/1"] == [0.0, 61.0, 182.0]
    status = fleet.status()
    assert status.outcomes == {"captcha": 3, "done": 3} and status.rounds == 6
    assert status.closed_sites == {"bad.com": 240.0}
    assert "closed sites bad.com for 240 s" in status.line() and "captcha 3" in status.line()


def test_a_site_that_refuses_is_given_up_and_its_tasks_are_set_aside(tmp_path, capsys):
    """Ten tasks of five rounds each; without a limit their pauses alone take more than a day."""
    jobs = [web_job(f"bad/{number}", attempts=5, reflective=True) for number in range(10)]
    jobs.append(web_job("good/1", attempts=2))

    def script(task, number):
        return Act(outcome="captcha" if task.startswith("bad") else "done")

    pool, fleet = run(jobs, tmp_path, script, config(LIMITS))
    # Three of its tasks have been tried once each.
    assert [task for _, task in pool.begun if task.startswith("bad")] == ["bad/0", "bad/1", "bad/2"]
    assert pool.now < 200
    status = fleet.status()
    assert (status.tasks_done, status.set_aside) == (1, {"bad.com": 10})
    assert "set aside 10 of bad.com" in status.line()
    assert len(rounds(tmp_path)) == 5
    printed = capsys.readouterr().err.splitlines()
    reason = "of bad.com: bad.com was refused 3 times in a row, the last was captcha"
    assert printed == [f"set aside, 1 {reason}", f"set aside, 9 {reason}"]
    # Resuming leaves them aside, unless it is asked to try them again.
    again, fleet = run(jobs, tmp_path, script, config(LIMITS))
    assert not again.begun and fleet.status().set_aside == {"bad.com": 10}
    again, fleet = run(jobs, tmp_path, lambda *_: Act(), config(LIMITS, retry_set_aside=True))
    assert fleet.status().tasks_done == 11 and not fleet.status().set_aside


def test_a_task_whose_start_is_refused_is_set_aside_while_others_of_its_site_are_played(tmp_path):
    jobs = [web_job("a/bad", attempts=9), *(web_job(f"a/{number}", attempts=9) for number in range(2))]

    def script(task, number):
        return Act(outcome="unreachable" if task == "a/bad" else "done")

    _, fleet = run(jobs, tmp_path, script, config(LIMITS))
    assert (fleet.status().tasks_done, fleet.status().set_aside) == (2, {"a.com": 1})
    assert sum(task == "a/bad" for task, _ in rounds(tmp_path)) == 3


@pytest.mark.parametrize("seconds", [1800.0, math.inf])
def test_an_hour_without_any_site_gives_up_none(tmp_path, seconds):
    """Until then it may be this machine's network."""
    jobs = [web_job(f"s{number % 4}/{number}", attempts=5) for number in range(20)]
    pools = []

    def script(task, number):
        return Act(outcome="unreachable" if pools[0].now < seconds else "done", seconds=30.0)

    _, fleet = run(jobs, tmp_path, script, config(LIMITS), pools=pools)
    status = fleet.status()
    assert sum(status.set_aside.values()) + status.tasks_done == 20
    assert (status.tasks_done == 20) == (seconds < 3600)
    assert pools[0].now < 4 * 3600


def test_a_run_that_goes_on_plays_again_what_a_site_that_was_down_has_ended(tmp_path):
    jobs = [dataclasses.replace(web_job("a/1", attempts=3), replays=1)]
    pool, _ = run(jobs, tmp_path, lambda *_: Act(outcome="unreachable"), config(LIMITS))
    assert len(pool.begun) == 3
    again, fleet = run(jobs, tmp_path, lambda *_: Act(), config(LIMITS))
    assert len(again.begun) == 3 and fleet.status().outcomes == {"done": 3} and not fleet.status().set_aside


@pytest.mark.parametrize("outcome", ["captcha", "unreachable"])
def test_what_is_set_aside_stays_so_after_a_late_verdict_and_an_outage(tmp_path, outcome):
    """Whether a site was silent for an hour is known only while it is silent."""
    jobs = [web_job(f"s{number % 4}/{number}", attempts=5) for number in range(20)]
    pool, fleet = run(jobs, tmp_path, lambda *_: Act(outcome=outcome, seconds=30.0), config(LIMITS))
    aside = fleet.status().set_aside
    assert pool.begun and sum(aside.values()) == 20
    with contextlib.closing(RunJournal(tmp_path)) as opened:
        one = opened.read(next(iter(opened.rounds["s0/0"].values())))
        opened.append_round(one.model_copy(update={"outcome": "done", "judge": "j", "judge_text": "FAILURE"}))
    again, fleet = run(jobs, tmp_path, lambda *_: Act(), config(LIMITS))
    assert not again.begun and fleet.status().set_aside == aside


def test_a_round_is_given_to_a_worker_that_is_there(tmp_path):
    """A cluster may have no room for another."""
    acts = iter([dataclasses.replace(DIES, seconds=2.0), Act(), Act()])
    pool, _ = run([web_job("a/1"), web_job("b/1")], tmp_path, lambda *_: next(acts), config())
    assert pool.used == [1, 2, 2]


@pytest.mark.parametrize("failure", [RunFailure("no browser", UserError.exit_code), Act(error="a bug")])
def test_an_episode_that_ends_with_the_run_is_kept(tmp_path, monkeypatch, failure):
    monkeypatch.setattr("collection.fleet.run._MAX_GIVEN_UP", 1)
    fails = Act(failed=failure) if isinstance(failure, RunFailure) else failure
    acts = iter([fails, Act()])
    with pytest.raises(UserError):
        run([web_job("a/1"), web_job("b/1")], tmp_path, lambda *_: next(acts), config())
    assert ("b/1", 1) in rounds(tmp_path)


def test_reflections_go_along_and_are_counted(tmp_path):
    job = web_job("a/1", attempts=3, stop_after=2, reflective=True)
    _, fleet = run([job], tmp_path, lambda task, number: Act(success=number == 1), config())
    status = fleet.status()
    assert (status.rounds, status.successes, status.cost) == (3, 1, 1.0)
    assert status.tokens == 2400 and "tokens 2,400; cost $1.00" in status.line()
    again = run([job], tmp_path, lambda task, number: pytest.fail("all is played"), config())[1].status()
    assert (again.tasks_done, again.rounds, again.successes, again.cost) == (1, 3, 1, 1.0)
    assert again.tokens == 2400


def test_after_a_stop_no_job_starts_running_ones_end_and_slow_ones_are_killed(tmp_path):
    jobs = [web_job(f"a/{number}") for number in range(6)]

    def script(task, number):
        return Act(seconds=4.0 if number == 0 else 400.0)

    with pytest.raises(StoppedError, match="run the same command again") as stopped:
        run(jobs, tmp_path, script, config(drain_seconds=10.0), lambda now: now >= 1)
    assert stopped.value.exit_code == 75 and rounds(tmp_path).keys() == {("a/0", 1)}


@pytest.mark.parametrize(("code", "kept"), [(4, {("a/1", 1)}), (2, set())])
def test_a_failure_that_the_user_can_fix_ends_the_run_with_its_code(tmp_path, code, kept):
    """Where money is spent, another episode may still end, since it may need no more of it."""
    jobs = [web_job(f"a/{number}") for number in range(4)]

    def script(task, number):
        return Act(failed=RunFailure("the reason", code)) if number == 0 else Act(seconds=3.0)

    with pytest.raises(UserError, match="the reason") as error:
        run(jobs, tmp_path, script, config())
    assert error.value.exit_code == code and rounds(tmp_path).keys() == kept
    run(jobs, tmp_path, lambda *_: Act(), config())
    assert len(rounds(tmp_path)) == 4


def test_a_task_that_keeps_killing_workers_ends_as_crashed(tmp_path):
    jobs = [web_job("a/bad", attempts=2), web_job("a/good", attempts=2)]

    def script(task, number):
        return DIES if task == "a/bad" else Act()

    _, fleet = run(jobs, tmp_path, script, config(retries=1))
    with contextlib.closing(RunJournal(tmp_path)) as opened:
        bad = [opened.read(one) for one in opened.rounds["a/bad"].values()]
    assert [one.outcome for one in bad] == ["crashed", "crashed"]
    assert "died 2 times, last with exit code -9" in bad[0].detail and not bad[0].success
    # The second round was under way when the first was given up, and not tried again.
    assert [one.retries for one in bad] == [1, 1]
    status = fleet.status()
    assert (status.deaths, status.tasks_done) == (4, 2) and status.outcomes == {"done": 2, "crashed": 2}


def test_what_a_task_that_is_given_up_has_in_the_queue_is_not_tried(tmp_path):
    job = web_job("a/bad", attempts=5)
    _, fleet = run([job], tmp_path, lambda *_: DIES, config(retries=0, workers=1))
    assert fleet.status().deaths == 1 and fleet.status().outcomes == {"crashed": 5}


def test_a_second_run_of_a_fleet_begins_with_workers_that_are_idle(tmp_path):
    pool, idle, settings = ActedPool(lambda *_: Act()), {1, 2}, config()
    sites = defaultdict(SiteState)
    limited = config(LIMITS)
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(begun(jobs, tmp_path / name, pool, idle, one, sites=sites))
            for name, jobs, one in (
                ("first", [web_job("a/1", attempts=3)], settings),
                ("second", [web_job("b/1", attempts=3), web_job("a/2")], limited),
            )
        )
        while not (first.is_over and second.is_over):
            go_on([one for one in (first, second) if not one.is_over], wait=pool.wait)
    # The site that the first run visited at 1.0 is visited again after the interval, as one of its own is.
    assert pool.begun == [
        (0.0, "a/1"),
        (0.0, "a/1"),
        (1.0, "a/1"),
        (1.0, "b/1"),
        (6.0, "b/1"),
        (6.0, "a/2"),
        (11.0, "b/1"),
    ]
    assert len(rounds(tmp_path / "first")) == 3 and len(rounds(tmp_path / "second")) == 4


@pytest.mark.parametrize("drain", [2.0, 0.5])
def test_runs_of_a_fleet_stop_together(tmp_path, drain):
    settings, idle = config(drain_seconds=drain), {1, 2}
    pool = ActedPool(lambda task, _: Act(seconds=1.0 if task == "a/1" else 2.0))
    with pytest.raises(StoppedError), contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(
                begun([web_job(name)], tmp_path / name[0], pool, idle, settings, lambda now: bool(pool.begun))
            )
            for name in ("a/1", "b/1")
        ]
        for run in runs:
            run._start_rounds()
        while True:
            go_on(runs, wait=pool.wait)
    kept = len(rounds(tmp_path / "a")) + len(rounds(tmp_path / "b"))
    assert kept == (2 if drain == 2.0 else 0) and idle == {1, 2}


def test_a_round_that_finds_no_room_after_its_task_was_given_up_is_crashed(tmp_path):
    def script(task, number):
        return Act(seconds=2.0, raises=NotPlacedError()) if number == 1 else DIES

    run([web_job("a/bad", attempts=3)], tmp_path, script, config(retries=0))
    assert [one.outcome for one in rounds(tmp_path).values()] == ["crashed"] * 3


def test_a_run_that_is_left_gives_its_places_at_sites_back(tmp_path):
    sites, idle, limits = defaultdict(SiteState), {1, 2}, config(LIMITS)
    for times in range(2):
        pool = ActedPool(lambda *_: Act())
        with begun([web_job("a/1")], tmp_path / str(times), pool, idle, limits, sites=sites) as playing:
            playing.start()
            assert len(pool.begun) == 1
            sites["a.com"].started = float("-inf")
    assert not sites["a.com"].running and idle == {1, 2}


def test_rounds_that_need_no_verdict_are_played_at_once(tmp_path):
    pool, _ = run([web_job("a/1", attempts=5)], tmp_path / "all", lambda *_: Act(), config(workers=3))
    assert [now for now, _ in pool.begun] == [0.0, 0.0, 0.0, 1.0, 1.0]
    job = web_job("a/1", attempts=5, stop_after=2)
    pool, _ = run([job], tmp_path / "one", lambda *_: Act(success=True), config(workers=3))
    assert [now for now, _ in pool.begun] == [0.0, 1.0]


def test_when_all_workers_die_the_run_ends(tmp_path):
    jobs = [web_job(f"a/{number}") for number in range(9)]
    with pytest.raises(UserError, match="as for the tasks before it"):
        run(jobs, tmp_path, lambda *_: DIES, config(retries=0))


def test_when_each_task_meets_an_error_of_this_program_the_run_ends(tmp_path):
    def script(task, number):
        return Act(outcome="crashed", error="unexpected KeyError")

    with pytest.raises(
        UserError, match=r"a/\d: unexpected KeyError, as for the tasks before it; see the log"
    ):
        run([web_job(f"a/{number}") for number in range(9)], tmp_path / "all", script, config())
    # The fourth had ended when the third ended the run, and is kept.
    assert len(rounds(tmp_path / "all")) == 4
    # Three rounds of one task do not, nor three tasks with a played round between them.
    run([web_job("a/1", attempts=4)], tmp_path / "one", script, config())
    good = ("a/0", "a/2", "a/4", "a/6", "a/8")
    run(
        [web_job(f"a/{number}") for number in range(9)],
        tmp_path / "some",
        lambda task, number: Act() if task in good else script(task, number),
        config(workers=1),
    )


def test_a_round_whose_worker_finds_no_room_is_played_by_another(tmp_path):
    """A cluster has lost nodes; nothing counts as a death of a worker."""

    def script(task, number):
        return Act(raises=NotPlacedError()) if number in (1, 2) else Act()

    jobs = [web_job(f"a/{number}", attempts=2) for number in range(4)]
    _, fleet = run(jobs, tmp_path, script, config())
    status = fleet.status()
    assert (status.tasks_done, status.rounds, status.deaths) == (4, 8, 0)


def test_a_run_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "journal").mkdir()
    with pytest.raises(UserError, match="begun by an earlier version, whose journals are in"):
        run([web_job("a/1")], tmp_path, lambda *_: Act(), config())


def test_an_engine_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.exceptions", None)
    with pytest.raises(UserError, match="Ray is not installed"):
        make_pool(config(engine="ray"))


def test_without_chromium_no_worker_starts(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", "")
    settings = config()
    episode = Episode(web_job("a/1").task, 1, "", 0, tmp_path, settings.actor, None)
    with pytest.raises(UserError, match="chromium not found; install "):
        make_pool(settings).submit(1, episode)
    assert capfd.readouterr() == ("", "")


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "images/ab.png")


def test_a_full_disk_fails_the_run_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    """Screenshots are written by workers, records by the parent."""
    settings = config()
    worker = Worker(1, settings)
    monkeypatch.setattr(worker, "_play", full)
    found = worker.play(Episode(web_job("a/1").task, 1, "", 0, tmp_path, settings.actor, None))
    assert isinstance(found, RunFailure)
    assert found.exit_code == 2 and "disk full while writing images/ab.png" in found.reason
    jobs = [web_job("a/1"), web_job("a/2")]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(jobs[:1], tmp_path, lambda *_: Act(), settings)
    assert not rounds(tmp_path) and not lines(tmp_path)
    run(jobs, tmp_path, lambda *_: Act(), settings)
    assert rounds(tmp_path).keys() == {("a/1", 1), ("a/2", 1)} and lines(tmp_path) == 2
