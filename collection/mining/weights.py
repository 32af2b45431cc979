"""Weights and limits of the three scores. RMSWeb names most terms; those marked [ours] it does not have."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StateWeights:
    """Weights of the parts of S_state. RMSWeb names the parts and gives no weights.

    The page weighs most; memory and progress are noisy and break ties. With them the scores of the paper's
    four published contrasts are reproduced within 0.08, see docs/results/mining.md.
    """

    url: float = 0.30
    dom: float = 0.40
    memory: float = 0.15
    progress: float = 0.15


@dataclasses.dataclass(frozen=True)
class ActionWeights:
    """Weights of S_action. RMSWeb names what raises and lowers it and gives no weights.

    Attributes:
      contrast: of the difference of the actions.
      operation, both: of at least one operation, and of two operations.
      low_information: factor on the score of two passive or repeated-search actions.
    """

    contrast: float = 0.5
    operation: float = 0.3
    both: float = 0.2
    low_information: float = 0.5


@dataclasses.dataclass(frozen=True)
class CategoryWeights:
    """Weights of S_category. RMSWeb gives the radius of two steps and no weights.

    Attributes:
      by_distance: of evidence 0, 1, ... steps away; its length is the radius and one.
      one_side, both_sides: evidence of one side alone stays below the gate, of both sides it does not.
      contained: subtracted where the other run contains the positive evidence, too.
      prior_floor: factor on the score for a label of no confidence; RMSWeb calls the label a soft prior.
      general: of evidence that is not the label's own, but any failure's [ours].
      taken: certainty that the other run contains it, where it took the success's step as well.
      reached: the same, where it later came to where that step led [ours].
      apart: the same, where the two steps are at different states of the site and so no alternatives [ours].
    """

    by_distance: tuple[float, ...] = (1.0, 0.7, 0.5)
    one_side: float = 0.4
    both_sides: float = 0.1
    contained: float = 0.6
    prior_floor: float = 0.5
    general: float = 0.5
    taken: float = 1.0
    reached: float = 1.0
    apart: float = 1.0
