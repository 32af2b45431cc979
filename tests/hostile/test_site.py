"""Hostile pages achieve nothing with the guard, and everything without it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import psutil
import pytest
from PIL import Image
from selenium.common.exceptions import WebDriverException

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.pages import ActionContext
from collection.browser.session import Browser, PageError
from collection.browser.snapshot import take_snapshot
from collection.viewer.app import link
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Step, Trajectory
from tests.browser.plain import open_browser
from tests.hostile.behaviours import Behaviour
from tests.hostile.leaks import LEAKS
from tests.hostile.model import DONE, action
from tests.hostile.play import GRACE_SECONDS, MAX_SECONDS, Visited, as_expected, incidents, refusals, visit
from tests.hostile.scan import Scanner, artefacts, forms, leaks
from tests.hostile.secrets import CANARY, SECRET, SECRETS
from tests.hostile.site import BEHAVIOURS, FORBIDDEN, SLOW, SUITE, Running, serve_hostile
from tests.viewer.serving import open_viewer

SUITE_LEAKS = [one for one in SUITE if one in LEAKS]


@pytest.fixture(scope="module")
def running():
    with serve_hostile() as servers:
        yield servers


@pytest.fixture(scope="module")
def others() -> set[int]:
    """Returns the processes of other tests' browsers, which live as long as the session."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def visits(running, others, tmp_path_factory) -> list[Visited]:
    """Runs at the site: a second one with ten times as long if time ran out, as on a busy machine."""
    once = visit(SUITE, running, tmp_path_factory.mktemp("hostile"))
    if not any(_ran_out(one, once.trajectories[one.name]) for one in SUITE):
        return [once]
    return [once, visit(SUITE, running, tmp_path_factory.mktemp("hostile"), patience=10.0)]


@pytest.fixture(scope="module")
def visited(visits) -> Visited:
    """What the pages did, where they had time."""
    return visits[-1]


def _ran_out(behaviour: Behaviour, trajectory: Trajectory) -> bool:
    """Whether an episode may have ended before the page did what its entry says."""
    if trajectory.outcome not in behaviour.outcomes:
        # A browser that does not answer in time counts as lost.
        return trajectory.outcome in ("timeout", "unreachable", "crashed")
    silent = behaviour in SUITE_LEAKS and not _refused(behaviour, trajectory)
    return silent or not as_expected(behaviour, trajectory)


def _refused(leak: Behaviour, trajectory: Trajectory) -> bool:
    """Whether the record says that the guard refused what a page tried, if the page's entry wants that."""
    return not leak.incidents or any(
        FORBIDDEN in text or "127.0.0.1" in text for text in refusals(trajectory)
    )


def test_most_of_the_site_is_in_the_suite():
    assert {one.name for one in BEHAVIOURS} > SLOW
    assert len({one.name for one in SUITE}) >= 55


@pytest.mark.parametrize("behaviour", SUITE, ids=lambda one: one.name)
def test_every_episode_ends_with_an_outcome_on_record(behaviour, visited):
    trajectory = visited.trajectories[behaviour.name]
    found = [one.kind for one in incidents(trajectory)]
    assert as_expected(behaviour, trajectory), (trajectory.outcome, trajectory.detail, found)
    assert trajectory.seconds < 10 * MAX_SECONDS + GRACE_SECONDS
    assert not trajectory.success


def test_no_worker_dies_and_no_process_stays(visits, others):
    for visited in visits:
        assert {one.retries for one in visited.trajectories.values()} == {0}
        processes = psutil.Process().children(recursive=True)
        left = [one for one in processes if _is_of(visited.workdir, one, others)]
        # A process that received a signal may still be ending.
        _, staying = psutil.wait_procs(left, timeout=600)
        assert [str(one) for one in staying] == []
        assert list((visited.workdir / "files").glob("*")) == []


def _is_of(workdir: Path, process: psutil.Process, others: set[int]) -> bool:
    """Returns True for a process in this workdir, or of a browser that no other test has started."""
    try:
        if {process.pid, *(one.pid for one in process.parents())} & others:
            return False
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return "chrom" in process.name() or str(workdir) in " ".join(process.cmdline())
    except psutil.Error:
        return False


def test_nothing_reaches_the_forbidden_server(visited):
    assert visited.contacts == []
    for leak in SUITE_LEAKS:
        trajectory = visited.trajectories[leak.name]
        assert _refused(leak, trajectory), (leak.name, trajectory.outcome, refusals(trajectory))


