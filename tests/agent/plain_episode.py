"""An environment and an actor in memory, for tests of the episode loop."""

import json
import unittest.mock
from typing import Any

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.agent.loop import EpisodeRunner
from collection.environments.base import StepResults, View
from collection.llm.actor import ActorReply
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ActionResult, CallUsage, Task
from tests.agent.state_messages import observed

TASK = Task(task_id="miniwob/p/1", website="http://a.test/", objective="", environment="miniwob", site="p")
DONE = {"done": {"text": "it is done", "success": True}}
CLICK = {"click_element_by_index": {"index": 1}}


def reply(*actions, goal="Go on"):
    return json.dumps(
        {"evaluation_previous_goal": "Success", "memory": "m", "next_goal": goal, "action": list(actions)}
    )


class Page:
    """An environment in which every action succeeds unless `broken`; the reward is fixed."""

    excluded_actions = EXTRA_ACTIONS

    def __init__(self, reward: float | None = 1.0, broken=False, **view):
        self.acted, self.deadlines, self._reward, self._broken = [], [], reward, broken
        self._view = view

    def reset(self, task):
        return task.model_copy(update={"objective": "Click it."})

    def observe(self):
        page = observed("[1]<a />").model_copy(update={"fingerprint": "f"})
        return View(page, "1 links", **self._view)

    def act(self, actions, extract, deadline):
        self.deadlines.append(deadline)
        self.acted.append([action.name for action in actions])
        return StepResults(
            tuple(
                ActionResult(action=action.name, text="No such element", error=self._broken)
                for action in actions
            )
        )

    def finish(self, done):
        return ActionResult(action="done", text="Done", output="\n".join(done.params.files_to_display))

    def redact(self, text):
        return text.replace("hunter2", "<secret>pw</secret>")

    def reward(self):
        return self._reward


class Lines:
    """An actor that replies with the given texts in order, the last one for ever, and stores its requests.

    All replies have the same `sampled` tokens.
    """

    name = "lines"

    def __init__(self, *texts, sampled=None):
        self._texts, self.requests, self._sampled = list(texts), [], sampled

    def reply(self, request):
        self.requests.append(request)
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        return ActorReply(text, CallUsage(prompt_tokens=10, cost=0.5), sampled=self._sampled)

    def reflect(self, request):
        raise AssertionError(request)

    def extract(self, request):
        raise AssertionError(request)


class Clock:
    """Replaces `time.monotonic` in the loop."""

    now = 0.0

    def running(self):
        return unittest.mock.patch("collection.agent.loop.time.monotonic", lambda: self.now)


def run(page, teacher, guidance="", style="compact", environment="miniwob", lenient=False, **limits):
    no_images: Any = None  # These pages have no screenshots.
    runner = EpisodeRunner(
        page, teacher, no_images, "teacher", PromptConfig(style=style), EpisodeLimits(**limits), lenient
    )
    task = TASK.model_copy(update={"environment": environment})
    return runner.run_episode(task, attempt=2, guidance=guidance)
