"""Hand-written policies play episodes at real applications on loopback.

python -m tests.apps.proof_apps --output=docs/results/apps.md
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import psutil

from collection.agent.loop import EpisodeRunner, Limits
from collection.agent.prompt import PromptConfig
from collection.agent.web_session import WebSession
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserConfig
from collection.environments.apps.application import hosts
from collection.environments.apps.suite import Suite
from collection.environments.apps.tasks import AppSession, AppTask, Ending
from collection.environments.apps.wiki_tasks import SECRETS
from rmsweb_jax.records.check import check_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset, write_dataset
from tests.apps.actor import ScriptedActor
from tests.apps.policies import POLICIES

SEEDS = (0, 1)
APPLICATIONS, DATASET = Path("build/apps"), Path("runs/proof-apps")
# What they leave in the application is gone after a reset; the others leave an answer only.
CHANGING = {
    *("oscar/guest-order", "oscar/two-products", "oscar/out-of-stock", "oscar/too-few"),
    *("wiki/edit", "wiki/new-page"),
}
INTRODUCTION = """\
# Real applications on loopback

    make proof-apps

runs `{command}`, which writes this page:
hand-written policies (`tests/apps/policies.py`) play {number} tasks with {seeds} seeds each at Python's
documentation, a django-oscar shop and a MediaWiki, in Chromium behind the guard's proxy. A policy is sent the
messages that a model is sent and answers with the same JSON. A step is one look (elements and screenshot),
one reply and its actions.

