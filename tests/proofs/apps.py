"""Episodes of hand-written policies at real applications on loopback. A quarter of an hour, Debian 12.

The applications are downloaded and unpacked into build/apps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from collection.agent.loop import EpisodeLimits, EpisodeRunner
from collection.agent.prompt import PromptConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserConfig
from collection.environments.apps import ihatemoney, trac, wiki
from collection.environments.apps.application import Application, hosts
from collection.environments.apps.suite import NAMES, make_application, tasks_of
from collection.environments.apps.tasks import AppEnvironment, AppTask, Ending
from collection.environments.web import WebEnvironment
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.apps.actor import ScriptedActor
from tests.apps.policies import POLICIES
from tests.proofs.result import Claim, Figures, Proof, main, table

SEEDS = tuple(range(5))
APPLICATIONS, DATASET = Path("build/apps"), Path("runs/proof-apps")
# What they leave in the application is gone after a reset; the others leave an answer only.
CHANGING = {
    *("oscar/guest-order", "oscar/two-products", "oscar/out-of-stock", "oscar/too-few"),
    *(f"wiki/{name}" for name in wiki.CHANGES),
    *(f"ihatemoney/{name}" for name in ihatemoney.CHANGES),
    *(f"trac/{name}" for name in trac.CHANGES),
}


@dataclasses.dataclass(frozen=True)
class EpisodeCheck:
    """An episode and what came after it.

    Attributes:
      gone: whether its effects are gone after the reset; None where there were none.
      idle: whether the check passes for who does nothing and gives no answer.
    """

    trajectory: Trajectory
    passed: bool
    reset_seconds: float
    gone: bool | None
    idle: bool


def measure() -> Figures:
    applications = [make_application(name, APPLICATIONS) for name in NAMES]
    prepared = []
    for application in applications:
        start = time.monotonic()
        application.prepare()
        prepared.append({"application": application.host, "seconds": round(time.monotonic() - start, 1)})
    shutil.rmtree(DATASET, ignore_errors=True)
    with contextlib.ExitStack() as running:
        for application in applications:
            running.enter_context(application)
        tasks = [task for seed in SEEDS for one in applications for task in tasks_of(one, seed)]
        played, connections, refused = _play(applications, tasks)
    write_dataset(DATASET, [one.trajectory for one in played], "trajectories", {"proof": "apps"})
    found = check_dataset(DATASET)
    texts = [trajectory.model_dump_json() for trajectory in read_dataset(DATASET, Trajectory)]
    return {
        "seeds": list(SEEDS),
        "prepared": prepared,
        "episodes": [
            {
                "task": _kind(one.trajectory.task.task_id),
                "seed": one.trajectory.task.seed,
                "steps": len(one.trajectory.steps),
                "outcome": one.trajectory.outcome,
                "success": one.trajectory.success,
                "check_passed": one.passed,
                "seconds": round(one.trajectory.seconds, 1),
                "reset_ms": round(one.reset_seconds * 1000),
                "gone": one.gone,
                "idle": one.idle,
            }
            for one in played
        ],
        "addresses": sorted(connections),
        "refused_requests": refused,
        "records": found.records,
        "screenshots": found.images,
        "record_problems": len(found.problems) + found.without_screenshot,
        "records_with_password": sum(
            secret in text for text in texts for one in applications for secret in one.secrets.values()
        ),
        "records_with_port": sum("127.0.0.1" in text for text in texts),
    }


def _play(
    applications: list[Application], tasks: list[AppTask]
) -> tuple[list[EpisodeCheck], set[str], list[str]]:
    """The episodes, the addresses our processes listened on or spoke to, and refused requests."""
    images = ImageStore(DATASET)
    secrets = {name: secret for one in applications for name, secret in one.secrets.items()}
    config = GuardConfig(private=tuple(one.url for one in applications))
    actor = ScriptedActor({task.task.task_id: POLICIES[_kind(task.task.task_id)] for task in tasks})
    played, connections = [], set()
    with (
        tempfile.TemporaryDirectory(prefix="rmsweb-apps-") as folder,
        Guard(config, hosts(applications), secrets) as guard,
        Browser(BrowserConfig(), guard) as browser,
    ):
        inner = WebEnvironment(browser, images, Path(folder) / "files")
        runner = EpisodeRunner(
            AppEnvironment(inner, tasks),
            actor,
            images,
            "teacher",
            PromptConfig(),
            EpisodeLimits(max_steps=30),
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


def _episode(runner: EpisodeRunner, task: AppTask) -> EpisodeCheck:
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
    idle = task.check(Ending(task.task.website, ""))
    return EpisodeCheck(trajectory, passed, seconds, gone, idle)


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
    episodes = figures["episodes"]
    count, steps = len(episodes), sum(row["steps"] for row in episodes)
    idle = any(row["idle"] for row in episodes)
    left = [row["gone"] for row in episodes if row["gone"] is not None]
    away = [address for address in figures["addresses"] if not address.startswith(("127.", "::1"))]
    sums = {name: sum(bool(row[name]) for row in episodes) for name in ("success", "check_passed")}
    return [
        Claim("each episode succeeds", f"{sums['success']} of {count}", sums["success"] == count),
        Claim("each check passes", f"{sums['check_passed']} of {count}", sums["check_passed"] == count),
        Claim(
            "who does nothing passes no check", f"{sum(row['idle'] for row in episodes)} of {count}", not idle
        ),
        Claim("a reset removes all effects of an episode", f"{sum(left)} of {len(left)}", all(left)),
        Claim("all connections stay on loopback", ", ".join(figures["addresses"]), not away),
        Claim(
            "no page makes a request that the proxy refuses",
            "; ".join([str(len(figures["refused_requests"])), *figures["refused_requests"]]),
            not figures["refused_requests"],
        ),
        Claim(
            "each trajectory is recorded and read back, with a screenshot for every step",
            f"{figures['records']} with {steps} steps, {figures['screenshots']} different screenshots",
            figures["records"] == count and not figures["record_problems"],
        ),
        Claim(
            "no record holds a password, or an address with a port",
            f"{figures['records_with_password']} and {figures['records_with_port']}",
            not (figures["records_with_password"] or figures["records_with_port"]),
        ),
    ]


def tables(figures: Figures) -> str:
    words = {None: "-", True: "yes", False: "NO"}
    episodes = [
        (
            *(row[name] for name in ("task", "seed", "steps", "outcome")),
            "passed" if row["check_passed"] else "FAILED",
            *(row["seconds"], row["reset_ms"], words[row["gone"]]),
        )
        for row in figures["episodes"]
    ]
    head = ("task", "seed", "steps", "outcome", "check", "seconds", "reset, ms", "gone")
    prepared = [(row["application"], row["seconds"]) for row in figures["prepared"]]
    times = table(("application", "prepared in, s (0: it was there)"), prepared)
    return f"{times}\n\n{table(head, episodes)}"


ABOUT = """\
Hand-written policies (`tests/apps/policies.py`) play tasks at Python's documentation, a django-oscar shop, a
MediaWiki, an I Hate Money and a Trac, in Chromium behind the guard's proxy. A policy is sent the messages
that a model is sent and answers with the same JSON. A step is one observation (elements and screenshot), one
reply and its actions.

The *check* asks the application itself (the shop's database, the wiki's API), or compares the answer and the
page it was given on. Then the application is reset, and the check is made again: its effects must be *gone*
(`-`: it leaves only an answer).
"""
PROOF = Proof("Real applications on loopback", ABOUT, measure, claims, tables, ("selenium",), browser=True)

if __name__ == "__main__":
    main(PROOF)
