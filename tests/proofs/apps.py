"""Episodes of hand-written policies at real applications on loopback. Debian 12; five minutes an application.

What each application has given is kept in docs/results/apps, and only what is missing there is measured;
APPS=trac,wiki measures these again. Applications are installed into a temporary folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from collection.agent.loop import EpisodeLimits, EpisodeRunner
from collection.agent.prompt import PromptConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserConfig
from collection.environments.apps.application import Application, hosts
from collection.environments.apps.suite import NAMES, check_application, make_application, tasks_of
from collection.environments.apps.tasks import AppEnvironment, AppTask, Ending
from collection.environments.web import WebEnvironment
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.apps.actor import ScriptedActor
from tests.apps.policies import POLICIES
from tests.proofs.result import RESULTS, Claim, Figures, Proof, main, table

SEEDS = tuple(range(5))
KEPT = RESULTS / "apps"


@dataclasses.dataclass(frozen=True)
class EpisodeCheck:
    """An episode and what came after it.

    Attributes:
      exact: whether the application holds after the reset what it held before the episode.
      idle: whether the check passes for who does nothing and gives no answer.
    """

    trajectory: Trajectory
    passed: bool
    reset_ms: float
    exact: bool
    idle: bool


def measure() -> Figures:
    asked = [name for name in os.environ.get("APPS", "").split(",") if name]
    for name in asked or [name for name in NAMES if not _kept(name).exists()]:
        with tempfile.TemporaryDirectory(prefix="rmsweb-apps-") as folder:
            found = measure_application(name, Path(folder))
        KEPT.mkdir(exist_ok=True)
        write_atomic(_kept(name), json.dumps(found, indent=1).encode())
    return {name: json.loads(_kept(name).read_bytes()) for name in NAMES if _kept(name).exists()}


def _kept(name: str) -> Path:
    return KEPT / f"{name}.json"


def measure_application(name: str, folder: Path) -> dict[str, Any]:
    """Installs and starts an application, and plays all of its templates with all seeds."""
    application = make_application(name, folder / "apps")
    start = time.monotonic()
    application.prepare()
    installed = time.monotonic()
    with application:
        started = time.monotonic()
        server = _memory_mb() if application.address else 0.0
        check_application(application, SEEDS[0])
        tasks = [task for seed in SEEDS for task in tasks_of(application, seed)]
        played, connections, refused = _play(application, tasks, folder)
        server = max(server, _memory_mb())
    dataset = folder / "episodes"
    write_dataset(dataset, [one.trajectory for one in played], "trajectories", {"proof": "apps"})
    found = check_dataset(dataset)
    texts = [trajectory.model_dump_json() for trajectory in read_dataset(dataset, Trajectory)]
    templates: defaultdict[str, list[EpisodeCheck]] = defaultdict(list)
    for one in played:
        templates[_kind(one.trajectory.task.task_id)].append(one)
    resets = [one.reset_ms for one in played]
    return {
        "host": application.host,
        "install_s": round(installed - start, 1),
        "install_mb": round(_size(application.folder) / 1e6),
        "start_s": round(started - installed, 1),
        "server_mb": round(server),
        "snapshot_kb": round(_size(application.kept) / 1e3),
        "reset_ms": round(statistics.median(resets), 1),
        "reset_ms_most": round(max(resets), 1),
        "templates": [
            {
                "template": kind,
                "episodes": len(episodes),
                "solved": sum(one.passed and bool(one.trajectory.success) for one in episodes),
                "idle": sum(one.idle for one in episodes),
                "exact": sum(one.exact for one in episodes),
                "objectives": len({one.trajectory.task.objective for one in episodes}),
                "steps": round(statistics.mean(len(one.trajectory.steps) for one in episodes), 1),
                "seconds": round(statistics.mean(one.trajectory.seconds for one in episodes), 1),
            }
            for kind, episodes in templates.items()
        ],
        "addresses": sorted(connections),
        "refused_requests": refused,
        "records": found.records,
        "screenshots": found.images,
        "record_problems": len(found.problems) + found.without_screenshot,
        "records_with_password": sum(
            secret in text for text in texts for secret in application.secrets.values()
        ),
        # Pages of the manual name the address itself.
        "records_with_port": sum(bool(re.search(r"127\.0\.0\.1:\d", text)) for text in texts),
    }


def _memory_mb() -> float:
    """Memory of the processes that this one has started, without browsers."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" not in process.name():
                total += process.memory_info().rss
    return total / 1e6


def _size(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.is_file())


def _play(
    application: Application, tasks: list[AppTask], folder: Path
) -> tuple[list[EpisodeCheck], list[str], list[str]]:
    """The episodes, the addresses our processes listened on or spoke to, and refused requests."""
    images = ImageStore(folder / "episodes")
    config = GuardConfig(private=(application.url,))
    actor = ScriptedActor({task.task.task_id: POLICIES[_kind(task.task.task_id)] for task in tasks})
    played, connections = [], set()
    with (
        Guard(config, hosts([application]), application.secrets) as guard,
        Browser(BrowserConfig(), guard) as browser,
    ):
        inner = WebEnvironment(browser, images, folder / "files")
        runner = EpisodeRunner(
            AppEnvironment(inner, tasks),
            actor,
            images,
            "teacher",
            PromptConfig(),
            EpisodeLimits(max_steps=30),
        )
        application.reset()
        before = application.content()
        for task in tasks:
            played.append(_episode(runner, task, before))
            connections |= _connections()
    incidents = [
        incident.detail
        for one in played
        for step in one.trajectory.steps
        for incident in step.incidents
        if incident.kind == "refused"
    ]
    return played, sorted(connections), incidents


