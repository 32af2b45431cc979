"""The hand-written cases themselves: enough of each failure mode, sound records, and no label in them."""

from __future__ import annotations

import collections
import re

import pytest
from pydantic import ValidationError

from collection.corpus.steps import view
from rmsweb_jax.actions import ReplyError, composition, repair_reply
from rmsweb_jax.records.schema import Step, Trajectory
from tests.mining.case_files import UNUSABLE, Case, load_cases, read_cases

CATEGORIES = {
    "unverifiable_evidence",
    "endpoint_incomplete",
    "access_obstruction",
    "ui_navigation",
    "runtime_evaluation",
    "constraint_mismatch",
    "filter_context",
    "datetime_availability",
    "target_discovery",
    "extraction_omission",
    "login_payment_boundary",
}
ACTIVITIES = {
    "E-Commerce",
    "Travel & Hospitality",
    "Government",
    "Entertainment & Gaming",
    "Health",
    "Corporate & Careers",
    "Finance",
    "Education",
    "Real Estate",
    "Local & Home Services",
    "Other",
}
CASES, HELD_OUT, PAPER_CASES = map(load_cases, ("tuned", "held_out", "paper"))
ALL = CASES + HELD_OUT + PAPER_CASES
INDEX = re.compile(r"^\*?\[(\d+)\]<(\w+)", re.MULTILINE)
WRITTEN = """
- name: x
  category: target_discovery
  why: W.
  activity: Other
  website: https://x.example/
  site: x.example
  task: T
  pages:
    shop:
      url: https://x.example/
      title: S
      elements:
        - {a: Buy}
  success:
    steps:
      - page: shop
        memory: m
        goal: g
        actions:
          - {click_element_by_index: {index: 1}, result: Clicked, changed: true}
  localization:
    outcome: max_steps
    steps:
      - page: shop
        memory: m
        goal: g
        actions:
          - {wait: {seconds: 3}, result: Waited}
"""
each_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def runs(case: Case) -> tuple[Trajectory, Trajectory]:
    return case.success, case.localization


def steps(case: Case) -> list[Step]:
    return [step for run in runs(case) for step in run.steps]


def did(run: Trajectory) -> list[tuple[str, ...]]:
    return [view(step).composition for step in run.steps]


def test_each_failure_mode_has_ten_cases_and_three_held_out():
    assert {case.category for case in CASES} == CATEGORIES
    assert set(collections.Counter(case.category for case in CASES).values()) == {10}
    assert collections.Counter(case.category for case in HELD_OUT) == dict.fromkeys(CATEGORIES, 3)


def test_names_tasks_and_runs_are_unique():
    assert len({case.name for case in ALL}) == len(ALL)
    assert len({case.success.task.objective for case in ALL}) == len(ALL)
    assert len({run.trajectory_id for case in ALL for run in runs(case)}) == 2 * len(ALL)


def test_cases_vary_in_activity_site_length_and_ending():
    assert {case.success.task.category for case in CASES} <= ACTIVITIES
    for category in CATEGORIES:
        mine = [case for case in CASES if case.category == category]
        assert len({case.success.task.category for case in mine}) >= 8
        assert len({case.success.task.site for case in mine}) == len(mine)
    endings = collections.Counter(case.localization.outcome for case in CASES)
    assert {"done", "max_steps", "failures", "blocked", "captcha", "crashed", "timeout"} <= set(endings)
    assert any(case.localization.declared_success is False for case in CASES)
    assert {len(run.steps) for case in CASES for run in runs(case)} >= set(range(3, 9))
    for category in CATEGORIES - {"runtime_evaluation"}:
        mine = [case for case in CASES if case.category == category]
        assert all(2 <= len(run.steps) <= 8 for case in mine for run in runs(case))


@each_case
def test_the_records_are_valid_and_belong_together(case: Case):
    for run in runs(case):
        assert Trajectory.model_validate_json(run.model_dump_json()) == run
        assert [step.number for step in run.steps] == list(range(1, len(run.steps) + 1))
    assert case.success.task == case.localization.task
    assert case.success.success and case.success.outcome == "done" and case.success.declared_success
    assert not case.localization.success
    assert did(case.success) != did(case.localization)
    assert case.why.endswith(".")


