"""A policy trained at an application, by level, on unseen worlds, next to others. Two hours and the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collection.environments.apps.suite import apps_folder, level, make_application
from collection.evaluation.config import FIRST_EVALUATED_SEED
from tests.proofs.apps import LEVELS, memory
from tests.proofs.page import DEMO, publish, stage, table

NAME = "ihatemoney"
APPS = "build/apps"
TRAINED, UNSEEN, EPOCHS = 6, 1, 3
FOLDER = Path("runs/levels")
# What pages show in the default window; the hand-written policies read its layout.
WINDOW = {"browser.width": 1280, "browser.height": 1100}
PLAYED = {"applications": f"('{NAME}',)", "apps_folder": APPS, **WINDOW, "limits.max_seconds": 600.0}
PLAYERS = "tests.apps.players"
# Pages of applications are longer than MiniWoB++'s.
READS = {
    f"actor.server_settings.{name}": most
    for name, most in (("prompt_tokens", 3_840), ("max_new_tokens", 256))
}
READS |= {"actor.max_tokens": 256}


def main() -> None:
    rounds = {"rounds": 1, "stop_after": 0, "reflection": False, "pages": "()", "seeds": TRAINED}
    actor = {"actor.kind": f"{PLAYERS}:HandWritten", "limits.max_steps": 30}
    stage("collect", "demo", FOLDER / "collect", **PLAYED, **rounds, **actor)
    stage("build_sft", "demo", FOLDER / "corpus", trajectories=FOLDER / "collect")
    longer = {
        "max_length": 3_072,
        "row_tokens": 3_072,
        "epochs": EPOCHS,
        "batch_size": 8,
        "model": DEMO / "sft/export",
    }
    stage("train_sft", "demo", FOLDER / "sft", file="sft", corpus=FOLDER / "corpus", **longer)
    players = {
        "trained here": {"model": FOLDER / "sft/export", **READS},
        "the demo's SFT": {"model": DEMO / "sft/export", **READS},
        "random": {"actor.kind": f"{PLAYERS}:Guessing"},
        "hand-written": {"actor.kind": f"{PLAYERS}:HandWritten"},
    }
    solved = {label: evaluate(label, **player) for label, player in players.items()}
    application = make_application(NAME, apps_folder(APPS))
    application.prepare()
    remembered = memory(application, range(FIRST_EVALUATED_SEED, FIRST_EVALUATED_SEED + UNSEEN))
    tasks = {
        title: UNSEEN * sum(level(NAME, one) == title for one in application.templates) for title in LEVELS
    }
    rows = [
        {
            "level": title,
            "tasks": number,
            **{label: by_level.get(title, 0) for label, by_level in solved.items()},
            "memory": remembered["remembered_by_level"].get(title, 0),
        }
        for title, number in tasks.items()
    ]
    total = {label: sum(by_level.values()) for label, by_level in solved.items()}
    number = sum(tasks.values())
    most = max(total["random"], total["the demo's SFT"], remembered["remembered"])
    checks = [
        (
            "the hand-written policies solve the unseen tasks",
            f"{total['hand-written']} of {number}",
            total["hand-written"] == number,
        ),
        (
            "the policy that was trained here solves more of them than guesses, memory and the demo's policy",
            f"{total['trained here']} of {number}, the others {most} at most",
            total["trained here"] > most,
        ),
    ]
    about = f"""\
**Baseline:** guesses, memory and the demo's SFT policy ({most} of {number} tasks at most, the policy trained
here {total["trained here"]}). Control: the hand-written policies, which show that the tasks can be solved;
none shows that the training learns at all.

The demo's SFT policy is trained further on what the hand-written policies do at `{NAME}` in the worlds of
seeds 0 to {TRAINED - 1}. It plays each template once in an unseen world, of seed {FIRST_EVALUATED_SEED:,},
and so do others: that policy as it was, which has seen MiniWoB++ alone, one that clicks at random up to
six times and answers with a word of the page, and one that remembers all answers of seeds 0 to 999."""
    publish(
        "levels",
        "Unseen worlds by level",
        about,
        {"solved": solved, "memory": remembered},
        checks,
        table(rows),
    )


def evaluate(label: str, **player: Any) -> dict[str, int]:
    """Plays the unseen tasks once; returns how many of each level are solved."""
    words = label.replace("'", "").split()
    folder = FOLDER / "_".join(words)
    limits = {"seeds": UNSEEN, "runs": 1, "limits.max_steps": 20, "label": "-".join(words)}
    stage("evaluate", "demo,apps", folder, **PLAYED, **limits, **player)
    by_level = json.loads((folder / "report.json").read_text())["by_level"]
    return {title: round(one["tasks"] * one["pass_at_1"]["mean"]) for title, one in by_level.items()}


if __name__ == "__main__":
    main()
