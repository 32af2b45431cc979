"""Job order: limits hold, no job is lost, no site starves."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.fleet.config import SiteLimits
from collection.fleet.scheduler import REFUSED, Scheduler

LIMITS = SiteLimits(max_per_site=2, site_interval_s=5.0, backoff_s=60.0, backoff_max_s=200.0)


def scheduler(jobs, **limits):
    made = Scheduler(LIMITS.model_copy(update=limits))
    for job in jobs:
        made.add(job, job.rstrip("0123456789"))
    return made


def take(made, now):
    """All jobs that may begin at `now`."""
    taken = []
    while (job := made.next(now)) is not None:
        taken.append(job)
    return taken


def test_pages_that_are_no_site_are_not_held_up():
    made = Scheduler(LIMITS)
    for number in range(9):
        made.add(number, "")
    assert take(made, 0.0) == list(range(9))
    made.ended(3, 1.0, "captcha")
    made.add(3, "")
    assert made.next(1.0) == 3 and made.closed(1.0) == {}


def test_sites_take_turns():
    made = scheduler(["a1", "a2", "b1", "c1", "a3", "b2"], site_interval_s=0.0, max_per_site=9)
    assert [made.next(float(now)) for now in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_started_jobs_resume_first():
    made = scheduler(["a1", "a2"], site_interval_s=0.0)
    job = made.next(0.0)
    made.ended(job, 1.0, "done")
    made.add(job, "a", first=True)
    assert made.next(1.0) == "a1"


@pytest.mark.parametrize("outcome", sorted(REFUSED))
def test_a_site_that_refuses_is_left_alone_longer_each_time(outcome):
    made = scheduler(["a1"])
    now, waits = 0.0, []
    for _ in range(4):
        assert made.next(now) == "a1"
        made.ended("a1", now, outcome)
        made.add("a1", "a", first=True)
        wake = made.wake_at()
        waits.append(wake - now)
        assert made.closed(now) == {"a": wake - now}
        assert made.next(wake - 0.001) is None
        now = wake
    assert waits == [60.0, 120.0, 200.0, 200.0]
    made.next(now)
    made.ended("a1", now, "done")
    made.add("a1", "a")
    now += LIMITS.site_interval_s
    assert made.next(now) == "a1", "one that is let in begins anew"
    made.ended("a1", now, outcome)
    assert made.closed(now) == {"a": 60.0}


def test_a_lost_worker_or_browser_does_not_count_against_the_site():
    made = scheduler(["a1"])
    for outcome in ("blocked", None, "crashed"):
        now = max(0.0, made.wake_at())
        made.next(now)
        made.ended("a1", now, outcome)
        made.add("a1", "a")
    made.next(1e3)
    made.ended("a1", 1e3, "blocked")
    assert made.closed(1e3) == {"a": 120.0}


def test_a_site_without_an_interval_has_no_backoff():
    made = scheduler(["a1"], site_interval_s=0.0)
    made.next(0.0)
    made.ended("a1", 0.0, "blocked")
    made.add("a1", "a")
    assert made.closed(0.0) == {} and made.next(0.0) == "a1"


@dataclasses.dataclass
class Play:
    site: str
    start: float


@given(
    rounds=st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 3)), max_size=12),
    ends=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.floats(0.1, 30.0),
            st.sampled_from(["done", "max_steps", "crashed", "blocked", "captcha", "unreachable", None]),
        ),
        min_size=1,
        max_size=40,
    ),
    workers=st.integers(1, 4),
    limits=st.builds(
        SiteLimits,
        max_per_site=st.integers(1, 3),
        site_interval_s=st.sampled_from([0.0, 2.0, 7.0]),
        backoff_s=st.sampled_from([0.0, 10.0]),
        backoff_max_s=st.just(25.0),
    ),
)
def test_every_job_ends_within_the_limits(rounds, ends, workers, limits):
    """Any outcomes and losses in any order: each job has all its rounds, and no site more than it may."""
    made, now, step = Scheduler(limits), 0.0, 0
    left = {number: count for number, (_, count) in enumerate(rounds)}
    for number, (site, _) in enumerate(rounds):
        made.add(number, site)
    running, starts, closed = [], {}, {}
    while made.waiting or made.running:
        while len(running) < workers and (job := made.next(now)) is not None:
            site = rounds[job][0]
            if site:
                assert sum(rounds[one][0] == site for one in running) < limits.max_per_site
                assert now >= starts.get(site, -100.0) + limits.site_interval_s - 1e-9
                assert now >= closed.get(site, 0.0) - 1e-9
            running.append(job)
            starts[site] = now
        if not running:
            wake = made.wake_at()
            assert wake is not None and wake > now, "somebody waits for nothing"
            now = wake
            continue
        which, seconds, outcome = ends[step % len(ends)]
        # After a while all goes well, else it need not come to an end.
        outcome = outcome if step < 60 else "done"
        step, now = step + 1, now + seconds
        job = running.pop(which % len(running))
        site = rounds[job][0]
        made.ended(job, now, outcome)
        if outcome in REFUSED and limits.site_interval_s and site:
            closed[site] = now + limits.backoff_s
        left[job] -= outcome is not None
        if left[job]:
            made.add(job, site, first=outcome is not None)
    assert not any(left.values())
