"""The example of an application of one's own: installed from its package, played, and evaluated on."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from collection.environments.apps.application import Application
from collection.environments.apps.tasks import AppTask, Ending, shortfalls
from collection.evaluation.config import FIRST_EVALUATED_SEED
from collection.evaluation.results import load_results
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task
from tests.apps.mutants import mutants, right
from tests.llm.answers import completion
from tests.llm.server import Answer, ModelServer
from tests.scripts import run_script

ROOT = Path(__file__).parents[2]
CHECK = "collection.environments.apps.check"
EXAMPLE = ROOT / "docs/examples/own_application"
# What the documentation's page says: it is there, its checks are tried, and a harness plays it.
PLAY = """
import re, sys
from collection.environments.apps import suite
from collection.gym.gymnasium_env import WebEnv
(site,) = suite.prepared(["list"], sys.argv[1])
with site:
    suite.check_application(site, 0)
with WebEnv("list/add", apps=sys.argv[1]) as env:
    for seed in (3, 4):
        observation, info = env.reset(seed=seed)
        print(observation["goal"])
        (name,) = re.findall('"(.+)"', observation["goal"])
        env.step(f"fill('4', '{name}')")
        env.step("click('5')")
        print(env.step("send_msg_to_user('done')")[1:3])
    env.reset(seed=3)
    print(env.step("send_msg_to_user('done')")[1:3])
"""
# The first of the held-out worlds.
SEED = FIRST_EVALUATED_SEED


def shopping_list() -> Application:
    """The example, imported from its file."""
    found = importlib.util.spec_from_file_location("shopping_list", EXAMPLE / "shopping_list.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.ShoppingList(Path("apps"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The variables with which Python finds the installed package."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
    subprocess.run([*pip, str(folder / "site"), str(folder / "source")], check=True)
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))}


def test_an_application_of_another_package_is_one_of_the_suite(environment, tmp_path):
    assert len((EXAMPLE / "shopping_list.py").read_text().splitlines()) < 100
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path / "apps")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words, paid, others, again, nothing = done.stdout.splitlines()
    assert words == shopping_list().goal("add", 3).words != others == shopping_list().goal("add", 4).words
    assert (paid, again, nothing) == ("(1.0, True)", "(1.0, True)", "(0.0, True)")


@pytest.mark.parametrize("seed", [0, 3, 1000])
def test_its_checks_refuse_all_but_what_was_asked_for(seed):
    site = shopping_list()
    for template in site.templates:
        goal, world = site.goal(template, seed), site.world(seed)
        assert not shortfalls(goal, *right(goal)), template
        found = list(mutants(goal, world))
        assert len(found) > 5 and all(shortfalls(goal, holds, end) for _, holds, end in found), template


def test_it_is_installed_and_tried_by_its_name(environment, tmp_path):
    command = (sys.executable, "-m", CHECK, f"--apps_folder={tmp_path}", "list")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "list: 3 templates; nothing is paid to who does nothing; a reset restores it, in "
    )


@pytest.mark.parametrize(
    ("names", "message"), [((), "name the applications"), (("shop",), "no application 'shop': use docs")]
)
def test_what_cannot_be_tried_is_one_line(tmp_path, names, message):
    refused = run_script(CHECK, f"--apps_folder={tmp_path}", *names)
    assert refused.returncode == 2 and message in refused.stderr.splitlines()[-1]


def reply(*actions: dict[str, object]) -> Answer:
    fields = ("evaluation_previous_goal", "memory", "next_goal")
    return completion(json.dumps({**dict.fromkeys(fields, ""), "action": actions}))


DONE = reply({"done": {"text": "It is done.", "success": True}})


def evaluation(workdir: Path, *settings: str) -> tuple[str, ...]:
    flags = ("--config=configs/evaluate.py:apps", f"--workdir={workdir / 'run'}")
    return ("experiments.evaluate", *flags, f"--config.apps_folder={workdir / 'apps'}", *settings)


@pytest.mark.slow
def test_a_policy_is_evaluated_on_it_by_what_it_holds(environment, tmp_path):
    (name,) = re.findall('"(.+)"', shopping_list().goal("add", SEED).words)
    add = reply({"input_text": {"index": 4, "text": name}}, {"click_element_by_index": {"index": 5}})
    # The first is a test call, before a browser starts.
    with ModelServer([DONE, add, DONE]) as model:
        command = evaluation(
            tmp_path,
            "--config.applications=('list',)",
            "--config.seeds=1",
            f"--config.task_ids=('list/add/{SEED}',)",
            "--config.fleet.workers=1",
            "--config.actor.kind=chat",
            f"--config.actor.base_url={model.url}/v1",
        )
        done = subprocess.run(
            (sys.executable, "-m", *command), env=environment, cwd=tmp_path, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    results = load_results(tmp_path / "run")
    # It always says that it is done; only in the first run it has done something.
    assert results.by_task("success") == {f"list/add/{SEED}": (True, False, False)}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("applications=()", "no tasks: set config.applications"),
        ("applications=('shop',)", "there is no application 'shop': use docs"),
        ("first_seed=0", "config.first_seed is 0: seeds below 1000000 are trained on"),
        ("seeds=0", "config.seeds is 0: make it 1 or more"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(tmp_path, setting, message):
    done = run_script(*evaluation(tmp_path, f"--config.{setting}"))
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("error: ")
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("paid", [float("nan"), -0.5, 2])
def test_a_check_that_pays_no_share_is_one_line_and_no_failure(paid):
    task = Task(task_id="list/add/1", website="http://list.test/", objective="Add rice.")
    one = AppTask(task, cast(Any, None), lambda ending: paid)
    with pytest.raises(UserError, match=rf"^list/add/1: its check pays {paid:g}: make that 0 to 1$"):
        one.reward(Ending("http://list.test/", ""))