@each_case
def test_the_label_is_not_in_the_records(case: Case):
    assert all(case.category not in run.model_dump_json() for run in runs(case))


@each_case
def test_replies_parse_unless_they_are_meant_not_to(case: Case):
    assert [view(step).fault for step in case.success.steps] == [""] * len(case.success.steps)
    for step in steps(case):
        if step.error.startswith(UNUSABLE):
            assert case.category == "runtime_evaluation" and not step.results
            with pytest.raises(ReplyError):
                repair_reply(step.response)
            continue
        reply, repaired = repair_reply(step.response)
        assert not repaired
        if not step.error:
            done = len(step.results)
            assert [result.action for result in step.results] == [a.name for a in reply.actions[:done]]
            assert done == len(reply.actions) or step.results[-1].error
            assert len(composition(reply.executable)) == len(reply.actions)


@each_case
def test_pages_and_elements_agree_and_indices_exist(case: Case):
    for step in steps(case):
        seen = step.observation
        indexed = {element.index: element.tag for element in seen.elements if element.index is not None}
        assert {int(index): tag for index, tag in INDEX.findall(seen.page_text)} == indexed
        assert all(element.text in seen.page_text for element in seen.elements)
        reply = view(step).reply
        used = [getattr(action.params, "index", 0) for action in reply.actions] if reply else []
        assert all(index in indexed for index in used if index)


def test_the_same_page_has_the_same_fingerprint_and_another_has_another():
    pages = collections.defaultdict(set)
    for case in ALL:
        for step in steps(case):
            seen = step.observation
            plain = re.sub(r"^\*?\[\d+\]", "", seen.page_text, flags=re.MULTILINE)
            pages[seen.fingerprint].add((seen.url, plain))
    assert all(len(same) == 1 for same in pages.values())
    assert len({next(iter(same)) for same in pages.values()}) == len(pages) > 400


@each_case
def test_the_state_was_sent_as_it_is_recorded(case: Case):
    for step in steps(case):
        last = step.messages[-1]
        assert last.role == "user" and "reflection_guidance" not in last.text
        assert step.observation.page_text in last.text and case.success.task.objective in last.text
        images = [part.sha256 for part in last.content if part.type == "image"]
        assert images == ([step.observation.screenshot] if step.observation.screenshot else [])


def test_most_steps_have_a_picture():
    shots = [step.observation.screenshot for case in ALL for step in steps(case)]
    assert all(re.fullmatch("[0-9a-f]{64}", shot) for shot in shots if shot)
    assert 0.85 < sum(shot is not None for shot in shots) / len(shots) < 1.0


def test_the_contrasts_of_the_paper_have_its_steps():
    published = {
        "toyonaka-care-insurance": ("target_discovery", 0.84, "go_to_url", "search_engine"),
        "seek-submitted-application": ("endpoint_incomplete", 0.82, "click_element_by_index", "scroll"),
        "carvana-selling-a-car": ("access_obstruction", 0.84, "go_to_url", "write_file"),
        "youtube-premium-prices": ("constraint_mismatch", 0.76, "input_text", "scroll"),
    }
    assert {case.name for case in PAPER_CASES} == set(published)
    for case in PAPER_CASES:
        assert case.divergence is not None
        good = case.success.steps[case.divergence[0] - 1]
        bad = case.localization.steps[case.divergence[1] - 1]
        assert good.observation.fingerprint == bad.observation.fingerprint
        found = (case.category, case.score, view(good).action_names[0], view(bad).action_names[0])
        assert found == published[case.name]


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("- {a: Buy}", "- {link: Buy}", "an element is one of"),
        ("- {a: Buy}", "- {a: Buy, href: /}", "href"),
        ("page: shop", "page: cart", "pages are unknown or unused: .*'cart'"),
        ("memory:", "memo:", "memo"),
        ("changed: true", "change: true", "change"),
        ("outcome: max_steps", "outcome: lost", "outcome"),
    ],
)
def test_a_misspelled_case_is_refused(right: str, wrong: str, problem: str):
    assert next(read_cases(WRITTEN)).localization.outcome == "max_steps"
    assert right in WRITTEN
    with pytest.raises(ValidationError, match=problem):
        next(read_cases(WRITTEN.replace(right, wrong, 1)))
