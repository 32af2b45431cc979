"""Why a run failed: on cases whose failure mode and step are known, and in the index."""

import pytest

from collection.corpus.lean import lean
from collection.viewer.index import EpisodeIndex, Query
from collection.viewer.why import UNCLEAR, Mined, Why, why
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.schema import AuditPair
from tests.mining.case_files import load_cases
from tests.mining.login_runs import INVALID, PREMATURE, SKIPPED, WANDERS, WRONG_TEXT, failure, steps, success
from tests.trajectories import CLICK, TYPE, step
from tests.viewer.serving import Now

OTHER = success()


def test_the_papers_contrasts_have_their_steps():
    cases = load_cases("paper")
    found = [why(lean(case.localization), lean(case.success)) for case in cases]
    assert [one.step for one in found] == [case.divergence[1] for case in cases if case.divergence]
    assert all(one.source == "cues" and "that one did here: " in one.what for one in found)


@pytest.mark.parametrize(("name", "paired", "alone"), [("tuned", 55, 41), ("held_out", 18, 14)])
def test_labelled_cases_are_named_as_often_as_cues_can(name, paired, alone):
    cases = load_cases(name)
    right = [
        sum(
            why(lean(case.localization), other and lean(other)).mode == case.category for case, other in pairs
        )
        for pairs in ([(case, case.success) for case in cases], [(case, None) for case in cases])
    ]
    assert right[0] >= paired and right[1] >= alone


@pytest.mark.parametrize(
    ("run", "mode", "number", "what"),
    [
        (INVALID, "runtime_evaluation", 2, "its reply could not be used"),
        (WANDERS, UNCLEAR, 3, "it does what the step before did, on the same page"),
        (PREMATURE, "constraint_mismatch", 2, "it ends the episode, and the task was not solved"),
        (
            failure(step(1, TYPE), step(2, CLICK, failed=True), outcome="max_steps"),
            "ui_navigation",
            2,
            "its actions failed",
        ),
        (
            failure(*steps(TYPE), outcome="crashed"),
            "runtime_evaluation",
            1,
            "the episode ended here: crashed",
        ),
        (failure(*steps(TYPE), outcome="max_steps"), UNCLEAR, 0, "no step stands out"),
        (failure(outcome="unreachable"), "access_obstruction", 0, "no step stands out"),
    ],
)
def test_a_run_alone_shows_its_first_fault(run, mode, number, what):
    assert why(lean(run)) == Why(mode, number, "alone", what)


@pytest.mark.parametrize(
    ("run", "did"), [(WRONG_TEXT, "xy7"), (PREMATURE, "xy7"), (SKIPPED, "xy7"), (INVALID, "button Login")]
)
def test_next_to_a_success_the_step_is_where_the_runs_part(run, did):
    found = why(lean(run), lean(success()))
    assert (found.step, found.source, found.success) == (2, "cues", success().trajectory_id)
    assert did in found.what.partition("that one did here: ")[2]


@pytest.mark.parametrize(("named_by", "source"), [("rule", "rule"), ("judge", "judge"), ("review", "judge")])
def test_a_mined_pair_comes_first(named_by, source):
    found = why(lean(INVALID), lean(success()), Mined("filter_context", named_by, 1, 3))
    assert (found.mode, found.step, found.source) == ("filter_context", 1, source)
    assert found.what.endswith("that one did here: click_element_by_index {'index': 'button Login'}")


# --- In the index ---


def audit(decision):
    return AuditPair(
        task_id=SKIPPED.task.task_id,
        site="login-user",
        success_id=OTHER.trajectory_id,
        localization_id=SKIPPED.trajectory_id,
        category="filter_context",
        label_confidence=0.9,
        label_source="judge",
        decision=decision,
        success_step=2,
        localization_step=1,
    )


def test_a_failure_is_explained_again_when_a_success_or_a_mined_pair_comes(tmp_path):
    write_dataset(tmp_path / "runs/policy", [SKIPPED], "trajectories")
    index = EpisodeIndex(tmp_path / "index.sqlite", Now([tmp_path / "runs"]))

    def explained():
        index.refresh()
        row = index.row(SKIPPED.trajectory_id, "runs/policy")
        return row["source"], row["failure_mode"], row["bad_step"], row["success"], row["pair"]

    # The record alone; the pages show no fault before its end.
    assert explained() == ("alone", "constraint_mismatch", 3, "", "")
    write_dataset(tmp_path / "runs/teacher", [OTHER], "trajectories")
    paired = explained()
    assert paired == ("cues", "constraint_mismatch", 2, OTHER.trajectory_id, "")
    write_dataset(tmp_path / "runs/mine/audit", [audit("replay")], "audit_pairs")
    # Its replay says that the decision was not critical.
    assert explained() == paired
    write_dataset(tmp_path / "runs/mine2/audit", [audit("kept")], "audit_pairs")
    assert explained() == ("judge", "filter_context", 1, OTHER.trajectory_id, "runs/mine2/audit")
    assert index.failure_modes(["runs/policy", "runs/teacher"]) == {"filter_context": {"runs/policy": 1}}
    (tmp_path / "runs/mine2/audit/manifest.json").unlink()
    assert explained() == paired


def test_failures_for_which_a_request_has_no_time_are_left_to_the_next(tmp_path):
    runs = [failure(*steps(TYPE, CLICK), task_id=f"miniwob/login-user/{number}") for number in range(3)]
    write_dataset(tmp_path / "runs/policy", runs, "trajectories")
    index = EpisodeIndex(tmp_path / "index.sqlite", Now([tmp_path / "runs"]))
    assert index.refresh(seconds=-1)
    assert index.count(Query()) == 3 and index.failure_modes(["runs/policy"]) == {}
    assert not index.refresh()
    assert index.failure_modes(["runs/policy"]) == {"constraint_mismatch": {"runs/policy": 3}}