The *check* asks the application itself (the shop's database, the wiki's API), or compares the answer and the
page it was given on. Then the application is set back, and the check is made again: what an episode has left
must be *gone* (`-`: it leaves nothing but an answer).
"""


@dataclasses.dataclass(frozen=True)
class Played:
    """An episode and what came after it; `gone` is None where nothing was left to go."""

    trajectory: Trajectory
    passed: bool
    reset_seconds: float
    gone: bool | None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args(arguments).output
    suite = Suite(APPLICATIONS)
    prepared = [(application, *_timed(application.prepare)) for application in suite.applications]
    shutil.rmtree(DATASET, ignore_errors=True)
    with suite.running():
        played, connections, refused = _play(suite, suite.tasks(SEEDS))
    write_dataset(DATASET, [one.trajectory for one in played], "trajectories", {"proof": "apps"})
    checks = [*_episode_checks(played), *_network_checks(connections, refused), *_dataset_checks(played)]
    command = "python -m tests.apps.proof_apps --output=docs/results/apps.md"
    number = len({one.trajectory.task.task_id.rpartition("/")[0] for one in played})
    text = "\n".join(
        [
            INTRODUCTION.format(command=command, number=number, seeds=len(SEEDS)),
            *("| application | prepared in, s (0: it was there) |", "|---|---|"),
            *(f"| {application.host} | {seconds:.1f} |" for application, seconds in prepared),
            *("", "| task | seed | steps | outcome | check | seconds | set back, ms | gone |"),
            *("|---|---|---|---|---|---|---|---|", *map(_row, played)),
            *("", "| | measured | holds |", "|---|---|---|"),
            *(f"| {claim} | {measured} | {'yes' if holds else 'NO'} |" for claim, measured, holds in checks),
            *("", _machine(), ""),
        ]
    )
    print(text)
    output.write_text(text)
    if not all(holds for _, _, holds in checks):
        raise SystemExit("error: not every line holds")


def _timed(prepare: Callable[[], None]) -> tuple[float]:
    start = time.monotonic()
    prepare()
    return (time.monotonic() - start,)


def _play(suite: Suite, tasks: list[AppTask]) -> tuple[list[Played], set[str], list[str]]:
    """The episodes, the addresses our processes listened on or spoke to, and refused requests."""
    images = ImageStore(DATASET)
    actor = ScriptedActor({task.task.task_id: POLICIES[_kind(task.task.task_id)] for task in tasks})
    played, connections = [], set()
    with (
        tempfile.TemporaryDirectory(prefix="rmsweb-apps-") as folder,
        Guard(suite.guard(), hosts(suite.applications), SECRETS) as guard,
        Browser(BrowserConfig(), guard) as browser,
    ):
        inner = WebSession(browser, images, Path(folder) / "files")
        runner = EpisodeRunner(
            AppSession(inner, tasks), actor, images, "teacher", PromptConfig(), Limits(max_steps=30)
        )
        for task in tasks:
            played.append(_episode(runner, task))
            connections |= _connections()
    incidents = [
        incident.detail
        for one in played
        for step in one.trajectory.steps
        for incident in step.incidents
        if incident.kind == "refused"
    ]
    return played, connections, incidents


def _episode(runner: EpisodeRunner, task: AppTask) -> Played:
    trajectory = runner.run_episode(task.task, attempt=1)
    last = trajectory.steps[-1].observation
    ending = Ending(last.url, trajectory.final_text)
    passed = task.check(ending)
    start = time.monotonic()
    task.application.reset()
    seconds = time.monotonic() - start
    gone = (passed and not task.check(ending)) if _kind(task.task.task_id) in CHANGING else None
    verdict = "passed" if passed else "FAILED"
    print(
        f"{task.task.task_id}: {len(trajectory.steps)} steps, {verdict} {trajectory.final_text!r}", flush=True
    )
    return Played(trajectory, passed, seconds, gone)


def _kind(task_id: str) -> str:
    return task_id.rpartition("/")[0]


def _connections() -> set[str]:
    """Addresses that this process and all it has started listen on or are connected with."""
    found = set()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            for connection in process.net_connections("inet"):
                listening = connection.status == psutil.CONN_LISTEN
                address = connection.laddr if listening else connection.raddr
                if address:
                    found.add(address.ip)
        except psutil.NoSuchProcess:
            continue
    return found


def _episode_checks(played: list[Played]) -> list[tuple[str, str, bool]]:
    successes = sum(one.trajectory.success for one in played)
    left = [one.gone for one in played if one.gone is not None]
    return [
        ("successful episodes", f"{successes} of {len(played)}", successes == len(played)),
        (
            "checks passed",
            f"{sum(one.passed for one in played)} of {len(played)}",
            all(o.passed for o in played),
        ),
        ("left in the application, and gone after the reset", f"{sum(left)} of {len(left)}", all(left)),
    ]


def _network_checks(connections: set[str], refused: list[str]) -> list[tuple[str, str, bool]]:
    away = {address for address in connections if not address.startswith(("127.", "::1"))}
    return [
        (
            "addresses listened on or spoken to, looked at after each episode",
            ", ".join(sorted(connections)),
            not away,
        ),
        (
            "requests of pages that the proxy had to refuse",
            "; ".join([str(len(refused)), *refused]),
            not refused,
        ),
    ]


def _dataset_checks(played: list[Played]) -> list[tuple[str, str, bool]]:
    found = check_dataset(DATASET)
    texts = [trajectory.model_dump_json() for trajectory in read_dataset(DATASET, Trajectory)]
    told = sum(password in text for text in texts for password in SECRETS.values())
    ports = sum("127.0.0.1" in text for text in texts)
    steps = sum(len(one.trajectory.steps) for one in played)
    return [
        (
            "trajectories recorded and read back, with a screenshot for every step",
            f"{found.records} with {steps} steps, {found.images} different screenshots",
            found.records == len(played) and not found.problems and not found.without_screenshot,
        ),
        ("records that hold a password", str(told), not told),
        ("records that hold an address with a port", str(ports), not ports),
    ]


def _row(one: Played) -> str:
    trajectory, gone = one.trajectory, {None: "-", True: "yes", False: "NO"}[one.gone]
    cells = (
        _kind(trajectory.task.task_id),
        trajectory.task.seed,
        len(trajectory.steps),
        trajectory.outcome,
        "passed" if one.passed else "FAILED",
        f"{trajectory.seconds:.1f}",
        f"{one.reset_seconds * 1000:.0f}",
        gone,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _machine() -> str:
    versions = f"Python {platform.python_version()}, selenium {metadata.version('selenium')}"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {versions}."


if __name__ == "__main__":
    main()
