"""Rewards and checks of tasks at applications, and that every task has a policy."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import pytest

from collection.environments.apps.oscar.site import HELD, Basket, Holdings, OscarShop
from collection.environments.apps.oscar.tasks import CHANGES, QUESTIONS, TEMPLATES
from collection.environments.apps.suite import NAMES, find_task, make_application, tasks_of
from collection.environments.apps.tasks import AppEnvironment, Ending, make_task
from collection.environments.base import StepResults, View
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ActionResult, Observation, Task
from tests.apps.conftest import Notebook
from tests.apps.policies import POLICIES


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


def test_the_reward_is_the_check_of_this_episode_alone(
    notebook: type[Notebook], tmp_path: pathlib.Path
) -> None:
    application = notebook(tmp_path)
    application.prepare()
    endings = []

    def check(end: Ending) -> bool:
        endings.append(end)
        return end.answer == "42" and (application.data / "note").read_text() == "changed"

    task = make_task(application, "write", 0, "Write.", check)
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
        assert (application.data / "note").read_text() == "version 1"
    assert endings == [
        Ending("http://notebook.test/last", ""),
        Ending("http://notebook.test/last", "42"),
        Ending("", ""),
    ]


def test_every_task_has_a_policy_and_seeds_differ(tmp_path: pathlib.Path) -> None:
    applications = [make_application(name, tmp_path) for name in NAMES]
    tasks = [task.task for seed in range(6) for one in applications for task in tasks_of(one, seed)]
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert {task.task_id.rpartition("/")[0] for task in tasks} == set(POLICIES)
    for kind in POLICIES:
        objectives = [task.objective for task in tasks if task.task_id.startswith(f"{kind}/")]
        assert all(one != other for one, other in itertools.pairwise(objectives)), kind
    assert not any("127.0.0.1" in task.model_dump_json() for task in tasks)


def orders_but(**changes: str) -> Holdings:
    """What the shop holds after the order that is asked for, or another."""
    after = TEMPLATES["guest-order"](0).after
    (order,) = set(after.orders) - set(HELD.orders)
    return after.but("orders", order, dataclasses.replace(order, **changes))


@pytest.mark.parametrize(
    ("holdings", "answer", "passes"),
    [
        (orders_but(), "100013", True),
        (orders_but(), "100012", False),
        (orders_but(), "", False),
        (orders_but(lines="2 Folding Reading Lamp"), "100013", False),
        (orders_but(email="tom.reeve@example.com"), "100013", False),
        (orders_but(postcode="YO1 7HH"), "100013", False),
        (orders_but(delivery="Next day delivery", total="60.00"), "100013", False),
        (orders_but(more="Ring twice."), "100013", False),
        (orders_but().but("orders", new=HELD.orders[0]), "100013", False),
        (orders_but().but("baskets", new=Basket("", "1 Oak Dibber")), "100013", False),
        (HELD, "100013", False),
    ],
)
def test_an_order_counts_only_as_it_was_asked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, holdings: Holdings, answer: str, passes: bool
) -> None:
    shop = OscarShop(tmp_path)
    monkeypatch.setattr(shop, "holdings", lambda: holdings)
    monkeypatch.setattr(shop, "newest_order", lambda: "100013")
    assert find_task(shop, "oscar/guest-order/0").check(Ending(shop.url, answer)) is passes


def test_questions_of_the_shop_have_various_answers_and_changes_change_it() -> None:
    for name in QUESTIONS:
        goals = [TEMPLATES[name](seed) for seed in range(5)]
        assert all(goal.answer and goal.after == HELD for goal in goals), name
        assert len({goal.answer for goal in goals}) > 1, name
    for name in CHANGES:
        assert all(TEMPLATES[name](seed).after != HELD for seed in range(5)), name
