import dataclasses
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collection.mining.audit import to_prompt
from collection.mining.balance import BalanceConfig, balance
from collection.mining.branch import branch
from collection.mining.labels import Label
from collection.mining.pairs import RunPair, by_task, run_pairs
from collection.mining.pipeline import mine, summarize
from collection.mining.select import GATES, Case, MiningConfig, best_case, divergence
from configs.mine import get_config
from experiments.mine import explained, main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, Message, RlPrompt, TextPart
from rmsweb_jax.records.shards import read_dataset, write_dataset
from tests.collection.trajectories import CLICK, DONE, SCROLL, SHOT, TYPE, TYPE_PASSWORD, step, trajectory

CONFIG = MiningConfig()
MEMORIES = ("", "typed name", "typed password", "pressed login")
WRONG = {"input_text": {"index": 2, "text": "mallory-secret"}}
WRONG_BUTTON = {"click_element_by_index": {"index": 2}}
OBJECTIVE = "Log in as ann with xy7."


def steps(*actions, **options):
    """Steps of a form that looks the same until it is sent; memory says what was done."""
    return tuple(
        step(number, action, memory=memory, **options)
        for number, (action, memory) in enumerate(zip(actions, MEMORIES, strict=False), start=1)
    )


def after(number, memory="pressed login"):
    return step(number, DONE, page="START", elements=(("div", "START"),), memory=memory)


def success(**changes):
    return trajectory(
        *steps(TYPE, TYPE_PASSWORD, CLICK), after(4), **{"objective": OBJECTIVE, "actor": "teacher"} | changes
    )


def failure(*items, **changes):
    claimed = True if changes.get("outcome", "done") == "done" else None
    values = {"success": False, "actor": "sft", "declared_success": claimed, "objective": OBJECTIVE} | changes
    return trajectory(*items, **values)


def case_of(*runs) -> Case:
    case = best_case(run_pairs(next(iter(by_task(runs).values()))), CONFIG)
    assert case is not None
    return case


WRONG_TEXT = failure(*steps(TYPE, WRONG, CLICK), after(4))
PREMATURE = failure(*steps(TYPE, DONE))
SKIPPED = failure(*steps(TYPE, CLICK), after(3))
INVALID = failure(
    *steps(TYPE), *(step(n, error="no JSON", response="Sure!") for n in (2, 3)), outcome="failures"
)
WANDERS = failure(
    *steps(TYPE), *(step(n, SCROLL, memory="typed name") for n in (2, 3, 4)), outcome="max_steps"
)


@pytest.mark.parametrize(
    ("localization", "category", "at"),
    [
        (WRONG_TEXT, "constraint_mismatch", (1, 1)),
        (PREMATURE, "endpoint_incomplete", (1, 1)),
        (SKIPPED, "endpoint_incomplete", (1, 1)),
        (WANDERS, "target_discovery", (1, 1)),
    ],
)
def test_the_divergence_is_found(localization, category, at):
    case = case_of(success(), localization)
    assert case.decision == "kept", case.scores
    assert case.label.category == category
    assert (case.success_at, case.localization_at) == at
    assert to_prompt(case).target == (
        '{"evaluation_previous_goal":"Success","memory":"typed name","next_goal":"go on",'
        '"action":[{"input_text":{"index":2,"text":"xy7"}}]}'
    )


def test_an_unusable_reply_is_a_divergence():
    case = case_of(success(), INVALID)
    assert (case.decision, case.label.category) == ("kept", "runtime_evaluation")
    assert case.localization_at in (1, 2)
    assert case.label.confidence >= 0.85


def test_one_step_tasks_are_mined():
    ours = trajectory(*steps(CLICK), after(2), objective="Click Login.")
    theirs = failure(*steps(WRONG_BUTTON), after(2), objective="Click Login.")
    case = case_of(ours, theirs)
    assert (case.decision, case.success_at, case.localization_at) == ("kept", 0, 0)


def test_a_detour_is_mined_from_two_successes():
    longer = trajectory(
        step(1, SCROLL, changed=False),
        *steps(TYPE, TYPE_PASSWORD, CLICK),
        after(5),
        objective=OBJECTIVE,
        attempt=2,
    )
    case = case_of(success(), longer)
    assert (case.pair.kind, case.decision, case.label.category) == ("secondary", "kept", "target_discovery")
    assert (case.success_at, case.localization_at) == (0, 0)


