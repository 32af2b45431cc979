"""Rewards and checks of tasks at applications, and that every task has a policy."""

from __future__ import annotations

import itertools
import pathlib
import sqlite3

import pytest

from collection.environments.apps.shop import GUESTS, OscarShop, ordered
from collection.environments.apps.suite import NAMES, make_application, tasks_of
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


ORDERS = """
CREATE TABLE order_shippingaddress (id INTEGER, first_name TEXT, last_name TEXT, postcode TEXT);
CREATE TABLE order_order
  (id INTEGER, number TEXT, guest_email TEXT, total_incl_tax REAL, shipping_address_id INTEGER);
CREATE TABLE order_line (order_id INTEGER, title TEXT, quantity INTEGER);
"""


def shop_with(folder: pathlib.Path, *orders: dict[str, int], email: str, postcode: str) -> OscarShop:
    shop = OscarShop(folder)
    shop.data.mkdir(parents=True)
    (shop.data / "shop.sqlite3").unlink(missing_ok=True)
    database = sqlite3.connect(shop.data / "shop.sqlite3")
    database.executescript(ORDERS)
    database.execute("INSERT INTO order_shippingaddress VALUES (1, 'Ida', 'Moss', ?)", (postcode,))
    for number, lines in enumerate(orders, start=1):
        values = (number, f"10000{number}", email)
        database.execute("INSERT INTO order_order VALUES (?, ?, ?, 9.8, 1)", values)
        rows = [(number, title, quantity) for title, quantity in lines.items()]
        database.executemany("INSERT INTO order_line VALUES (?, ?, ?)", rows)
    database.commit()
    database.close()
    return shop


@pytest.mark.parametrize(
    ("orders", "changes", "answer", "passes"),
    [
        ([{"Brass Ship Lamp": 1}], {}, "100001", True),
        ([{"Brass Ship Lamp": 1}], {}, "100002", False),
        ([{"Brass Ship Lamp": 2}], {}, "100001", False),
        ([{"Enamel Kettle": 1}], {}, "100001", False),
        ([{"Brass Ship Lamp": 1, "Oak Dibber": 1}], {}, "100001", False),
        ([{"Brass Ship Lamp": 1}], {"email": "tom.reeve@example.com"}, "100001", False),
        ([{"Brass Ship Lamp": 1}], {"postcode": "YO1 7HH"}, "100001", False),
        ([{"Oak Dibber": 1}, {"Brass Ship Lamp": 1}], {}, "100002", False),
        ([], {}, "100001", False),
    ],
)
def test_an_order_counts_only_as_it_was_asked_for(
    tmp_path: pathlib.Path, orders: list[dict[str, int]], changes: dict[str, str], answer: str, passes: bool
) -> None:
    guest = GUESTS[0]
    shop = shop_with(tmp_path, *orders, **({"email": guest.email, "postcode": guest.postcode} | changes))
    assert ordered(shop, guest, {"Brass Ship Lamp": 1}, answer) is passes
