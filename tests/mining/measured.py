"""The miner's decision on a planted pair, compared with the planted one."""

from __future__ import annotations

import dataclasses

from collection.mining.divergence import KEPT, Divergence, MiningConfig, find_divergence
from collection.mining.runs import RunPair, parse_run
from rmsweb_jax.records.schema import Trajectory
from tests.mining.planted import Planted


@dataclasses.dataclass(frozen=True)
class Measured:
    """A planted (or unplanted) pair and the miner's decision on it."""

    planted: Planted
    case: Divergence

    @property
    def kept(self) -> bool:
        return self.case.decision == KEPT

    @property
    def chosen(self) -> tuple[int, int] | None:
        """Success and localization step, from 1; None where there was no candidate."""
        if self.case.success_at is None or self.case.localization_at is None:
            return None
        return self.case.success_at + 1, self.case.localization_at + 1

    @property
    def found(self) -> bool:
        """The planted success step is kept: the RL corpus gets the right prompt."""
        return self.kept and self.chosen is not None and self.chosen[0] == self.planted.success_step

    @property
    def exact(self) -> bool:
        """`found`, and the localization step is one at which the run is before that decision."""
        acceptable = self.planted.acceptable_localization_steps
        return self.found and self.chosen is not None and self.chosen[1] in acceptable

    @property
    def labelled(self) -> bool:
        """The rule label is the planted failure mode."""
        return self.case.label.category == self.planted.category


def pair_of(success: Trajectory, localization: Trajectory) -> RunPair:
    kind = "secondary" if localization.success else "primary"
    return RunPair(kind, parse_run(success), parse_run(localization))


def measure(planted: Planted) -> Measured:
    """Mines a pair by itself with the recipe's gates and the rule label."""
    return Measured(planted, find_divergence(pair_of(planted.success, planted.localization), MiningConfig()))
