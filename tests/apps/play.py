"""Plays the hand-written policies at a real application, and prints what each template took.

python -m tests.apps.play trac --seeds=1000,1001 --templates=owner,new --apps_folder=build/apps
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from absl import app, flags

from collection.agent.loop import EpisodeLimits, EpisodeRunner
from collection.agent.prompt import PromptConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, BrowserConfig
from collection.environments.apps.application import Application, hosts
from collection.environments.apps.suite import prepared
from collection.environments.apps.tasks import AppEnvironment, AppTask, Ending, shortfalls, template_task
from collection.environments.web import WebEnvironment
from rmsweb_jax.records.images import ImageStore
from tests.apps.actor import Policy, ScriptedActor
from tests.apps.policies import policies_of, ways_of

_SEEDS = flags.DEFINE_list("seeds", ["1000"], "Seeds of worlds and tasks.")
_TEMPLATES = flags.DEFINE_list("templates", [], "Templates to play; none: all.")
_OTHER_WAYS = flags.DEFINE_bool("other_ways", False, "Play what else does a task, or nearly does, instead.")
_APPS = flags.DEFINE_string("apps_folder", "", "Where applications are installed; empty: the user's cache.")


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode of a policy.

    Attributes:
      lacks: what its ending lacks; nothing if it is paid.
      pages: different addresses that it saw.
    """

    task: AppTask
    lacks: tuple[str, ...]
    steps: int
    pages: int
    seconds: float
    text: str


def play(
    application: Application, tasks: Sequence[AppTask], policies: Mapping[str, Policy], folder: Path
) -> Iterator[Episode]:
    """Plays each task by the policy of its template, in one browser."""
    actor = ScriptedActor(lambda task_id: policies[task_id.split("/")[1]])
    images = ImageStore(folder / "episodes")
    config = GuardConfig(private=(application.url,))
    with (
        Guard(config, hosts([application]), application.secrets) as guard,
        Browser(BrowserConfig(), guard) as browser,
    ):
        environment = AppEnvironment(WebEnvironment(browser, images, folder / "files"), tasks)
        limits = EpisodeLimits(max_steps=60)
        runner = EpisodeRunner(environment, actor, images, "teacher", PromptConfig(), limits)
        for one in tasks:
            start = time.monotonic()
            trajectory = runner.run_episode(one.task)
            last = trajectory.steps[-1].observation.url if trajectory.steps else ""
            goal = application.goal(template_of(one), one.task.seed or 0)
            lacks = shortfalls(goal, application.read(), Ending(last, trajectory.final_text))
            if trajectory.outcome not in ("success", "done") and not lacks and not trajectory.success:
                lacks.append(f"the episode ended with {trajectory.outcome}: {trajectory.detail}")
            pages = len({step.observation.url for step in trajectory.steps})
            yield Episode(
                one,
                tuple(lacks),
                len(trajectory.steps),
                pages,
                time.monotonic() - start,
                trajectory.final_text,
            )


def other_ways(application: Application, seed: int, folder: Path) -> Iterator[tuple[bool, Episode]]:
    """Plays what else does a task, or nearly does: yields whether it should be paid, and what came of it."""
    for number, (template, policy, paid) in enumerate(ways_of(application.name)):
        task = template_task(application, template, seed)
        for one in play(application, [task], {template: policy}, folder / str(number)):
            yield paid, one


def template_of(one: AppTask) -> str:
    return one.task.task_id.split("/")[1]


def main(argv: list[str]) -> None:
    (name,) = argv[1:]
    (application,) = prepared([name], _APPS.value)
    templates = _TEMPLATES.value or list(application.templates)
    tasks = [template_task(application, one, int(seed)) for seed in _SEEDS.value for one in templates]
    solved, sizes = 0, {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmsweb-apps-")))
        stack.enter_context(application)
        if _OTHER_WAYS.value:
            for paid, one in other_ways(application, int(_SEEDS.value[0]), folder):
                right = paid == (not one.lacks)
                print(
                    f"{one.task.task.task_id}: {'right' if right else 'WRONG'} {one.lacks} {one.text!r}",
                    flush=True,
                )
            return
        for one in play(application, tasks, policies_of(name), folder):
            solved += not one.lacks
            sizes.setdefault(template_of(one.task), []).append((one.steps, one.pages))
            mark = (
                "ok"
                if not one.lacks
                else f"FAILED {list(one.lacks)[:3]} {one.text!r}: {one.task.task.objective}"
            )
            print(
                f"{one.task.task.task_id}: {one.steps} steps, {one.pages} pages, {one.seconds:.1f} s, {mark}",
                flush=True,
            )
    print(f"{name}: {solved} of {len(tasks)} solved")
    print(
        json.dumps(
            {
                template: [max(column) for column in zip(*rows, strict=True)]
                for template, rows in sizes.items()
            }
        )
    )


if __name__ == "__main__":
    app.run(main)
