"""The whole recipe on one machine: `make demo`, its stages and its three policies. Half an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.report.paper_tables import percent, points
from collection.report.sources import RunFolder
from collection.report.summary import build_summary
from tests.proofs.page import Check, demo_run, publish, table

POLICIES = {"base": "base", "sft": "SFT", "rl": "SFT + RL"}


def measure() -> dict[str, Any]:
    run = RunFolder(demo_run())
    summary = build_summary(run)
    collection, corpus, mining, rl = (summary[name] for name in ("collection", "filter", "mining", "rl"))
    difference = summary["differences"]["rl_minus_sft"]
    return {
        "page_types": len(collection["first_round_success_by_site"]),
        "stages": {name: stage["seconds"] for name, stage in summary["stages"].items()},
        "total_seconds": summary["total_seconds"],
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


def checks(figures: dict[str, Any]) -> list[Check]:
    difference, policies = figures["rl_minus_sft"]["pass_at_1"], figures["policies"]
    return [
        ("all stages run one after another on CPU cores", f"{figures['total_seconds']:,.0f} s", None),
        ("pass@1 of the SFT policy, %", percent(policies["sft"]["pass_at_1"]), None),
        ("pass@1 after RL, %", percent(policies["rl"]["pass_at_1"]), None),
        (
            "RL raises pass@1 over SFT on the same tasks (95% interval above 0)",
            f"{points(difference)} points",
            difference["low"] > 0,
        ),
    ]


def tables(figures: dict[str, Any]) -> list[str]:
    gains = ", ".join(points(figures["rl_minus_sft"][f"pass_at_{k}"]) for k in (1, 2, 3))
    parts = ("collection", "corpus", "sft", "policy_collection", "mining", "rl", "evaluation")
    return [
        table(
            {
                "policy": title,
                **{f"pass@{k}, %": _rate(figures["policies"][label][f"pass_at_{k}"]) for k in (1, 2, 3)},
                "steps when solved": figures["policies"][label]["steps_solved"],
            }
            for label, title in POLICIES.items()
        ),
        f"RL - SFT, paired by task, in points of pass@1 to pass@3: {gains}. Intervals: 95% bootstrap over "
        "tasks, not over trainings.",
        table({"stage": name, "seconds": seconds} for name, seconds in figures["stages"].items()),
        table({"part": name, "result": figures[name]} for name in parts),
    ]


def _rate(interval: Mapping[str, Any]) -> str:
    return percent(interval) if "low" in interval else f"{100 * interval['mean']:.1f}"


ABOUT = """\
**Baseline:** the untrained base on the same tasks, and for RL the SFT policy; no positive control. A base
that never says `done` scores 0 and is easy to beat.

{page_types} MiniWoB++ page types; the scripted teacher (simulated, with seeded mistakes); the shipped tiny
base; 2 CPU cores. Seconds are those that the stages report. Each policy plays tasks that no training uses.
The base scores 0 because success needs `done`, and nothing in its training says when a task is finished.
"""

if __name__ == "__main__":
    found = measure()
    publish("demo", "The demo", ABOUT.format(**found), found, checks(found), *tables(found))
