"""The planted pairs by themselves: sound records, and exactly the divergence that they claim."""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import Observation, Step, Trajectory
from tests.mining.planted import CATEGORIES, Planted, planted_pair, unplanted_pair, write_pool
from tests.mining.planted.pool import pool_json
from tests.mining.planted.unplanted import KINDS

ROOT = Path(__file__).parent.parent.parent
SEEDS = range(6)
PASSIVE = {"wait", "scroll", "go_back", "scroll_to_text", "get_dropdown_options"}
# Actions of the interface that are used here, with all their parameters; the first is needed.
PARAMETERS = {
    "done": ["text", "success"],
    "search_engine": ["query"],
    "go_to_url": ["url"],
    "go_back": [],
    "wait": ["seconds"],
    "click_element_by_index": ["index"],
    "input_text": ["index", "text"],
    "scroll": ["down", "num_pages"],
    "send_keys": ["keys"],
    "scroll_to_text": ["text"],
    "extract_structured_data": ["query"],
    "get_dropdown_options": ["index"],
    "select_dropdown_option": ["index", "text"],
    "write_file": ["file_name", "content"],
}
every_category = pytest.mark.parametrize("category", CATEGORIES)


@functools.cache
def pairs(category: str) -> tuple[Planted, ...]:
    return tuple(planted_pair(category, seed) for seed in SEEDS)


@functools.cache
def unplanted() -> tuple[Planted, ...]:
    return tuple(unplanted_pair(seed) for seed in range(2 * len(KINDS)))


@functools.cache
def all_runs() -> tuple[Trajectory, ...]:
    every = itertools.chain(*map(pairs, CATEGORIES), unplanted())
    return tuple(run for pair in every for run in (pair.success, pair.localization))


def sound_runs() -> list[Trajectory]:
    """All but those whose records are broken on purpose."""
    return [run for run in all_runs() if all(step.messages for step in run.steps)]


def actions(step: Step) -> list[dict[str, Any]]:
    return [] if step.error and not step.results else json.loads(step.response)["action"]


def meant(step: Step) -> list[tuple[str, ...]]:
    """The actions of a step, with the elements' texts instead of indices."""
    found = []
    for action in actions(step):
        ((name, params),) = action.items()
        params = dict(params)
        if "index" in params:
            element = next(one for one in step.observation.elements if one.index == params["index"])
            params["index"] = element.text or element.attributes.get("aria-label", "")
        found.append((name, *(f"{key}={value}" for key, value in params.items())))
    return found


def place(observation: Observation) -> str:
    parts = urlsplit(observation.url)
    return parts.netloc + parts.path


def overlap(one: Observation, other: Observation) -> float:
    left, right = (
        collections.Counter((element.tag, element.text) for element in observation.elements)
        for observation in (one, other)
    )
    return (left & right).total() / (left | right).total()


def test_categories_are_the_papers():
    recipe = (
        "unverifiable_evidence endpoint_incomplete access_obstruction ui_navigation runtime_evaluation "
        "constraint_mismatch filter_context datetime_availability target_discovery extraction_omission "
        "login_payment_boundary"
    )
    assert list(CATEGORIES) == recipe.split()


