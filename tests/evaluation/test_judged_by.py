"""Which evaluations count as judged alike, and what is said about judges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.evaluation.judged_by import count_verdicts, judge_line, judges_differ
from rmsweb_jax.records.schema import JudgeFingerprint

OFFICIAL = JudgeFingerprint(
    method="webjudge",
    source="github.com/microsoft/fara@9b8af39",
    model="o4-mini",
    model_version="o4-mini-2025-04-16",
    prompt_sha256="0123456789abcdef" * 4,
    temperature=0.0,
    evidence={"screenshots": "30"},
)
REWARD = JudgeFingerprint(method="reward")


def test_a_line_names_method_model_temperature_source_prompts_and_id():
    assert judge_line(OFFICIAL) == (
        "webjudge, model o4-mini-2025-04-16, temperature 0, from github.com/microsoft/fara@9b8af39, "
        f"prompts 0123456789ab (id {OFFICIAL.id})"
    )
    assert judge_line(REWARD) == f"reward (id {REWARD.id})"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_version": "o4-mini-2"}, "model_version o4-mini-2025-04-16 and o4-mini-2"),
        ({"temperature": 1.0}, "temperature 0.0 and 1.0"),
        ({"prompt_sha256": ""}, "prompt_sha256 0123456789ab and none"),
        ({"evidence": {"screenshots": "4"}}, "evidence [screenshots 30] and [screenshots 4]"),
        (
            {"model": "gpt-4o", "model_version": ""},
            "model o4-mini and gpt-4o; model_version o4-mini-2025-04-16 and none",
        ),
        ({"model_version": ""}, "model_version o4-mini-2025-04-16 and none"),
        ({}, ""),
    ],
)
def test_what_differs_is_said(changes, said):
    assert judges_differ([(OFFICIAL, 5)], [(OFFICIAL.model_copy(update=changes), 7)]) == said


def test_unknown_judges_and_other_sets_of_judges_differ():
    official, reward = (OFFICIAL, 5), (REWARD, 2)
    assert judges_differ([], []) == "no judge is recorded"
    assert judges_differ([official], []) == "no judge is recorded for one of them"
    assert judges_differ([official, reward], [(REWARD, 9), official]) == ""
    assert judges_differ([official, reward], [reward]) == (
        f"webjudge {OFFICIAL.id}: 5 verdicts, reward {REWARD.id}: 2 verdicts "
        f"and reward {REWARD.id}: 2 verdicts"
    )


NEWER = OFFICIAL.model_copy(update={"model_version": "o4-mini-2"})
UNKNOWN_VERSION = OFFICIAL.model_copy(update={"model_version": ""})


def test_another_mix_of_versions_is_another_judge():
    half, same, less = ([(OFFICIAL, one), (NEWER, other)] for one, other in ((300, 300), (5, 5), (500, 100)))
    assert judges_differ(half, same) == ""
    assert "300 verdicts" in judges_differ(half, less) and "500 verdicts" in judges_differ(half, less)
    assert judges_differ(half, [(OFFICIAL, 600)]) and judges_differ([(NEWER, 1)], half)


def test_an_unknown_version_equals_none_and_a_judge_that_was_asked_nothing_all():
    unknown = [(UNKNOWN_VERSION, 3)]
    assert judges_differ(unknown, unknown) == "the version of o4-mini is not known"
    assert judges_differ(unknown, [(OFFICIAL, 3)]) and judges_differ(
        [(OFFICIAL, 9), *unknown], [(OFFICIAL, 3)]
    )
    assert judges_differ([(UNKNOWN_VERSION, 0)], [(OFFICIAL, 3)]) == ""
    assert judges_differ([(REWARD, 3)], [(REWARD, 4)]) == "", "no model, so no version"


def test_verdicts_are_counted_by_version():
    asked = [(OFFICIAL, True)] * 3 + [(NEWER, True)] * 2
    by_rule, unread = [(UNKNOWN_VERSION, False)] * 4, [(NEWER, False)]
    counted = sorted([(OFFICIAL, 3), (NEWER, 2)], key=lambda one: one[0].id)
    assert list(count_verdicts([*by_rule, *asked, (None, True), *unread])) == counted
    assert list(count_verdicts(by_rule)) == [(UNKNOWN_VERSION, 0)]
    assert {one.model_version: n for one, n in count_verdicts([*asked, (UNKNOWN_VERSION, True)])} == {
        OFFICIAL.model_version: 3,
        NEWER.model_version: 2,
        "": 1,
    }


@given(
    *[
        st.builds(
            JudgeFingerprint, method=st.sampled_from("ab"), model_version=st.sampled_from(["", "1", "2"])
        )
    ]
    * 2
)
def test_judges_differ_in_something_that_is_named_exactly_if_they_are_not_the_same(one, other):
    assert bool(judges_differ([(one, 1)], [(other, 1)])) == (one != other)
