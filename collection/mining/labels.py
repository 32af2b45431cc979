"""Which of the eleven failure modes a pair of runs shows: the rule prior (RMSWeb, section 3.3)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from collection.mining.branch import Branch
from collection.mining.features import pair_features
from collection.mining.taxonomy import TAXONOMY

# Share of each category in the paper's corpus, in percent.
PAPER_SHARES = {name: category.share for name, category in TAXONOMY.items()}
# Rare categories need some evidence; this much speaks for the common ones without any.
_BASE_RATE = 0.05


@dataclasses.dataclass(frozen=True)
class Label:
    """A failure mode.

    Attributes:
      confidence: in [0, 1]: the category's share of the evidence.
      source: who decided.
      features: the pair features that were not zero.
    """

    category: str
    confidence: float
    source: Literal["rule", "judge", "review"]
    features: dict[str, float]

    @property
    def notes(self) -> tuple[str, ...]:
        """What else the audit should hold."""
        return ()


def rule_label(success: Branch, localization: Branch) -> Label:
    """The category for which the rule features speak most; ties go to the paper's more frequent one."""
    features = pair_features(success, localization)
    scores = np.array(
        [
            sum(weight * features[name] for name, weight in category.features.items())
            + _BASE_RATE * category.share / 100
            for category in TAXONOMY.values()
        ]
    )
    # Squared, so that one strong feature is not drowned by many weak ones.
    shares = scores**2 / (scores**2).sum()
    best = int(shares.argmax())
    found = {name: round(value, 4) for name, value in features.items() if value}
    return Label(list(TAXONOMY)[best], float(shares[best]), "rule", found)
