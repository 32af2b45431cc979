"""Rewards of tasks at applications."""

from __future__ import annotations

import pathlib

from collection.environments.apps.tasks import AppEnvironment, Ending, make_task
from collection.environments.base import StepResults, View
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ActionResult, Observation, Task
from tests.apps.conftest import Notebook


class Inner:
    """An environment that shows one page."""

    excluded_actions = EXTRA_ACTIONS

    def reset(self, task: Task) -> Task:
        return task

    def observe(self) -> View:
        observation = Observation(
            url="http://notebook.test/last",
            title="",
            tabs=(),
            current_tab="0001",
            page_text="",
            elements=(),
            fingerprint="",
        )
        return View(observation, "")

    def act(self, actions: object, extract: object, deadline: float) -> StepResults:
        return StepResults(())

    def finish(self, done: object) -> ActionResult:
        return ActionResult(action="done", text="Done")

    def reward(self) -> float | None:
        return None

    def redact(self, text: str) -> str:
        return text

    def snapshot(self) -> object:
        raise NotImplementedError

    def restore(self, snapshot: object) -> None:
        raise NotImplementedError


def test_the_reward_is_the_check_of_this_episode_alone(
    notebook: type[Notebook], tmp_path: pathlib.Path
) -> None:
    application = notebook(tmp_path)
    application.prepare()
    endings = []

    def check(end: Ending) -> bool:
        endings.append(end)
        return end.answer == "42" and (application.data / "note").read_text() == "changed"

    task = make_task(application, "write", 4, "Write.", check)
    with application:
        environment = AppEnvironment(Inner(), [task])
        assert environment.reward() is None
        environment.reset(task.task)
        environment.observe()
        (application.data / "note").write_text("changed")
        assert environment.reward() == 0.0
        environment.finish(normalize_action({"done": {"text": "42", "success": True}}))
        assert environment.reward() == 1.0
        environment.reset(task.task)
        assert environment.reward() == 0.0
        assert application.read() == application.world(4)
    assert endings == [
        Ending("http://notebook.test/last", ""),
        Ending("http://notebook.test/last", "42"),
        Ending("", ""),
    ]
