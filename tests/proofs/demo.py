"""The whole recipe on one machine: `make demo`, its stages and its three policies. Half an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.report.paper_tables import percent, points
from collection.report.sources import RunFolder
from collection.report.summary import build_summary
from tests.proofs.result import Claim, Figures, Proof, demo_run, filled, main, table

POLICIES = {"base": "base", "sft": "SFT", "rl": "SFT + RL"}
# Stages of an earlier run on an idle machine, seconds.
IDLE_SECONDS = {
    "collect": 121,
    "sft_corpus": 0.2,
    "sft": 211,
    "collect_policy": 78,
    "mine": 1,
    "rl": 126,
    "evaluate/base": 183,
    "evaluate/sft": 126,
    "evaluate/rl": 123,
}
# Earlier runs: pass@1 of SFT and of SFT + RL in percent, and their difference with its interval in points.
EARLIER = (
    ("3382fbc, 143 prompts; 31.0 min on a loaded machine", 52.9, 59.3, "+6.4 (+3.3 to +9.8)"),
    ("15b7e76, 144 prompts; 25.6 min on a loaded machine", 52.9, 59.6, "+6.7 (+3.3 to +10.2)"),
    (
        "uninterrupted run on an idle machine, 18 min 2 s with 45 s of installation",
        53.6,
        59.1,
        "+5.6 (+2.0 to +9.1)",
    ),
    ("earlier on the same day, same base and settings", 53.6, 59.6, "+6.0 (+2.4 to +9.8)"),
    (
        "after a new layout of the sampler's weights; 17 min 18 s, packages installed",
        53.6,
        59.6,
        "+6.0 (+2.4 to +9.8)",
    ),
    (
        "fa78e9b, after a new data path and loss; 23.1 min on a loaded machine",
        53.3,
        58.4,
        "+5.1 (+1.8 to +8.7)",
    ),
    (
        "64bd573, before rows of one packed shape; 30.6 min next to other proofs",
        52.9,
        60.2,
        "+7.3 (+4.0 to +10.9)",
    ),
    ("with the base of the [second `make base`](base.md)", 54.7, 56.2, "+1.6 (-2.0 to +5.1)"),
)


def measure() -> Figures:
    run = RunFolder(demo_run())
    summary = build_summary(run)
    collection, corpus, mining, rl = (summary[name] for name in ("collection", "filter", "mining", "rl"))
    difference = summary["differences"]["rl_minus_sft"]
    return {
        "page_types": len(collection["first_round_success_by_site"]),
        "stages": {name: summary["stages"][name]["seconds"] for name in IDLE_SECONDS},
        "total_seconds": summary["total_seconds"],
        "minutes_with_installation": None,
        "collection": {
            "tasks": collection["tasks"],
            "episodes": collection["trajectories"],
            "solved_tasks": collection["solved_tasks"],
            "failed_in_round_1": collection["failed_first_round"],
            "solve_at_2_by_round": collection["solve_at_2_by_round"],
        },
        "corpus": {
            "trajectories": corpus["kept"],
            "dropped": {reason: count for reason, count in corpus["dropped"].items() if count},
            "samples": sum(corpus["samples"].values()),
        },
        "sft": {"steps": summary["sft"]["steps"], "parameters": summary["sft"]["parameters"]["base"]},
        "policy_collection": {
            "tasks": summary["policy_collection"]["tasks"],
            "success": summary["policy_collection"]["success_by_round"]["1"],
        },
        "mining": {
            "prompts": mining["prompts"],
            "categories": {
                name: one["prompts"] for name, one in mining["categories"].items() if one["prompts"]
            },
        },
        "rl": {name: rl[name] for name in ("iterations", "optimizer_steps", "held_out")},
        "evaluation": {name: summary["models"]["rl"][name] for name in ("tasks", "runs", "temperature")},
        "policies": {
            label: {
                **{f"pass_at_{k}": summary["models"][label][f"pass_at_{k}"] for k in (1, 2, 3)},
                "steps_solved": (summary["models"][label]["mean_steps_solved"] or {}).get("mean"),
            }
            for label in POLICIES
        },
        "rl_minus_sft": {f"pass_at_{k}": difference[f"pass_at_{k}"] for k in (1, 2, 3)},
    }


def claims(figures: Figures) -> list[Claim]:
    difference, policies = figures["rl_minus_sft"]["pass_at_1"], figures["policies"]
    seconds, minutes = figures["total_seconds"], figures["minutes_with_installation"]
    installed = f"; {minutes} min with installation" if minutes else ""
    return [
        Claim("all stages run one after another on CPU cores", f"{seconds:,.0f} s{installed}", None),
        Claim("pass@1 of the SFT policy, %", percent(policies["sft"]["pass_at_1"]), None),
        Claim("pass@1 after RL, %", percent(policies["rl"]["pass_at_1"]), None),
        Claim(
            "RL raises pass@1 over SFT on the same tasks (95% interval above 0)",
            f"{points(difference)} points",
            difference["low"] > 0,
        ),
        Claim("the same difference with another base, in an earlier run", f"{EARLIER[-1][3]} points", None),
    ]


def tables(figures: Figures) -> str:
    policies = [
        (
            title,
            *(_rate(figures["policies"][label][f"pass_at_{k}"]) for k in (1, 2, 3)),
            _steps(figures, label),
        )
        for label, title in POLICIES.items()
    ]
    gains = [points(figures["rl_minus_sft"][f"pass_at_{k}"]) for k in (1, 2, 3)]
    stages = [
        (name, text, f"{figures['stages'][name]:,.4g}", f"{IDLE_SECONDS[name]:,.4g}")
        for name, text in _stages(figures).items()
    ]
    total = [f"{seconds:,.0f}" for seconds in (figures["total_seconds"], sum(IDLE_SECONDS.values()))]
    this = (
        "this page",
        *(f"{100 * figures['policies'][label]['pass_at_1']['mean']:.1f}" for label in ("sft", "rl")),
        gains[0],
    )
    parts = [
        table(("policy", "pass@1, %", "pass@2, %", "pass@3, %", "steps when solved"), policies),
        f"RL - SFT, paired by task, in points: {', '.join(gains)}. Intervals: 95% bootstrap over tasks.",
        table(("stage", "result", "seconds", "seconds, idle machine"), [*stages, ("all", "", *total)]),
        *("## Variance across runs", filled(_VARIANCE)),
        table(("run", "SFT, %", "SFT + RL, %", "RL - SFT, points"), [this, *EARLIER]),
        *(filled(_GAIN), "## Limits", _LIMITS.format(**figures["rl"]).strip()),
    ]
    return "\n\n".join(parts)


def _stages(figures: Figures) -> dict[str, str]:
    collection, corpus, rl, evaluation = (
        figures[name] for name in ("collection", "corpus", "rl", "evaluation")
    )
    solved = {name: share for name, share in collection["solve_at_2_by_round"].items() if share}
    rounds, shares = "/".join(solved), " / ".join(f"{100 * share:.0f}" for share in solved.values())
    played = f"{evaluation['tasks']} tasks x {evaluation['runs']} at temperature {evaluation['temperature']}"
    policy, sft = figures["policy_collection"], figures["sft"]
    return {
        "collect": f"{collection['tasks']} tasks, {collection['episodes']} episodes, "
        f"{collection['solved_tasks']} tasks solved; of {collection['failed_in_round_1']} tasks that failed "
        f"in round 1, {shares} % had two successes by round {rounds}",
        "sft_corpus": f"{corpus['trajectories']} trajectories kept ({_counted(corpus['dropped'])} dropped), "
        f"{corpus['samples']:,} samples",
        "sft": f"{sft['steps']} steps, all {sft['parameters'] / 1e6:.1f} M parameters",
        "collect_policy": f"{policy['tasks']} tasks once, {policy['success']:.1%} solved at temperature 1",
        "mine": f"{figures['mining']['prompts']} prompts: {_counted(figures['mining']['categories'])}",
        "rl": f"{rl['iterations']} iterations, {rl['optimizer_steps']} optimizer steps, attention adapters",
        **{f"evaluate/{label}": played for label in POLICIES},
    }


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _rate(interval: Mapping[str, Any]) -> str:
    return percent(interval) if "low" in interval else f"{100 * interval['mean']:.1f}"


def _steps(figures: Figures, label: str) -> str:
    steps = figures["policies"][label]["steps_solved"]
    return "none solved" if steps is None else f"{steps:.2f}"


_VARIANCE = """\
Intervals above are over tasks, not over trainings. The other runs had 183 to 191 prompts of an earlier miner,
which kept longer successes that had only scrolled, unless noted.
"""
_GAIN = """\
All runs but the last share their seeds and nearly all of their arithmetic: they show that the run repeats,
not that the gain does. With another base of the same kind the gain is not distinguishable from zero. The
likely reason is the number of mined prompts (191; the paper has thousands). More and larger RL steps on that
base (36 iterations at 1.2e-3 instead of 16 at 3e-4) raised the sampled reward on the mined prompts from 0.58
to 0.83, while pass@1 on 60 other tasks (seeds from 2,000,000) fell from 61.1 to 55.6: the policy overfitted
the prompts. 36 iterations at 6e-4 gave +2.7 points on the evaluation tasks. A lasting gain needs more
training tasks, and so more and more varied prompts, than half an hour pays for.
"""
_LIMITS = """\
- The base scores 0 because success needs `done`, and nothing in its training says when a task is finished.
- RL's held-out split is {held_out} prompts, too few to interpret.
- Pages whose labels are random strings are hardest (click-checkboxes 7 %, choose-list 20 %, click-option 23 %
  after RL in the run at 64bd573).
- SFT with LoRA of rank 64 on all linear layers, rate 1e-3, three epochs, reached token accuracy 0.93 and
  solved 29.6 % of the training tasks (64.6 % with all parameters, in an earlier run). A step cost 1.5 times
  as much. The demo therefore trains all parameters in SFT; RL keeps its adapters. Longer LoRA training was
  not tried.
- Nothing was tuned on the evaluation seeds: the first RL settings tried are those in the config. Of two
  bases, the one that shipped first was kept; both results are above.
"""
ABOUT = """\
{page_types} MiniWoB++ page types; the scripted teacher (simulated, with seeded mistakes); the shipped tiny
base; 2 CPU cores. Seconds are those that the stages report. Each policy plays tasks that no training uses.
"""
PROOF = Proof(
    "The demo", ABOUT, measure, claims, tables, packages=("jax",), browser=True, command="make demo"
)

if __name__ == "__main__":
    main(PROOF)
