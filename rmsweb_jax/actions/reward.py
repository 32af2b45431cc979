"""The polarized reward: scores a response's actions in four levels (RMSWeb, section 3.4).

    1.0 exact    0.7 core-correct    0.3 right type, wrong key parameter    0.0 wrong or invalid

Only actions that would be executed are scored; the text before them is free. A text counts as nearly right
only if its values are the same (`similarity`), so that "100" never counts as "1000".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from rapidfuzz import fuzz

from rmsweb_jax.actions.parse import ReplyError, parse_reply, render_actions
from rmsweb_jax.actions.rules import EXACT, UNKNOWN, WRONG, compare_actions
from rmsweb_jax.actions.schema import Action
from rmsweb_jax.records.schema import Window

# Weights of an action in the soft F1; passive actions only look, wait or move the view.
ACTIVE_WEIGHT, PASSIVE_WEIGHT = 1.0, 0.5


@dataclasses.dataclass(frozen=True)
class Pair:
    """One aligned pair: positions in the response's and the target's action list."""

    predicted: int
    target: int
    level: float
    field: str


class Target(str):
    """A verified reply that names points, with the screenshot on which they are compared.

    To every function that takes a target it is the reply's text; the action reward also reads `window`.
    """

    window: Window

    def __new__(cls, text: str, window: Window) -> Target:
        """Makes the text, and keeps the screenshot with it."""
        target = super().__new__(cls, text)
        target.window = window
        return target

    def __getnewargs__(self) -> tuple[str, Window]:
        return str(self), self.window


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Explains the score of a response; `error` is the reason why it could not be parsed, or ""."""

    score: float
    pairs: tuple[Pair, ...] = ()
    error: str = ""


def score_response(response: str, target: str) -> float:
    """Computes the reward in [0, 1] of a response against the verified reply `target`.

    Raises:
      ReplyError: `target` itself is not a valid reply. An invalid response scores 0.0 instead.
    """
    return explain_response(response, target).score


def exact_response(response: str, target: str) -> float:
    """Computes the binary reward, an ablation: 1.0 where `score_response` is 1.0, otherwise 0.0.

    Raises:
      ReplyError: as for `score_response`.
    """
    return EXACT if score_response(response, target) == EXACT else WRONG


def text_response(response: str, target: str) -> float:
    """Computes the text reward, an ablation: the similarity of both lists as canonical JSON, in [0, 1].

    Similarity is rapidfuzz's `ratio` (the longest common subsequence relative to both lengths); equal lists
    have 1.0, an invalid response 0.0.

    Raises:
      ReplyError: as for `score_response`.
    """
    wanted = _target_actions(target)
    try:
        predicted = parse_reply(response).executable
    except ReplyError:
        return WRONG
    return fuzz.ratio(render_actions(predicted), render_actions(wanted)) / 100.0


# Training rewards by their name in the settings; the last two are ablations.
REWARDS: dict[str, Callable[[str, str], float]] = {
    "polarized": score_response,
    "binary": exact_response,
    "text": text_response,
}


def target_type(target: str) -> str:
    """Returns the name of a target's deciding action, for breakdowns: the first active one, else the first.

    Raises:
      ReplyError: `target` is not a valid reply.
    """
    actions = _target_actions(target)
    return next((action for action in actions if not action.params.passive), actions[0]).name


def explain_response(response: str, target: str) -> Explanation:
    """Scores as `score_response`, and returns the level of every aligned pair with its deciding field."""
    wanted = _target_actions(target)
    try:
        predicted = parse_reply(response).executable
    except ReplyError as error:
        return Explanation(WRONG, error=str(error))
    return explain_actions(predicted, wanted, getattr(target, "window", UNKNOWN))


# All responses of a group share one target.
@functools.lru_cache(maxsize=64)
def _target_actions(target: str) -> tuple[Action, ...]:
    return parse_reply(target).executable


def explain_actions(
    predicted: Sequence[Action], wanted: Sequence[Action], window: Window = UNKNOWN
) -> Explanation:
    """Scores as `explain_response`, but parsed action lists; neither may be empty."""
    pairs = _align(predicted, wanted, window)
    matched = sum(_weight(wanted[pair.target]) * pair.level for pair in pairs)
    # With precision M/P and recall M/T the soft F1, their harmonic mean, is 2M / (P + T).
    total = sum(map(_weight, predicted)) + sum(map(_weight, wanted))
    return Explanation(2 * matched / total, pairs)


def _weight(action: Action) -> float:
    return PASSIVE_WEIGHT if action.params.passive else ACTIVE_WEIGHT


def _align(predicted: Sequence[Action], wanted: Sequence[Action], window: Window) -> tuple[Pair, ...]:
    """Finds the order-preserving alignment with the largest summed level (then the largest summed weight)."""
    if len(predicted) == len(wanted) == 1:  # A shortcut for nearly all steps, with the same result.
        level, field = compare_actions(predicted[0], wanted[0], window)
        return (Pair(0, 0, level, field),) if level > 0 else ()
    verdicts = [[compare_actions(one, other, window) for other in wanted] for one in predicted]
    rows, columns = len(predicted), len(wanted)
    # best[i][j]: (summed level in tenths, summed weighted level) of predicted[i:] against wanted[j:]. Tenths
    # are integers, so that rounding does not break ties between sums of 0.7 and 0.3.
    best = [[(0, 0.0)] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            best[i][j] = max(_taken(verdicts, wanted, best, i, j), best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        level, field = verdicts[i][j]
        if level > 0 and best[i][j] == _taken(verdicts, wanted, best, i, j):
            pairs.append(Pair(i, j, level, field))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return tuple(pairs)


def _taken(verdicts: Any, wanted: Sequence[Action], best: Any, i: int, j: int) -> tuple[int, float]:
    level = verdicts[i][j][0]
    tenths, weighted = best[i + 1][j + 1]
    return tenths + round(10 * level), weighted + _weight(wanted[j]) * level
