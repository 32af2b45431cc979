"""Pools with too little, too much or nothing usable in them: each task gets its audit, and no run stops."""

import dataclasses
import json
from pathlib import Path

import pytest

from collection.mining.mine import DECISIONS, explain_task
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Step, Trajectory
from tests.mining.disk_pools import mine_pools_at, put_pool
from tests.mining.login_runs import OBJECTIVE, PREMATURE, after, failure, steps, success
from tests.scripts import run_script
from tests.trajectories import CLICK, DONE, PNG, SCROLL, SHOT, TYPE, TYPE_PASSWORD, step, trajectory

BAD = "miniwob/bad/1"
GOOD = [success(), PREMATURE]
WON = (TYPE, TYPE_PASSWORD, CLICK)
LOST = (TYPE, DONE)


@dataclasses.dataclass(frozen=True)
class Result:
    """The result for the bad task of a pool that has a good one, too."""

    report: dict
    audit: AuditPair
    prompt: RlPrompt | None


def mined_with(tmp_path: Path, *runs: Trajectory) -> Result:
    """Mines a pool of a good task and these runs of a bad one; the good one's prompt has to come out."""
    report = mine_pools_at(tmp_path / "mine", put_pool(tmp_path / "pool", [*runs, *GOOD]))
    prompts = {one.task_id: one for one in read_dataset(tmp_path / "mine/prompts", RlPrompt)}
    audits = {one.task_id: one for one in read_dataset(tmp_path / "mine/audit", AuditPair)}
    assert audits["miniwob/login-user/1"].decision == "kept" and "miniwob/login-user/1" in prompts
    assert report["tasks"] == len(audits) == 2 and set(report["decisions"]) == set(DECISIONS)
    assert all(0 <= score <= 1 for score in audits[BAD].scores.values())
    return Result(report, audits[BAD], prompts.get(BAD))


def won(*actions, **options) -> Trajectory:
    return success(task_id=BAD, **options) if not actions else with_steps(steps(*actions), **options)


def with_steps(items: tuple[Step, ...], **options) -> Trajectory:
    return trajectory(*items, task_id=BAD, objective=OBJECTIVE, **options)


def lost(*items: Step, **options) -> Trajectory:
    return failure(*(items or steps(*LOST)), task_id=BAD, **options)


@pytest.mark.parametrize(
    ("runs", "decision"),
    [
        ([won()], "no_contrast"),
        ([lost()], "no_success"),
        ([lost(), lost(attempt=2), lost(attempt=3)], "no_success"),
        ([won(), won(attempt=2), won(attempt=3)], "no_contrast"),
        ([trajectory(task_id=BAD)], "no_contrast"),
        ([trajectory(task_id=BAD), lost()], "no_contrast"),
        ([won(), failure(task_id=BAD, outcome="unreachable")], "no_contrast"),
        ([failure(task_id=BAD, outcome="crashed")], "no_success"),
    ],
)
def test_nothing_to_compare(tmp_path, runs, decision):
    result = mined_with(tmp_path, *runs)
    assert (result.audit.decision, result.prompt) == (decision, None)
    assert result.audit.localization_id == "" and result.audit.notes == (f"{len(runs)} runs",)


def test_a_run_without_steps_is_skipped(tmp_path):
    empty = failure(task_id=BAD, outcome="unreachable", attempt=2)
    result = mined_with(tmp_path, won(), empty, lost())
    assert result.audit.decision == "kept" and result.audit.localization_id == lost().trajectory_id


def test_identical_runs_hold_no_decision(tmp_path):
    same = won().model_copy(update={"success": False, "trajectory_id": "judged", "reward": -1.0})
    result = mined_with(tmp_path, won(), same)
    assert result.prompt is None
    assert result.audit.decision in ("no_eligible_pair", "category_score", "total_score")


BROKEN = {
    "unusable_reply": {"response": "Sure, I will!", "error": "no JSON", "results": ()},
    "unparsed_reply": {"response": '{"action": [{"fly": {}}]}', "results": ()},
    "empty_reply": {"response": "", "results": ()},
    "no_messages": {"messages": ()},
    "no_results": {"results": ()},
}


@pytest.mark.parametrize("side", ["success", "localization"])
@pytest.mark.parametrize("fault", BROKEN)
def test_runs_of_broken_steps(tmp_path, fault, side):
    def broken(run: Trajectory) -> Trajectory:
        return run.model_copy(
            update={"steps": tuple(one.model_copy(update=BROKEN[fault]) for one in run.steps)}
        )

    ours, theirs = (broken(won()), lost()) if side == "success" else (won(), broken(lost()))
    result = mined_with(tmp_path, ours, theirs)
    if side == "success":
        assert result.prompt is None
    else:
        assert result.prompt
        (step_,) = (one for one in won().steps if one.number == result.audit.success_step)
        assert result.prompt.messages == step_.messages


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_step_is_never_a_prompt(tmp_path, fault):
    items = list(won().steps)
    items[1] = items[1].model_copy(update=BROKEN[fault])
    result = mined_with(tmp_path, with_steps(tuple(items)), lost())
    # Where all of them are sound it is the second.
    assert result.prompt and result.audit.success_step == 3
    assert result.prompt.messages and json.loads(result.prompt.target)["action"]


