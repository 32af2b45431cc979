"""The eleven failure modes of RMSWeb's appendix, with the evidence for each, and the rule label of a pair.

In `TAXONOMY`, `FailureMode.features` weigh the whole pair and give the rule label; `closure` and `violation`
are flags of single steps and give S_category. Names and shares are the paper's, and explanations follow it.
The evidence is this project's: written by hand and tuned on the tuned labelled cases and the generator's
seeds 0-19. docs/results/mining.md has the accuracy on held-out cases.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from collection.mining.pair_features import pair_features
from collection.mining.runs import ParsedRun


@dataclasses.dataclass(frozen=True)
class FailureMode:
    """A failure mode.

    Attributes:
      title: the paper's.
      share: of the paper's corpus, in percent.
      explanation: description for the judge, from the paper's appendix.
      features: features of `collection.mining.pair_features` and their weights in the rule label.
      closure: flags of the success's steps that resolve the matter.
      violation: flags of the localization's steps that leave it open.
    """

    title: str
    share: float
    explanation: str
    features: dict[str, float]
    closure: tuple[str, ...]
    violation: tuple[str, ...]


# In the paper's order, which is that of the shares; a tie between labels goes to the more frequent mode.
TAXONOMY: dict[str, FailureMode] = {
    "unverifiable_evidence": FailureMode(
        "Unverifiable evidence, source, or compliance failure",
        39.80,
        "the conclusion lacks evidence from a page, or rests on a source that does not satisfy the task",
        {"unseen": 0.9, "foreign_source": 0.8, "from_memory": 0.7, "page_claimed": 0.5, "answer_wrong": 0.2},
        ("extracts", "acts"),
        ("claims_success", "absent_in_success", "searches"),
    ),
    "endpoint_incomplete": FailureMode(
        "Critical action or task endpoint incomplete",
        18.73,
        "the target is found, but not added, booked, submitted or confirmed as the task wants; "
        "also an end that comes too early",
        {"act_missing": 0.7, "act_untried": 0.7, "early": 0.2, "boundary_shunned": 0.2},
        ("acts", "submits"),
        ("finishes", "passive", "notes", "repeats", "fails"),
    ),
    "access_obstruction": FailureMode(
        "Access, anti-bot, or technical obstruction",
        9.98,
        "a captcha, a refusal such as 403, or a control that is not available",
        {"stopped": 1.8},
        ("navigates", "acts"),
        ("blocked",),
    ),
    "ui_navigation": FailureMode(
        "UI interaction or navigation failure",
        8.53,
        "a detail page, tab, date picker, dropdown or field is not reached or not operated",
        {"failing_unclaimed": 1.4, "control_unclaimed": 0.9},
        ("acts",),
        ("fails", "no_effect", "repeats", "absent_in_success", "skips_ahead"),
    ),
    "runtime_evaluation": FailureMode(
        "Runtime or evaluation failure",
        7.38,
        "the run times out or crashes, or its actions cannot be interpreted",
        {"crashed": 2.0, "invalid": 1.8, "verdict_doubted": 1.0},
        ("acts",),
        ("invalid", "aborted"),
    ),
    "constraint_mismatch": FailureMode(
        "Hard constraint, target object, or numeric threshold mismatch",
        6.02,
        "what was chosen or typed violates a required attribute, object or number",
        {"rival_claimed": 0.8, "answer_wrong": 0.2, "constraint_decided": 0.6},
        ("on_target", "acts"),
        ("off_target", "absent_in_success", "passive"),
    ),
    "filter_context": FailureMode(
        "Filter/sort/search context not applied",
        4.53,
        "a filter, sort order or search is claimed to be active, but the page does not show it",
        {
            "filter_gap": 0.2,
            "filter_claimed": 0.4,
            "filter_asked": 0.3,
            "filter_decided": 0.3,
            "control_claimed": 0.3,
            "failing_claimed": 0.5,
        },
        ("filters",),
        ("finishes", "off_target", "passive", "absent_in_success", "skips_ahead"),
    ),
    "datetime_availability": FailureMode(
        "Date/time/availability closure",
        2.26,
        "a requested date, time, stock or recency is never verified",
        {"date_gap": 0.5, "date_asked": 0.3, "date_decided": 0.6},
        ("dates",),
        ("finishes", "off_target", "passive", "absent_in_success", "skips_ahead"),
    ),
    "target_discovery": FailureMode(
        "Target discovery or search-strategy failure",
        1.82,
        "repeated searching or navigating does not reach the page where the task is done",
        {"page_unclaimed": 0.6, "wandering": 0.4, "gave_up": 0.1, "detour": 0.9},
        ("on_target", "navigates", "acts"),
        ("passive", "searches", "repeats", "absent_in_success"),
    ),
    "extraction_omission": FailureMode(
        "Information extraction, final calculation, or multi-field omission",
        0.64,
        "a required field, unit, comparison or computed number is missing or wrong",
        {"omits": 0.9, "answer_short": 0.4},
        ("extracts", "adjusts", "opens"),
        ("finishes", "passive", "notes", "absent_in_success", "skips_ahead"),
    ),
    "login_payment_boundary": FailureMode(
        "Login, payment, or privacy-boundary error",
        0.31,
        "it stops at the wrong login, payment or privacy boundary, or gives sensitive data that "
        "nobody gave it",
        {
            "boundary_stop": 1.0,
            "boundary_shunned": 0.4,
            "overstepped": 0.9,
            "at_login": 0.3,
            "secret_withheld": 0.5,
            "secret_strays": 1.6,
        },
        ("sensitive", "boundary", "submits"),
        ("finishes", "sensitive", "boundary", "login_wall", "skips_ahead"),
    ),
}

# Share of each failure mode in the paper's corpus, in percent.
PAPER_SHARES = {name: mode.share for name, mode in TAXONOMY.items()}
# Weight of the paper's share in the rule label: far below that of a feature, so it decides only between modes
# with almost no evidence. Chosen by hand.
_BASE_RATE = 0.05


@dataclasses.dataclass(frozen=True)
class FailureLabel:
    """The failure mode of a pair of runs.

    Attributes:
      confidence: in [0, 1]; of a rule label, the mode's share of the evidence.
      source: the rules, a model, or the model's review of its first answer.
      features: the pair features that are not zero.
    """

    category: str
    confidence: float
    source: Literal["rule", "judge", "review"]
    features: dict[str, float]

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the audit record."""
        return ()


def rule_label(success: ParsedRun, localization: ParsedRun) -> FailureLabel:
    """Returns the failure mode with the largest weighted sum of features; ties go to the first one."""
    features = pair_features(success, localization)
    scores = np.array(
        [
            sum(weight * features[name] for name, weight in mode.features.items())
            + _BASE_RATE * mode.share / 100
            for mode in TAXONOMY.values()
        ]
    )
    # Squared, so that one strong feature outweighs several weak ones.
    shares = scores**2 / (scores**2).sum()
    best = int(shares.argmax())
    found = {name: round(value, 4) for name, value in features.items() if value}
    return FailureLabel(list(TAXONOMY)[best], float(shares[best]), "rule", found)
