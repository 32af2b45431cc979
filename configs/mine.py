"""Failure-mode mining: pools of runs to RL prompts.

    python -m experiments.mine --config=configs/mine.py:demo \
        --config.pools=runs/demo/collect,runs/demo/collect_policy --workdir=runs/demo/mine

The figures are the paper's in every variant (RMSWeb, section 3.3). In the demo a "domain" is a MiniWoB++
page.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import collect

VARIANTS = ("demo", "smoke", "paper")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    config = ConfigDict()
    # Data set folders of trajectories, separated by commas.
    config.pools = ""
    # Processes; 0: one for each core.
    config.workers = 0
    # Pairs of a task that are compared at most: successes with failures, the shortest success with longer.
    config.pairs = ConfigDict({"max_primary": 12, "max_secondary": 4})
    # Who names a pair's failure: none (rules alone), gemini, or chat: as in configs/collect.py.
    config.actor = collect.actor("gemini", model="gemini-3-pro-preview", max_tokens=4096)
    if variant != "paper":
        config.actor.kind = "none"
    # Below the first confidence a second pass reviews, below the second the rules decide; of each run the
    # model reads so many last steps. Pairs at once, in each process.
    config.judging = ConfigDict({"review_below": 0.70, "rule_below": 0.30, "final_steps": 5})
    config.threads = 8
    # S_total = the weighted sum of three scores, each in [0, 1]; what is below a minimum is dropped.
    config.select = ConfigDict(
        {
            "state_weight": 0.50,
            "action_weight": 0.25,
            "category_weight": 0.25,
            "min_state": 0.60,
            "min_category": 0.45,
            "min_total": 0.62,
        }
    )
    # Shares of the final corpus, and the stricter gate for runtime and evaluation failures.
    config.balance = ConfigDict(
        {
            "max_domain_share": 0.30,
            "max_obstruction_share": 0.10,
            "runtime_min_confidence": 0.85,
            "runtime_min_category": 0.60,
        }
    )
    return config
