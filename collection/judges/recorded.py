"""Verdicts that need no question: those of a reward, and those that a data set already holds."""

from __future__ import annotations

from collection.judges.base import Verdict, declared
from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import Trajectory

# Some pages pay in part for a task done in part; what trains on successes needs it done in full.
FULL_REWARD = 1.0
NO_REWARD = "The environment paid no reward."
NOBODY = "Nobody has passed a verdict."


class EnvironmentReward:
    """Passes what was declared a success and paid in full; `collection.judges.base.Judge`."""

    name = "reward"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        if trajectory.reward is None:
            return Verdict(None, NO_REWARD)
        return Verdict(declared(trajectory) and trajectory.reward >= FULL_REWARD, "")


class Recorded:
    """Says what the record says; `collection.judges.base.Judge`."""

    name = "recorded"

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        text = trajectory.judge_text
        if not trajectory.judge:
            return Verdict(None, text or NOBODY, trajectory.judge_usage)
        return Verdict(trajectory.success, text, trajectory.judge_usage, trajectory.judge_score)