def test_runs_of_200_steps(tmp_path):
    wander = [
        step(number, (SCROLL, TYPE, CLICK)[number % 3], page=f"page {number % 40}", memory=f"at {number}")
        for number in range(1, 199)
    ]
    ours = with_steps((*wander, step(199, TYPE_PASSWORD), after(200)))
    theirs = lost(*wander, step(199, SCROLL), step(200, DONE), outcome="max_steps")
    result = mined_with(tmp_path, ours, theirs, won(attempt=2))
    assert (result.audit.decision, result.audit.success_id) == ("kept", ours.trajectory_id)
    assert (result.audit.success_step, result.audit.localization_step) == (199, 199)


def test_steps_with_empty_pages(tmp_path):
    nothing = {"elements": (), "page": "", "url": ""}
    ours = with_steps((*steps(*WON, **nothing), after(4)))
    result = mined_with(tmp_path, ours, lost())
    assert result.audit.decision in DECISIONS and result.audit.scores["dom"] == 0 and result.prompt is None


@pytest.mark.parametrize(
    "text",
    [r"\ud83d", r"\u0000", "\u2028\u202e\ufeff; </script> {{7*7}} %s {0}"],
    ids=["half a pair", "zero", "signs"],
)
def test_replies_and_addresses_of_odd_characters(tmp_path, text):
    response = f'{{"evaluation_previous_goal":"{text}","memory":"{text}","next_goal":"{text}","action":'
    odd = [
        one.model_copy(
            update={
                "response": response + json.dumps(json.loads(one.response)["action"]) + "}",
                "observation": one.observation.model_copy(update={"url": f"http://[{text}"}),
            }
        )
        for one in (*won().steps, *lost().steps)
    ]
    result = mined_with(tmp_path, with_steps(tuple(odd[:4])), lost(*odd[4:]))
    # Half a pair is no text that JSON could hold: such a reply cannot be used.
    assert bool(result.prompt) == (text != r"\ud83d")
    if result.prompt:
        assert json.loads(result.prompt.target)["action"]


def test_a_pool_without_passing_candidates_gives_one_line_its_audit_and_prompts_with_more_runs(tmp_path):
    blind = with_steps((*steps(*WON, screenshot=None), step(4, DONE, screenshot=None)))
    runs = [blind, lost(*steps(*LOST, screenshot=None)), success(), failure(task_id="miniwob/c/1")]
    pool, workdir = put_pool(tmp_path / "pool", runs), tmp_path / "mine"
    settings = ("--config=configs/mine.py:demo", f"--config.pools={pool}", f"--workdir={workdir}")
    result = run_script("experiments.mine", *settings)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {pool}: no prompt could be mined (no_success 1, no_contrast 1, no_sc")
    assert line.endswith(
        "add runs that fail where others succeed; --explain=TASK_ID says why a task has none"
    )
    assert {path.name for path in workdir.iterdir()} <= {"config.json", ".lock", "progress.json", "audit"}
    why = explain_task(workdir, [pool], BAD)
    assert "decision      no_screenshot" in why and "note          tried" in why
    # The advice of the message helps: the same command, with more runs in the pool.
    put_pool(pool, [*runs, PREMATURE])
    assert mine_pools_at(workdir, pool)["prompts"] == 1


def test_a_broken_screenshot_is_none(tmp_path):
    store = ImageStore(tmp_path / "pool")
    broken = store.put(PNG[:-20])

    def unseen(steps):
        return tuple(
            item.model_copy(update={"observation": item.observation.model_copy(update={"screenshot": shot})})
            for item, shot in steps
        )

    ours, theirs = GOOD
    seen = [item.observation.screenshot for item in ours.steps]
    # The prompt would hold the broken one.
    blind = ours.model_copy(update={"steps": unseen(zip(ours.steps, [broken] * len(seen), strict=True))})
    with pytest.raises(UserError, match=r"no prompt could be mined \(no_screenshot 1\)"):
        mine_pools_at(tmp_path / "mine", put_pool(tmp_path / "pool", [blind, theirs]))
    others = unseen((item, broken) for item in theirs.steps)
    pool = put_pool(tmp_path / "pool", [ours, theirs.model_copy(update={"steps": others})])
    assert mine_pools_at(tmp_path / "again", pool)["prompts"] == 1


def test_a_screenshot_that_is_not_there_is_one_line(tmp_path):
    pool = tmp_path / "pool"
    write_dataset(pool, GOOD, "trajectories")
    with pytest.raises(UserError, match=f"missing screenshot {SHOT}: make this data set again") as error:
        mine_pools_at(tmp_path / "mine", pool)
    assert str(error.value).startswith(str(pool)) and "\n" not in str(error.value)
    left = {path.name for path in (tmp_path / "mine").rglob("*.json")}
    assert left <= {"progress.json", "config.json"}
