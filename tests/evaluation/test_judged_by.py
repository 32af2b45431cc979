"""Which evaluations count as judged alike, and what is said about judges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.evaluation.judged_by import judge_line, judges_differ
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
        ({"model": "gpt-4o", "model_version": ""}, "model o4-mini and gpt-4o"),
        ({"model_version": ""}, ""),
        ({}, ""),
    ],
)
def test_what_differs_is_said(changes, said):
    assert judges_differ([OFFICIAL], [OFFICIAL.model_copy(update=changes)]) == said


def test_unknown_judges_and_other_sets_of_judges_differ():
    assert judges_differ([], []) == "no judge is recorded"
    assert judges_differ([OFFICIAL], []) == "no judge is recorded for one of them"
    assert judges_differ([OFFICIAL, REWARD], [REWARD, OFFICIAL]) == ""
    assert (
        judges_differ([OFFICIAL, REWARD], [REWARD])
        == f"webjudge {OFFICIAL.id}+reward {REWARD.id} and reward {REWARD.id}"
    )


@given(
    *[
        st.builds(
            JudgeFingerprint, method=st.sampled_from("ab"), model_version=st.sampled_from(["", "1", "2"])
        )
    ]
    * 2
)
def test_judges_differ_in_something_that_is_named_exactly_if_they_are_not_the_same(one, other):
    assert bool(judges_differ([one], [other])) == (not one.same_judge(other))
