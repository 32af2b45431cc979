"""Verdicts without a question: of a reward, and of the record."""

from typing import Any

import pytest

from collection.judges.base import NO_REWARD, NO_VERDICT, EnvironmentReward, Recorded, Verdict
from rmsweb_jax.records.schema import CallUsage, JudgeFingerprint
from tests.judges.runs import run
from tests.judges.server import Pictures

SAYS_NO = {"declared_success": False}
GIVES_UP = {"outcome": "max_steps", "declared_success": None}


@pytest.mark.parametrize(
    ("changes", "success"),
    [
        ({"reward": 1.0}, True),
        ({"reward": 0.999}, False),
        ({"reward": -1.0}, False),
        ({"reward": 1.0, **SAYS_NO}, False),
        ({"reward": 1.0, **GIVES_UP}, False),
    ],
)
def test_the_reward_judge_passes_full_rewards_that_were_declared(changes, success):
    verdict = EnvironmentReward().judge(run(**changes), Pictures())
    assert verdict == Verdict(success, "", fingerprint=JudgeFingerprint(method="reward"))


def test_without_a_reward_there_is_no_verdict_of_it():
    fingerprint = JudgeFingerprint(method="reward")
    verdict = EnvironmentReward().judge(run(), Pictures())
    assert verdict == Verdict(None, NO_REWARD, fingerprint=fingerprint)


def test_a_recorded_verdict_is_used_as_it_is():
    usage = CallUsage(cost=0.5)
    said: dict[str, Any] = {
        "judge": "rubric (m)",
        "judge_text": "words",
        "judge_usage": usage,
        "judge_score": 0.75,
        "judge_fingerprint": JudgeFingerprint(method="rubric", model="m"),
    }
    for success in (True, False):
        verdict = Recorded().judge(run(success=success, **said), Pictures())
        assert verdict == Verdict(success, "words", usage, 0.75, fingerprint=said["judge_fingerprint"])
    unjudged = Recorded().judge(run(**{**said, "judge": ""}), Pictures())
    assert (unjudged.success, unjudged.text, unjudged.usage) == (None, "words", usage)
    assert Recorded().judge(run(), Pictures()) == Verdict(None, NO_VERDICT)


def test_no_verdict_has_a_reason():
    with pytest.raises(ValueError, match="no verdict and no reason"):
        Verdict(None, " ")
