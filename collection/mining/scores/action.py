"""S_action: do the two branches decide differently, and does it matter?"""

from __future__ import annotations

import numpy as np

from collection.mining.branch import Branch
from collection.mining.scores.state import equal_pages
from collection.mining.signals import signal_table
from collection.steps import StepView
from rmsweb_jax.actions import explain_actions

# [ours] Weights of how different the actions are, and of whether one of them, or both, do something.
CONTRAST_WEIGHT, OPERATION_WEIGHT, BOTH_WEIGHT = 0.5, 0.3, 0.2
# The success's action is no news where the other branch took it too, only at another time.
_TAKEN_ELSEWHERE = 0.5
_LOW_INFORMATION = 0.5


def action_scores(success: Branch, localization: Branch, where: np.ndarray | None = None) -> np.ndarray:
    """S_action in [0, 1], float [num_success_steps, num_localization_steps].

    Args:
      where: bool of the same shape, the steps to compare: comparing actions is slow. 0 elsewhere.
    """
    if where is None:
        where = np.ones((len(success), len(localization)), bool)
    contrast = np.zeros(where.shape)
    for i, j in zip(*np.nonzero(where), strict=True):
        contrast[i, j] = _contrast(success.steps[i], localization.steps[j])
    elsewhere = set(localization.signatures)
    taken = np.array([step in elsewhere for step in success.signatures], bool)
    contrast *= np.where(taken, _TAKEN_ELSEWHERE, 1.0)[:, None]
    ours, theirs = _operates(success)[:, None], _operates(localization)[None, :]
    low = ~(ours | theirs)
    # Where the other run only ended, there is one operation to learn from.
    both = ours & theirs & ~signal_table(localization)["finishes"][None, :]
    scores = CONTRAST_WEIGHT * contrast + OPERATION_WEIGHT * (ours | theirs) + BOTH_WEIGHT * both
    return np.where(where, np.where(low, _LOW_INFORMATION * scores, scores), 0.0)


def eligible(success: Branch, localization: Branch) -> np.ndarray:
    """Pairs that can be a divergence at all, bool [num_success_steps, num_localization_steps].

    Left out: terminal steps (`Branch.candidates`), equal actions, and pairs whose actions together are
    only searches or only waiting, scrolling and going back.
    """
    allowed = np.zeros((len(success), len(localization)), bool)
    allowed[np.ix_(success.candidates, localization.candidates)] = True
    good, bad = signal_table(success), signal_table(localization)
    for name in ("searches", "trivial"):
        # An unusable reply adds no action to the two.
        ours, theirs = good[name] | good["invalid"], bad[name] | bad["invalid"]
        allowed &= ~(ours[:, None] & theirs[None, :])
    # On one page indices tell actions apart; between pages only what the indices stand for does.
    same = _equal(success.signatures, localization.signatures)
    same_target = _equal(success.targets, localization.targets)
    return allowed & ~(same & (same_target | ~equal_pages(success, localization)))


def _equal(ours, theirs) -> np.ndarray:
    """Which of two lists' members are equal: bool [len(ours), len(theirs)]."""
    numbers: dict[object, int] = {}
    first = np.array([numbers.setdefault(one, len(numbers)) for one in ours], int)
    second = np.array([numbers.setdefault(one, len(numbers)) for one in theirs], int)
    return first[:, None] == second[None, :]


def _contrast(ours: StepView, theirs: StepView) -> float:
    """One minus the reward that the localization side's actions would get for the success side's."""
    if ours.reply is None or theirs.reply is None:
        return 1.0
    return 1.0 - explain_actions(theirs.reply.executable, ours.reply.executable).score


def _operates(branch: Branch) -> np.ndarray:
    """Steps that click, type, select, navigate, extract or finish: bool [num_steps]."""
    signals = signal_table(branch)
    return ~(signals["passive"] | signals["searches"] | signals["notes"] | signals["invalid"])
