"""What the parent process says of its workers."""

import dataclasses
import json

import pytest

from collection.fleet.activity import WORKERS, Activity, Reporter, ReportingActor, WorkerReports
from collection.fleet.worker_pool import NotPlaced
from collection.llm.actor import ActorReply, ReflectionRequest
from collection.llm.calls import Calls, Limits, serve
from rmsweb_jax.errors import StoppedError
from tests.fleet.acting import Act, ActedPool, config, run, web_job


def test_a_worker_tells_its_parent_what_it_does():
    reports = WorkerReports()
    with serve(Calls(), reports=reports) as address:
        reporter = Reporter(address, "000001")
        assigned = Activity("000001", "shop/1", "shop.com", 2, waiting_for="browser")

        class Slow:
            name = "slow"

            def reflect(self, request):
                while reports.activity(assigned, ()).waiting_for != "model":
                    pass
                return ActorReply(reports.activity(assigned, {"slow"}).waiting_for)

        assert reports.activity(assigned, ()) == assigned
        reporter.set(task_id="shop/1", site="shop.com", attempt=2)
        request = ReflectionRequest("shop/1", 1, "", "", "", "")
        reply = ReportingActor(Slow(), reporter).reflect(request)  # pyright: ignore
        assert reply.text == "outage", "of a model that is known not to answer"
        while reports.activity(assigned, ()).waiting_for != "page":
            pass
        # Its report on an earlier round does not count.
        later = dataclasses.replace(assigned, attempt=3)
        assert reports.activity(later, ()) == later
        reporter.close()


def test_the_file_is_replaced_at_most_once_a_second(tmp_path):
    reports, path, calls = WorkerReports(), tmp_path / WORKERS, Calls()
    turn = calls.begin("reply", "gemini", 1.0, 10, Limits(outage_s=60.0))
    calls.failed(turn.call, "down", 1)
    reports.write(tmp_path, [Activity("000001", "shop/1")], calls)
    written = json.loads(path.read_bytes())
    assert written["workers"][0] == dataclasses.asdict(Activity("000001", "shop/1"))
    assert isinstance(written["time"], float) and written["outages"].keys() == {"gemini"}
    reports.write(tmp_path, [], calls)
    assert json.loads(path.read_bytes()) == written


def test_busy_and_idle_workers_are_listed(tmp_path):
    jobs = [web_job("a/1"), web_job("b/1"), web_job("b/2")]
    seen, pools = [], []

    def stop(now):
        seen.append(now)
        return now >= 1.0

    with pytest.raises(StoppedError):
        run(jobs, tmp_path, lambda task, _: Act(seconds=5.0), config(drain_seconds=0.0), stop, pools)
    _, fleet = run(jobs, tmp_path, lambda task, _: Act(), config())
    rows = list(fleet.activities(WorkerReports()))
    assert [(row.worker, row.waiting_for) for row in rows] == [("000003", "site"), ("000004", "site")]


def test_a_round_whose_worker_finds_no_room_is_played_by_another(tmp_path, monkeypatch):
    """A cluster has lost nodes; nothing counts as a death of a worker, and journals are used again."""
    message = ActedPool._message

    def without_room(self, worker, request, act):
        return NotPlaced() if worker in (2, 3) else message(self, worker, request, act)

    monkeypatch.setattr(ActedPool, "_message", without_room)
    jobs = [web_job(f"a/{number}", attempts=2) for number in range(4)]
    pool, fleet = run(jobs, tmp_path, lambda task, _: Act(), config(workers=2))
    status = fleet.status()
    assert (status.tasks_done, status.rounds, status.deaths) == (4, 8, 0)
    assert set(pool.journals.values()) == {"000001.jsonl", "000002.jsonl"}