def test_generator_imports_only_the_records():
    for path in sorted(Path(__file__).with_name("planted").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                package, _, inside = name.partition(".")
                assert package != "collection", f"{path}: {name}"
                assert package != "rmsweb_jax" or inside.startswith("records."), f"{path}: {name}"


@every_category
def test_same_seed_same_pair(category: str):
    assert planted_pair(category, 3) == pairs(category)[3]
    assert len({pair.success.task.objective for pair in pairs(category)}) > len(SEEDS) // 3


def test_pairs_do_not_depend_on_the_process():
    script = (
        "import hashlib\nfrom tests.mining.planted import *\n"
        "pairs = [planted_pair(name, 5) for name in CATEGORIES] + [unplanted_pair(5)]\n"
        "print(hashlib.sha256(repr(pairs).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_records_are_complete_and_read_back():
    for run in all_runs():
        text = run.model_dump_json()
        assert Trajectory.model_validate_json(text) == run
        assert [step.number for step in run.steps] == list(range(1, len(run.steps) + 1))
        assert 4 <= len(run.steps) <= 25


def test_pages_and_chats_show_the_elements_text():
    for run in sound_runs():
        for step in run.steps:
            seen = step.observation
            indexed = [element for element in seen.elements if element.index is not None]
            assert [element.index for element in indexed] == list(range(1, len(indexed) + 1))
            shown = re.findall(r"^\[(\d+)\]<([\w-]+)", seen.page_text, re.MULTILINE)
            assert shown == [(str(element.index), element.tag) for element in indexed]
            system, user = step.messages
            assert (system.role, user.role) == ("system", "user")
            assert seen.page_text in user.text and run.task.objective in user.text
            assert record_images(user) == [seen.screenshot]
            assert f"{len(indexed)} interactive" in user.text
            earlier = [past for past in run.steps if past.number < step.number]
            assert [int(number) for number in re.findall(r"^<step_(\d+)>", user.text, re.MULTILINE)] == [
                past.number for past in earlier
            ]
            for past in earlier:
                assert all(result.text in user.text for result in past.results)


def test_replies_use_the_interface():
    for run in sound_runs():
        for step in run.steps:
            if step.error.startswith("Unusable"):
                assert not step.results
                continue
            reply = json.loads(step.response)
            assert list(reply)[-4:] == ["evaluation_previous_goal", "memory", "next_goal", "action"]
            present = {element.index for element in step.observation.elements}
            for action in reply["action"]:
                ((name, params),) = action.items()
                assert list(params) == PARAMETERS[name]
                assert params.get("index") is None or params["index"] in present
            if step.results:
                assert [result.action for result in step.results] == [
                    next(iter(action)) for action in reply["action"][: len(step.results)]
                ]


def test_pages_change_exactly_when_results_say_so():
    for run in sound_runs():
        for step, following in itertools.pairwise(run.steps):
            moved = step.observation.fingerprint != following.observation.fingerprint
            changed = [result.action for result in step.results if result.changed]
            assert moved == bool([name for name in changed if name != "write_file"]), (
                run.trajectory_id,
                step.number,
            )


def test_outcomes_fit_the_last_step():
    for run in sound_runs():
        last = run.steps[-1]
        ends = actions(last)[-1].get("done") if actions(last) else None
        assert not any("done" in action for step in run.steps[:-1] for action in actions(step))
        assert run.declared_success == (ends["success"] if ends else None)
        assert run.final_text == (ends["text"] if ends else "")
        assert (run.outcome in ("done", "captcha", "blocked")) or ends is None
        assert run.success <= bool(run.declared_success)
        limits = {int(limit) for limit in re.findall(r"Step \d+ of (\d+)", last.messages[-1].text)}
        assert limits == {len(run.steps) if run.outcome == "max_steps" else 30}


@every_category
def test_planted_states_are_aligned_and_decided_differently(category: str):
    for pair in pairs(category):
        assert pair.category == category and pair.success.task == pair.localization.task
        assert pair.success.success and not pair.localization.success
        plus = pair.success.steps[pair.success_step - 1]
        minus = pair.localization.steps[pair.localization_step - 1]
        assert place(plus.observation) == place(minus.observation)
        assert overlap(plus.observation, minus.observation) > 0.6
        assert meant(plus) != meant(minus)
        assert plus.results and (plus.results[-1].changed or plus.results[-1].output)


@every_category
def test_mistakes_are_never_last_and_never_the_decision(category: str):
    for pair in pairs(category):
        plus = pair.success.steps[pair.success_step - 1]
        accepted = pair.acceptable_localization_steps
        assert pair.localization_step in accepted and list(accepted) == sorted(set(accepted))
        assert accepted[0] >= 1 and accepted[-1] < len(pair.localization.steps)
        assert 1 <= pair.success_step < len(pair.success.steps)
        for number in accepted:
            step = pair.localization.steps[number - 1]
            assert place(step.observation).split("/")[0] == place(plus.observation).split("/")[0]
            assert meant(step) != meant(plus)
        # What the success decided is not done by the localization run later on, at that place.
        for step in pair.localization.steps[accepted[0] - 1 :]:
            assert place(step.observation) != place(plus.observation) or meant(step) != meant(plus)


@every_category
def test_success_decides_once(category: str):
    for pair in pairs(category):
        plus = pair.success.steps[pair.success_step - 1]
        same = [
            step.number
            for step in pair.success.steps
            if place(step.observation) == place(plus.observation) and meant(step) == meant(plus)
        ]
        assert same == [pair.success_step]


@every_category
def test_both_runs_have_made_the_same_choices_before(category: str):
    """In lists, in any order: what is set on the page at the divergence is the same."""

    def chosen(run: Trajectory, until: int) -> collections.Counter[tuple[str, ...]]:
        earlier = itertools.chain(*map(meant, run.steps[: until - 1]))
        return collections.Counter(act for act in earlier if act[0] == "select_dropdown_option")

    for pair in pairs(category):
        first = pair.acceptable_localization_steps[0]
        assert chosen(pair.success, pair.success_step) == chosen(pair.localization, first)


def test_lengths_and_stories_vary():
    for category in CATEGORIES:
        lengths = {(len(pair.success.steps), len(pair.localization.steps)) for pair in pairs(category)}
        assert len(lengths) > 3 and any(one != other for one, other in lengths)
    notes = {pair.note for category in CATEGORIES for pair in pairs(category)}
    assert len(notes) > 20
    assert len({run.task.site for run in all_runs()}) >= 12


def test_chosen_things_keep_or_break_the_limits():
    for pair in pairs("constraint_mismatch"):
        most, least = (
            int(re.findall(r"at \w+ (\d+)", line)[0]) for line in pair.success.task.constraints[:2]
        )
        kept = []
        for run, number in ((pair.success, pair.success_step), (pair.localization, pair.localization_step)):
            step = run.steps[number - 1]
            texts = [one.text for one in step.observation.elements if one.index is None]
            name = meant(step)[0][1].removeprefix("index=")
            at = texts.index(name)
            price, value = (
                int(re.findall(r" (\d+) | (\d+) ", f" {text} ")[0][0]) for text in texts[at + 1 : at + 3]
            )
            kept.append(price <= most and value >= least)
        assert kept == [True, False]


def test_unset_controls_stay_unset():
    """The pages of the localization runs contradict their claims."""
    for pair in pairs("filter_context"):
        pages = [step.observation.page_text for step in pair.localization.steps]
        assert not any("Filter active" in page for page in pages)
        assert "active" in pair.localization.final_text
        assert any("Filter active" in step.observation.page_text for step in pair.success.steps)
    for pair in pairs("datetime_availability"):
        day = pair.success.task.constraints[0].split(": ")[1]
        assert not any(day in step.observation.page_text for step in pair.localization.steps)
        assert any(f"Available on {day}: yes" in step.observation.page_text for step in pair.success.steps)


def test_unplanted_pairs_name_nothing():
    assert {pair.note for pair in unplanted()} == set(KINDS)
    for seed, pair in enumerate(unplanted()):
        assert (pair.category, pair.success_step, pair.localization_step) == (None, 0, 0)
        assert pair.acceptable_localization_steps == () and pair.success.success
        assert pair.localization.success == (pair.note == "longer")
        assert unplanted_pair(seed) == pair


def acts(run: Trajectory) -> list[list[tuple[str, ...]]]:
    return [meant(step) for step in run.steps]


def test_unplanted_pairs_hold_no_decision():
    for pair in unplanted():
        success, other = pair.success, pair.localization
        busy = (
            [[act for act in step if act[0] not in PASSIVE] for step in acts(other)]
            if pair.note != "broken"
            else []
        )
        busy = [step for step in busy if step]
        if pair.note in ("judged", "passive", "longer"):
            assert busy == acts(success)
        elif pair.note == "search":
            names = {act[0] for run in (success, other) for step in acts(run)[:-1] for act in step}
            assert names == {"search_engine"}
        elif pair.note == "apart":
            hosts = [
                {urlsplit(step.observation.url).netloc for step in run.steps} for run in (success, other)
            ]
            assert not hosts[0] & hosts[1]
            each = itertools.product(success.steps, other.steps)
            assert max(overlap(one.observation, two.observation) for one, two in each) < 0.2
        elif pair.note == "syntactic":
            plain = [
                [
                    [" ".join(" ".join(act).lower().split()).replace("= ", "=") for act in step]
                    for step in acts(run)
                ]
                for run in (success, other)
            ]
            assert plain[0] == plain[1] and acts(success) != acts(other)
        else:
            assert pair.note == "broken"
            assert not any(
                step.messages or step.response or step.observation.elements for step in other.steps
            )


def test_pool_is_canonical_and_half_fails(tmp_path: Path):
    manifest = write_pool(tmp_path, tasks=11, runs=4, steps=12, elements=120, seed=1)
    runs = list(read_dataset(tmp_path, Trajectory))
    assert len(runs) == manifest.records == 44
    texts = list(pool_json(tasks=11, runs=4, steps=12, elements=120, seed=1))
    assert runs == [Trajectory.model_validate_json(text) for text in texts]
    assert len({run.trajectory_id for run in runs}) == 44 and len({run.task.task_id for run in runs}) == 11
    assert sum(run.success for run in runs) == 22
    assert 10 <= sum(len(run.steps) for run in runs) / len(runs) <= 16
    images = ImageStore(tmp_path)
    assert all(name in images for run in runs for name in record_images(run))


def test_pool_pages_have_about_the_size_asked_for():
    for elements in (60, 300):
        texts = pool_json(tasks=11, runs=2, steps=20, elements=elements, seed=2)
        sizes = [
            len(step.observation.elements)
            for text in texts
            for step in Trajectory.model_validate_json(text).steps
        ]
        assert 0.75 < sum(sizes) / len(sizes) / elements < 1.3