def test_pairs():
    short, long = success(), success(attempt=2)
    longer = trajectory(*steps(TYPE, TYPE, TYPE_PASSWORD, CLICK), after(5), attempt=3)
    crashed = failure(outcome="crashed")
    pairs = list(run_pairs([branch(run) for run in (longer, long, short, PREMATURE, crashed)]))
    assert Counter(pair.kind for pair in pairs) == {"primary": 3, "secondary": 1}
    assert pairs[-1].localization.run.trajectory_id == longer.trajectory_id
    assert not list(run_pairs([branch(PREMATURE)]))


def test_a_run_in_two_pools_counts_once():
    assert [len(runs) for runs in by_task([success(), PREMATURE, success()]).values()] == [2]


OTHER_PAGE = {"url": "https://else.test/", "elements": (("p", "else"),), "page": "else"}


@pytest.mark.parametrize(
    ("ours", "theirs", "decision"),
    [
        (success(), failure(*steps(TYPE, TYPE_PASSWORD, CLICK), outcome="timeout"), "category_score"),
        (trajectory(*steps(CLICK), after(2)), failure(*steps(CLICK)), "no_eligible_pair"),
        (trajectory(after(1)), failure(*steps(CLICK)), "no_eligible_pair"),
        (success(), failure(step(1, DONE, memory="qqq", **OTHER_PAGE)), "state_score"),
        (trajectory(*steps(SCROLL), after(2)), failure(*steps(DONE)), "category_score"),
        (
            trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, screenshot=None), after(4), objective=OBJECTIVE),
            failure(*steps(TYPE, DONE, screenshot=None)),
            "no_screenshot",
        ),
    ],
)
def test_gates(ours, theirs, decision):
    case = case_of(ours, theirs)
    assert case.decision == decision, (case, case.scores)
    mined = mine([ours, theirs], CONFIG, BalanceConfig())
    assert not mined.prompts
    assert [audit.decision for audit in mined.audits] == [decision]


def test_total_gate():
    strict = dataclasses.replace(CONFIG, min_total=1.01)
    case = divergence(RunPair("primary", branch(success()), branch(PREMATURE)), strict)
    assert case.decision == "total_score"
    assert case.scores["total"] < 1.01


def test_one_screenshot_is_enough():
    blind = trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, screenshot=None), after(4), objective=OBJECTIVE)
    assert case_of(blind, PREMATURE).decision == "kept"


def test_the_success_side_must_make_progress():
    still = trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, changed=False), after(4), objective=OBJECTIVE)
    assert not mine([still, PREMATURE], CONFIG, BalanceConfig()).prompts
    loose = dataclasses.replace(CONFIG, min_category=0.0, min_total=0.0)
    assert divergence(RunPair("primary", branch(still), branch(PREMATURE)), loose).decision == "no_progress"


def test_a_state_with_guidance_in_it_is_never_mined():
    told = []
    for item in success().steps:
        text = TextPart(text="<reflection_guidance>Press Login.</reflection_guidance>")
        told.append(
            item.model_copy(update={"messages": (*item.messages, Message(role="user", content=(text,)))})
        )
    case = case_of(success().model_copy(update={"steps": tuple(told)}), PREMATURE)
    assert case.decision == "invalid_model_io"


def test_ties_go_to_the_later_step():
    same = [step(number, TYPE, changed=False) for number in (1, 2, 3, 4)]
    ours = branch(trajectory(*[step(number, CLICK) for number in (1, 2)], after(3)))
    theirs = branch(failure(*same[:3]))
    case = divergence(
        RunPair("primary", ours, theirs), dataclasses.replace(CONFIG, state_weight=0.0, min_total=0.0)
    )
    assert (case.success_at, case.localization_at) == (1, 2)


def test_weights_add_up():
    scores = case_of(success(), PREMATURE).scores
    total = 0.5 * scores["state"] + 0.25 * scores["action"] + 0.25 * scores["category"]
    assert scores["total"] == pytest.approx(total, abs=1e-5)
    state = 0.3 * scores["url"] + 0.4 * scores["dom"] + 0.15 * scores["memory"] + 0.15 * scores["progress"]
    assert scores["state"] == pytest.approx(state, abs=1e-5)


