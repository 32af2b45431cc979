"""The eleven failure modes, each with what speaks for it and what shows it (RMSWeb, appendix).

One table, to be read beside the paper's: `Category.features` weigh the whole run and make the rule
label; `closure` and `violation` are signals of single steps and make S_category.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Category:
    """A failure mode.

    Attributes:
      title: the paper's.
      share: of the paper's corpus, in percent.
      features: how strongly each feature of `collection.mining.features` speaks for it. [ours]
      closure: signals of the success's steps that show the matter being settled. [ours]
      violation: signals of the localization's steps that show it left open. [ours]
    """

    title: str
    share: float
    features: dict[str, float]
    closure: tuple[str, ...]
    violation: tuple[str, ...]


TAXONOMY: dict[str, Category] = {
    "unverifiable_evidence": Category(
        "Unverifiable evidence, source, or compliance failure",
        39.80,
        {"unseen": 0.9, "foreign_source": 0.8, "from_memory": 0.7, "page_claimed": 0.5, "answer_wrong": 0.2},
        ("extracts", "acts"),
        ("claims_success", "strays", "searches"),
    ),
    "endpoint_incomplete": Category(
        "Critical action or task endpoint incomplete",
        18.73,
        {"act_missing": 0.7, "act_untried": 0.7, "early": 0.2, "boundary_shunned": 0.2},
        ("acts", "submits"),
        ("finishes", "passive", "notes", "repeats", "fails"),
    ),
    "access_obstruction": Category(
        "Access, anti-bot, or technical obstruction",
        9.98,
        {"stopped": 1.8},
        ("navigates", "acts"),
        ("blocked",),
    ),
    "ui_navigation": Category(
        "UI interaction or navigation failure",
        8.53,
        {"failing_unclaimed": 1.4, "control_unclaimed": 0.9},
        ("acts",),
        ("fails", "no_effect", "repeats"),
    ),
    "runtime_evaluation": Category(
        "Runtime or evaluation failure",
        7.38,
        {"crashed": 2.0, "invalid": 1.8, "verdict_doubted": 1.0},
        ("acts",),
        ("invalid", "broke_off"),
    ),
    "constraint_mismatch": Category(
        "Hard constraint, target object, or numeric threshold mismatch",
        6.02,
        {"rival_claimed": 0.8, "answer_wrong": 0.2, "constraint_decided": 0.6},
        ("on_target", "acts"),
        ("off_target", "strays", "passive"),
    ),
    "filter_context": Category(
        "Filter/sort/search context not applied",
        4.53,
        {
            "filter_gap": 0.2,
            "filter_claimed": 0.4,
            "filter_asked": 0.3,
            "filter_decided": 0.3,
            "control_claimed": 0.3,
            "failing_claimed": 0.5,
        },
        ("filters",),
        ("finishes", "off_target", "passive", "strays", "skips"),
    ),
    "datetime_availability": Category(
        "Date/time/availability closure",
        2.26,
        {"date_gap": 0.5, "date_asked": 0.3, "date_decided": 0.6},
        ("dates",),
        ("finishes", "off_target", "passive", "strays", "skips"),
    ),
    "target_discovery": Category(
        "Target discovery or search-strategy failure",
        1.82,
        {"page_unclaimed": 0.6, "wandering": 0.4, "gave_up": 0.1, "detour": 0.9},
        ("on_target", "navigates", "acts"),
        ("passive", "searches", "repeats", "strays"),
    ),
    "extraction_omission": Category(
        "Information extraction, final calculation, or multi-field omission",
        0.64,
        {"omits": 0.9, "answer_short": 0.4},
        ("extracts", "adjusts", "opens"),
        ("finishes", "passive", "notes", "strays", "skips"),
    ),
    "login_payment_boundary": Category(
        "Login, payment, or privacy-boundary error",
        0.31,
        {
            "boundary_stop": 1.0,
            "boundary_shunned": 0.4,
            "overstepped": 0.9,
            "at_login": 0.3,
            "secret_withheld": 0.5,
            "secret_strays": 1.6,
        },
        ("sensitive", "boundary", "submits"),
        ("finishes", "sensitive", "boundary", "login_wall", "skips"),
    ),
}
