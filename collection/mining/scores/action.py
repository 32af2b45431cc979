"""S_action: do the two branches decide differently, and does it matter?"""

from __future__ import annotations

import numpy as np

from collection.mining.branch import Branch
from collection.mining.features import Signal, passive, searches, trivial
from collection.steps import StepView
from rmsweb_jax.actions import explain_actions

# [ours] Weights of how different the actions are and of whether one of them changes the page's state.
CONTRAST_WEIGHT, OPERATION_WEIGHT = 0.6, 0.4
# The success's action is no news where the other branch took it too, only at another time.
_TAKEN_ELSEWHERE = 0.5
_LOW_INFORMATION = 0.5


def action_scores(success: Branch, localization: Branch) -> np.ndarray:
    """S_action in [0, 1], float [num_success_steps, num_localization_steps]."""
    contrast = np.array(
        [[_contrast(ours, theirs) for theirs in localization.steps] for ours in success.steps], float
    ).reshape(len(success), len(localization))
    taken = np.array([step in localization.signatures for step in success.signatures], bool)
    contrast *= np.where(taken, _TAKEN_ELSEWHERE, 1.0)[:, None]
    idle = _each(passive, success)[:, None] & _each(passive, localization)[None, :]
    low = idle | (_each(searches, success)[:, None] & _each(searches, localization)[None, :])
    scores = CONTRAST_WEIGHT * contrast + OPERATION_WEIGHT * ~idle
    return np.where(low, _LOW_INFORMATION * scores, scores)


def eligible(success: Branch, localization: Branch) -> np.ndarray:
    """Pairs that can be a divergence at all, bool [num_success_steps, num_localization_steps].

    Left out: terminal steps (`Branch.candidates`), equal actions, and pairs whose actions together are
    only searches or only waiting, scrolling and going back.
    """
    allowed = np.zeros((len(success), len(localization)), bool)
    allowed[np.ix_(success.candidates, localization.candidates)] = True
    for name in (searches, trivial):
        allowed &= ~(_each(name, success)[:, None] & _each(name, localization)[None, :])
    for i, ours in enumerate(success.steps):
        for j, theirs in enumerate(localization.steps):
            allowed[i, j] &= _differ(ours, theirs, success.signatures[i] == localization.signatures[j])
    return allowed


def _differ(ours: StepView, theirs: StepView, same_signature: bool) -> bool:
    """On one page indices tell actions apart; between pages only what the indices stand for does."""
    same_page = ours.step.observation.fingerprint == theirs.step.observation.fingerprint
    return ours.composition != theirs.composition and (same_page or not same_signature)


def _contrast(ours: StepView, theirs: StepView) -> float:
    """One minus the reward that the localization side's actions would get for the success side's."""
    if ours.reply is None or theirs.reply is None:
        return 1.0
    return 1.0 - explain_actions(theirs.reply.executable, ours.reply.executable).score


def _each(signal: Signal, branch: Branch) -> np.ndarray:
    return np.array([signal(branch, position) for position in range(len(branch))], bool)
