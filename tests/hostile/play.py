"""Episodes at the hostile site by the real fleet: processes, guard, proxy, a chat model, records."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from collection.fleet.config import CollectSettings, resolved
from collection.fleet.fleet import run_tasks
from collection.fleet.rounds import Job
from configs.collect import get_config
from rmsweb_jax.records.schema import Incident, Task, Trajectory
from rmsweb_jax.settings import from_config
from tests.hostile.behaviours import SECURE, Behaviour
from tests.hostile.model import answer
from tests.hostile.secrets import CANARY, SECRET
from tests.hostile.site import Running
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer

# On a busy machine the largest page alone takes several.
MAX_SECONDS = 15.0
PAGE_SECONDS = 2.0
# Time that one observation, one action and a browser's end may take beyond that.
GRACE_SECONDS = 120.0
WORKERS = 2


@dataclasses.dataclass(frozen=True)
class Visited:
    """Artefacts of a run.

    Attributes:
      trajectories: by behaviour.
      prompts: what the model was sent, pictures left out.
      contacts: what reached the forbidden server.
    """

    workdir: Path
    trajectories: dict[str, Trajectory]
    prompts: list[str]
    contacts: list[str]


def settings(running: Running, model: PromptServer, patience: float) -> CollectSettings:
    """Returns the config of the run: small limits for an episode, and the guard as for any site."""
    config = get_config("smoke").to_dict()
    config["actor"] |= {"kind": "chat", "base_url": f"{model.url}/v1", "model": "plan"}
    config["browser"] |= {
        "width": 800,
        "height": 600,
        "quiet_ms": 20,
        "settle_ms": 500,
    }
    config["guard"] |= {
        "task_site": True,
        "private": (f"*.{SECURE}",),
        "hosts": tuple(f"{name}={address}" for name, address in running.hosts.items()),
    }
    config["prompt"] |= {"style": "full"}
    config["limits"] |= {"max_steps": 5, "max_seconds": patience * MAX_SECONDS}
    config["fleet"] |= {"workers": WORKERS, "site_interval_s": 0.0}
    config["secrets"] = (SECRET,)
    settings = from_config(CollectSettings, config)
    fleet = settings.fleet.model_copy(update={"crashes": 0, "retries": 0})
    seconds = {"connect_seconds": 2.0, "idle_seconds": 3.0, "total_seconds": 6.0}
    times = {name: patience * value for name, value in seconds.items()}
    guard = settings.guard.model_copy(update=times)
    limits = {
        "page_load_seconds": patience * PAGE_SECONDS,
        "script_seconds": patience * PAGE_SECONDS,
        "memory_mb": 2000,
        # A page that takes all memory there is comes to the end of it soon.
        "flags": ("--js-flags=--max-old-space-size=128",),
    }
    browser = settings.browser.model_copy(update=limits)
    return settings.model_copy(update={"browser": browser, "guard": guard, "fleet": fleet})


def visit(behaviours: Sequence[Behaviour], running: Running, workdir: Path, patience: float = 1.0) -> Visited:
    """Runs one episode at each endpoint; `patience` multiplies the time of pages and episodes."""
    jobs = [Job(_task(one, running), attempts=1) for one in behaviours]
    os.environ[SECRET] = CANARY
    try:
        with PromptServer(lambda prompt: completion(answer(prompt))) as model:
            played = run_tasks(jobs, workdir, resolved(settings(running, model, patience)), None, "hostile")
    finally:
        del os.environ[SECRET]
    return Visited(
        workdir=workdir,
        trajectories={one.task.task_id.partition("/")[2]: one for one in played.trajectories()},
        prompts=model.prompts,
        contacts=list(running.forbidden.contacts),
    )


def incidents(trajectory: Trajectory) -> list[Incident]:
    return [incident for step in trajectory.steps for incident in step.incidents]


def as_expected(behaviour: Behaviour, trajectory: Trajectory) -> bool:
    """Returns True if an episode ended as its endpoint's entry says.

    Incidents belong to steps: if the start page does not open there is none, and `detail` has the reason.
    """
    kinds = {one.kind for one in incidents(trajectory)}
    reported = not trajectory.steps or kinds >= set(behaviour.incidents)
    return trajectory.outcome in behaviour.outcomes and reported


def refusals(trajectory: Trajectory) -> list[str]:
    """What the guard has said of an episode: of its start page, and of what it refused at a step."""
    return [
        trajectory.detail,
        *(one.detail for one in incidents(trajectory) if one.kind == "refused"),
    ]


def _task(behaviour: Behaviour, running: Running) -> Task:
    plan = "; ".join(running.steps(behaviour))
    return Task(
        task_id=f"hostile/{behaviour.name}",
        website=behaviour.url,
        objective=f"Follow the plan: [{plan}]",
        site=behaviour.host,
    )