def test_no_secret_is_written_or_sent(visits, running):
    # The pages did get it, so there was something to find.
    sent = [body for bodies in running.site.bodies.values() for body in bodies]
    assert any(CANARY in body for body in sent)
    assert any(f"<secret>{SECRET}</secret>" in prompt for prompt in visits[-1].prompts)
    for visited in visits:
        assert _leaks(visited) == []


def _leaks(visited: Visited) -> list[str]:
    """Returns where the secret is in the files of a run and in the prompts that left it."""
    scanner = Scanner(CANARY)
    prompts = ((f"prompt {n}", text) for n, text in enumerate(visited.prompts))
    return [*leaks(scanner, artefacts(visited.workdir)), *leaks(scanner, prompts)]


@pytest.mark.slow
def test_the_rest_of_the_site_achieves_nothing_either(running, tmp_path):
    rest = [one for one in BEHAVIOURS if one not in SUITE]
    visited = visit(rest, running, tmp_path)
    wrong = [one.name for one in rest if not as_expected(one, visited.trajectories[one.name])]
    assert wrong == [] and visited.contacts == [] and _leaks(visited) == []


def test_no_secret_is_seen_on_screenshots(visited):
    images = ImageStore(visited.workdir)
    before, *after = visited.trajectories["echo"].steps
    # Where the page has its field, and the line that repeats it.
    for place in ((12, 84, 170, 98), (9, 120, 180, 134)):
        assert _colours(images, before, place) > 1
        assert [_colours(images, step, place) for step in after] == [1, 1]


def _colours(images: ImageStore, step: Step, place: tuple[int, int, int, int]) -> int:
    assert step.observation.screenshot
    picture = Image.open(io.BytesIO(images.get(step.observation.screenshot)))
    return len(picture.crop(place).getcolors() or ())


def test_episodes_leave_each_other_nothing(visited, running):
    assert running.site.strays == []


@pytest.mark.parametrize("name,texts", forms(CANARY).items())
def test_the_scan_finds_each_form(name, texts):
    scanner = Scanner(CANARY)
    for text in texts:
        assert scanner.find(f"some text {text} and more")
        assert scanner.find(f"cut short {text[: len(text) // 2 + 4]}")
    assert scanner.find("Nothing of the kind: /work, 7, +Zt, &amp;") == set()
    assert len(SECRETS) >= 10


def test_nothing_of_the_episodes_runs_or_leaves_in_the_viewer(visited, running, tmp_path):
    before = len(running.forbidden.contacts)
    names = [run.trajectory_id for run in visited.trajectories.values()]
    with open_viewer(visited.workdir, tmp_path) as address, open_browser() as driver:
        for name in names:
            driver.get(address + link("/episode", data=visited.workdir.name, id=name))
            assert driver.title == name
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    sent = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert len(sent) > len(names) and all(url.startswith(address) for url in sent)
    assert len(running.forbidden.contacts) == before


@pytest.fixture(scope="module")
def free_browser(running: Running):
    """A browser without a guard; no name but the site's resolves."""
    rules = [f"MAP {name} {address}" for name, address in running.hosts.items()]
    rules += ["EXCLUDE 127.0.0.1", "EXCLUDE localhost", "MAP * ~NOTFOUND"]
    config = BrowserConfig(width=800, height=600, host_rules=tuple(rules), quiet_ms=0, page_load_seconds=20)
    with Browser(config) as browser:
        yield browser


@pytest.mark.parametrize("leak", [one for one in SUITE_LEAKS if one.leaks], ids=lambda leak: leak.name)
def test_without_the_guard_pages_reach_the_forbidden_server(leak, visited, running, free_browser):
    """Without the guard every page gets through, so the zero count with the guard is meaningful."""
    assert visited.contacts == []  # Counted before what follows here.
    browser = free_browser
    browser.reset()
    before = len(running.forbidden.contacts)
    with contextlib.suppress(WebDriverException, PageError):
        browser.goto(leak.url)
    for step in running.steps(leak):
        if len(running.forbidden.contacts) > before or action(step) == DONE:
            break
        with contextlib.suppress(WebDriverException, PageError):
            take_snapshot(browser)
            execute(browser, normalize_action(action(step)), ActionContext())
    assert running.forbidden.wait_for_more(before, seconds=20)