def test_tasks_without_contrast_are_audited():
    alone = success(task_id="miniwob/a/1")
    hopeless = failure(*steps(DONE), task_id="miniwob/b/1")
    decisions = {
        audit.task_id: audit.decision for audit in mine([alone, hopeless], CONFIG, BalanceConfig()).audits
    }
    assert decisions == {"miniwob/a/1": "no_contrast", "miniwob/b/1": "no_success"}


# Balance.


def kept_case(
    task_id: str, category="endpoint_incomplete", total=0.8, confidence=0.9, in_category=0.7
) -> Case:
    run = branch(trajectory(step(1, CLICK), task_id=task_id))
    label = Label(category, confidence, "rule", {})
    return Case(RunPair("primary", run, run), label, "kept", 0, 0, {"total": total, "category": in_category})


def kept_of(cases, decisions):
    return [case for case in cases if decisions[case.pair.success.run.task.task_id] == "kept"]


def test_runtime_gate_is_stricter():
    cases = [
        kept_case("miniwob/a/1", "runtime_evaluation", confidence=0.84),
        kept_case("miniwob/b/1", "runtime_evaluation", in_category=0.59),
        kept_case("miniwob/c/1", "runtime_evaluation", confidence=0.85, in_category=0.60),
        kept_case("miniwob/d/1", "ui_navigation", confidence=0.3, in_category=0.45),
    ]
    assert list(balance(cases, BalanceConfig()).values()) == ["runtime_gate", "runtime_gate", "kept", "kept"]


def test_caps_hold_in_the_final_corpus():
    cases = [kept_case(f"miniwob/big/{number}", total=0.7 + number / 1000) for number in range(60)]
    cases += [kept_case(f"miniwob/s{number}/1") for number in range(14)]
    cases += [kept_case(f"miniwob/o{number}/1", "access_obstruction") for number in range(9)]
    kept = kept_of(cases, balance(cases, BalanceConfig()))
    sites = Counter(case.pair.success.run.task.site for case in kept)
    assert sites["big"] == 6  # 6 of 14 + 6 + 1 or 2; 7 would be more than 30 %
    assert sites["big"] <= 0.3 * len(kept)
    assert sum(case.label.category == "access_obstruction" for case in kept) == 2 <= 0.1 * len(kept) + 1e-9
    # The best of the big site are the ones that stay.
    best = {f"miniwob/big/{number}" for number in range(54, 60)}
    assert best <= {case.pair.success.run.task.task_id for case in kept}


def test_few_sites_share_equally():
    cases = [kept_case(f"miniwob/a/{number}") for number in range(6)] + [kept_case("miniwob/b/1")]
    kept = kept_of(cases, balance(cases, BalanceConfig()))
    assert Counter(case.pair.success.run.task.site for case in kept) == {"a": 1, "b": 1}


def test_caps_do_not_cut_off_a_category():
    cases = [kept_case(f"miniwob/a/{number}", total=0.9) for number in range(20)]
    cases += [kept_case("miniwob/a/99", "filter_context", total=0.63)]
    cases += [kept_case(f"miniwob/s{number}/1") for number in range(7)]
    categories = {case.label.category for case in kept_of(cases, balance(cases, BalanceConfig()))}
    assert "filter_context" in categories