def _episode(runner: EpisodeRunner, task: AppTask, before: dict[str, Any]) -> EpisodeCheck:
    trajectory = runner.run_episode(task.task, attempt=1)
    passed = task.check(Ending(trajectory.steps[-1].observation.url, trajectory.final_text))
    start = time.monotonic()
    task.application.reset()
    seconds = time.monotonic() - start
    exact = task.application.content() == before
    if not passed or not exact:
        state = "passed" if exact else "not set back"
        print(f"{task.task.task_id}: {state if passed else 'FAILED'} {trajectory.final_text!r}", flush=True)
    idle = task.check(Ending(task.task.website, ""))
    return EpisodeCheck(trajectory, passed, 1000 * seconds, exact, idle)


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


def claims(figures: Figures) -> list[Claim]:
    templates = [row for one in figures.values() for row in one["templates"]]
    count = sum(row["episodes"] for row in templates)
    sums = {name: sum(row[name] for row in templates) for name in ("solved", "idle", "exact")}
    addresses = sorted({address for one in figures.values() for address in one["addresses"]})
    away = [address for address in addresses if not address.startswith(("127.", "::1"))]
    refused = [request for one in figures.values() for request in one["refused_requests"]]
    slowest = max(one["reset_ms"] for one in figures.values())
    fewest = min(len(one["templates"]) for one in figures.values())

    def total(name: str) -> int:
        return sum(one[name] for one in figures.values())

    return [
        Claim("all applications are measured", f"{len(figures)} of {len(NAMES)}", len(figures) == len(NAMES)),
        Claim(
            "at least 25 templates an application",
            f"{len(templates)} at {len(figures)}, at least {fewest}",
            fewest >= 25,
        ),
        Claim(
            "policies written by hand solve every template and seed",
            f"{sums['solved']} of {count}",
            sums["solved"] == count,
        ),
        Claim("who does nothing passes no check", f"{sums['idle']} of {count}", not sums["idle"]),
        Claim(
            "after a reset the application holds what it held before the episode",
            f"{sums['exact']} of {count}",
            sums["exact"] == count,
        ),
        Claim("a reset takes less than 200 ms, in the median", f"{slowest:g} ms at most", slowest < 200),
        Claim("all connections stay on loopback", ", ".join(addresses), not away),
        Claim(
            "no page makes a request that the proxy refuses",
            "; ".join([str(len(refused)), *refused]),
            not refused,
        ),
        Claim(
            "each trajectory is recorded and read back, with a screenshot for every step",
            f"{total('records')}, with {total('screenshots')} different screenshots",
            total("records") == count and not total("record_problems"),
        ),
        Claim(
            "no record holds a password, or an address with a port",
            f"{total('records_with_password')} and {total('records_with_port')}",
            not (total("records_with_password") or total("records_with_port")),
        ),
    ]


_SITE = ("install_s", "install_mb", "start_s", "server_mb", "snapshot_kb", "reset_ms", "reset_ms_most")


def tables(figures: Figures) -> str:
    head = ("install s", "MB", "start s", "server MB", "snapshot kB", "reset ms", "at most")
    sites = [(name, len(one["templates"]), *(one[key] for key in _SITE)) for name, one in figures.items()]
    templates = [
        (
            row["template"],
            f"{row['solved']} of {row['episodes']}",
            f"{row['idle']}",
            f"{row['exact']} of {row['episodes']}",
            *(row[name] for name in ("objectives", "steps", "seconds")),
        )
        for one in figures.values()
        for row in one["templates"]
    ]
    columns = ("template", "solved", "by nothing", "set back", "different tasks", "steps", "seconds")
    return f"{table(('application', 'templates', *head), sites)}\n\n{table(columns, templates)}"


ABOUT = f"""\
Policies written by hand (`tests/apps`) play the tasks of all applications, {len(SEEDS)} seeds of each
template, in Chromium behind the guard's proxy. A policy is sent the messages that a model is sent and answers
with the same JSON. A step is one observation (elements and screenshot), one reply and its actions.

A check asks what the application itself holds (its database, or its API), or compares the answer. After each
episode the application is reset while it runs, and all that it holds is compared with what it held before;
then the check is made again for who does nothing. Installing downloads packages; memory is that of
all processes of the server, 0 where a thread of ours serves. Seeds of applications are not held out: most
tasks repeat the words and answers of other seeds.
"""
PROOF = Proof("Real applications on loopback", ABOUT, measure, claims, tables, ("selenium",), browser=True)

if __name__ == "__main__":
    main(PROOF)
