"""Prompts hold nothing of the run that failed, nor of reflections; the audit shows both sides."""

import dataclasses
import functools
import json

import pytest

from collection.mining.balance import BalanceConfig
from collection.mining.mine import mine_runs
from collection.mining.score import MiningConfig
from collection.mining.taxonomy import TAXONOMY
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Trajectory
from tests.mining.case_files import Case, load_cases
from tests.mining.disk_pools import mine_pools_at, put_pool
from tests.mining.runs import failure_of, success_of
from tests.trajectories import CLICK, DONE, TYPE, TYPE_PASSWORD, step

CHARS = 12
GUIDANCE = "Before you finish, open the linked source document and compare every figure"


@functools.cache
def pairs() -> dict[str, Case]:
    """Three pairs of each category by task."""
    # The failed run's actor must not be in a prompt, either.
    return {
        case.success.task.task_id: dataclasses.replace(
            case,
            localization=case.localization.model_copy(
                update={"actor": "policy-r2", "trajectory_id": f"{case.success.task.task_id}#policy-r2-2"}
            ),
        )
        for case in load_cases("held_out")
    }


@pytest.fixture(scope="module")
def mined() -> tuple[dict[str, RlPrompt], dict[str, AuditPair]]:
    runs = [run for pair in pairs().values() for run in (pair.success, pair.localization)]
    result = mine_runs(runs, MiningConfig(), BalanceConfig(1.0, 1.0, 0.0, 0.0))
    audits = {one.task_id: one for one in result.audits}
    assert audits.keys() == pairs().keys() and len(audits) == 3 * len(TAXONOMY)
    return {one.task_id: one for one in result.prompts}, audits


def strings(value: object) -> list[str]:
    """Every text in a record, however deep."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def pieces(texts: list[str]) -> set[str]:
    """All substrings of `CHARS` characters."""
    return {text[at : at + CHARS] for text in texts for at in range(len(text) - CHARS + 1)}


def replies(run: Trajectory) -> list[str]:
    """Replies as they were given, and the texts inside of them."""
    inside = [text for step in run.steps if step.response.startswith("{") for text in _texts(step.response)]
    return [*(step.response for step in run.steps), *inside]


def _texts(response: str) -> list[str]:
    try:
        return strings(json.loads(response))
    except json.JSONDecodeError:
        return []


def said_and_seen(run: Trajectory) -> list[str]:
    """All texts of a run's record, those inside of replies included."""
    return [*strings(run.model_dump(mode="json")), *replies(run)]


def test_nothing_of_the_failed_run_is_in_a_prompt_and_the_audit_has_it(mined):
    prompts, audits = mined
    assert len(prompts) >= 25
    for name, prompt in prompts.items():
        pair, audit = pairs()[name], audits[name]
        own = pieces(said_and_seen(pair.localization)) - pieces(said_and_seen(pair.success))
        assert own & pieces(replies(pair.localization)), "a pair whose runs say the same shows nothing"
        # The target is rendered anew: compared with the texts in it, not with its spaces and quotes.
        held = pieces([*strings(prompt.model_dump(mode="json", exclude={"target"})), *_texts(prompt.target)])
        assert not own & held, name
        assert "policy-r2" not in prompt.model_dump_json()
        assert prompt.model_dump().keys() == {
            "prompt_id", "task_id", "site", "category", "messages", "target", "window"
        }  # fmt: skip
        assert audit.localization_id == pair.localization.trajectory_id
        failed = pair.localization.steps[(audit.localization_step or 0) - 1]
        assert audit.localization_response == failed.response


def test_prompt_and_reply_are_the_successful_steps_own(mined):
    prompts, audits = mined
    for name, prompt in prompts.items():
        step = pairs()[name].success.steps[(audits[name].success_step or 0) - 1]
        assert prompt.messages == step.messages
        assert json.loads(prompt.target)["action"] == json.loads(step.response)["action"]


def test_a_step_that_quotes_its_guidance_is_not_mined(tmp_path):
    """The attempts of two tasks have guidance; one says it at every step, and the other does as it says.

    Before their attempts the site has refused two, on which nothing was reflected.
    """
    runs = []
    for number, memory in enumerate((GUIDANCE, "typed")):
        actions = enumerate((TYPE, TYPE_PASSWORD, CLICK, DONE), start=1)
        steps = [step(at, action, memory=memory) for at, action in actions]
        played = success_of(number, attempt=4)
        runs += [played.model_copy(update={"steps": tuple(steps)}), failure_of(number)]
    pool = put_pool(tmp_path / "pool", runs)
    write_dataset(pool, runs, "trajectories", {"reflections": 2})
    names = dict.fromkeys(run.task.task_id for run in runs)
    reflections = [{"task_id": name, "attempt": 1, "guidance": GUIDANCE} for name in names]
    (pool / "reflections.jsonl").write_text("\n".join(map(json.dumps, reflections)))
    mine_pools_at(tmp_path / "mine", pool)
    quoting, clean = names
    assert [one.task_id for one in read_dataset(tmp_path / "mine/prompts", RlPrompt)] == [clean]
    decisions = {one.task_id: one.decision for one in read_dataset(tmp_path / "mine/audit", AuditPair)}
    assert decisions == {quoting: "invalid_model_io", clean: "kept"}