CASES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["endpoint_incomplete", "access_obstruction", "runtime_evaluation"]),
        st.sampled_from([0.65, 0.7, 0.8]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(CASES, st.randoms(use_true_random=False))
def test_balance_is_independent_of_order_and_keeps_its_caps(rows, order: random.Random):
    cases = [
        kept_case(f"miniwob/{site}/{at}", category, total) for at, (site, category, total) in enumerate(rows)
    ]
    decisions = balance(cases, BalanceConfig())
    order.shuffle(cases)
    assert balance(cases, BalanceConfig()) == decisions
    kept = kept_of(cases, decisions)
    sites = Counter(case.pair.success.run.task.site for case in kept)
    assert all(count <= max(1, max(0.3, 1 / len(sites)) * len(kept) + 1e-6) for count in sites.values())
    obstructed = sum(case.label.category == "access_obstruction" for case in kept)
    assert obstructed <= 0.1 * len(kept) + 1e-6


# The whole stage.

GUIDANCE = "Do not finish before the password is typed"
TOLD = success(attempt=2).model_copy(update={"task": success().task.model_copy(update={"category": "Other"})})
TEACHER = [success(), TOLD, PREMATURE.model_copy(update={"trajectory_id": "premature", "actor": "teacher"})]
POLICY = [WRONG_TEXT, success(task_id="miniwob/login-user/2", actor="sft")]


@pytest.fixture
def pools(tmp_path) -> str:
    for name, runs in (("collect", TEACHER), ("collect_policy", POLICY)):
        ImageStore(tmp_path / name).put(b"png")
        write_dataset(tmp_path / name, runs, "trajectories")
    (tmp_path / "collect/reflections.jsonl").write_text(json.dumps({"guidance": GUIDANCE}))
    return f"{tmp_path / 'collect'},{tmp_path / 'collect_policy'}"


def run_stage(tmp_path: Path, pools: str):
    config = get_config("demo")
    config.pools = pools
    workdir = tmp_path / "mine"
    workdir.mkdir()
    main(config, workdir)
    return config, workdir


def test_experiment(tmp_path, pools):
    config, workdir = run_stage(tmp_path, pools)
    prompts = list(read_dataset(workdir / "prompts", RlPrompt))
    audits = list(read_dataset(workdir / "audit", AuditPair))
    assert [prompt.task_id for prompt in prompts] == ["miniwob/login-user/1"]
    assert [audit.decision for audit in audits] == ["kept", "no_contrast"]
    assert ImageStore(workdir / "prompts").get(SHOT) == ImageStore(workdir / "audit").get(SHOT) == b"png"
    report = json.loads((workdir / "report.json").read_text())
    assert (report["stage"], report["tasks"], report["prompts"]) == ("mine", 2, 1)
    assert {name: count for name, count in report["decisions"].items() if count} == {
        "no_contrast": 1,
        "kept": 1,
    }
    assert report["categories"][prompts[0].category] == {
        "prompts": 1,
        "share": 100.0,
        "paper_share": {"constraint_mismatch": 6.02, "endpoint_incomplete": 18.73}[prompts[0].category],
    }
    text = explained(config, workdir, "miniwob/login-user/1")
    assert "decision      kept" in text
    assert OBJECTIVE in text
    assert "no_contrast" in explained(config, workdir, "miniwob/login-user/2")
    with pytest.raises(UserError, match="no task 'nope'"):
        explained(config, workdir, "nope")


def test_prompts_hold_nothing_of_the_failed_side_or_of_reflections(tmp_path, pools):
    _, workdir = run_stage(tmp_path, pools)
    records = [prompt.model_dump_json() for prompt in read_dataset(workdir / "prompts", RlPrompt)]
    audits = [audit.model_dump_json() for audit in read_dataset(workdir / "audit", AuditPair)]
    failed = [item.response for run in (WRONG_TEXT, PREMATURE) for item in run.steps]
    won = {item.response for item in success().steps}
    assert records
    for text in [GUIDANCE, "reflection_guidance", "mallory-secret", "#sft-", "premature"]:
        assert not any(text in record for record in records)
    for response in set(failed) - won:
        assert not any(json.dumps(response) in record for record in records)
    # The audit does hold the other side.
    assert any("localization_response" in audit and "sft" in audit for audit in audits)


def test_nothing_mined_is_a_user_error(tmp_path):
    write_dataset(tmp_path / "collect", [success()], "trajectories")
    with pytest.raises(UserError, match=r"no prompt could be mined \(no_contrast 1\)"):
        run_stage(tmp_path, str(tmp_path / "collect"))
    assert not (tmp_path / "mine/report.json").exists()


def test_no_pools_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"config.pools is empty"):
        run_stage(tmp_path, " , ")


def test_summary_counts_every_task_once():
    mined = mine([*TEACHER, *POLICY], CONFIG, BalanceConfig())
    summary = summarize(mined)
    assert sum(summary["decisions"].values()) == summary["tasks"] == 2
    assert set(GATES) <= summary["decisions"].keys()
    assert summary["label_sources"] == {"rule": 1}
