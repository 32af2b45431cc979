"""A small language model as teacher, and browser-use with the same model on the same tasks. An hour.

SERVER=http://127.0.0.1:18080/v1 and MODEL=name are of a server with a context of 16,384 tokens
(docs/local_models.md).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.browser.chromium import find_programs
from collection.browser.config import BrowserConfig
from collection.environments.miniwob import EPISODE_START, EPISODE_STATUS, MiniWobServer
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Reflection, Step, Trajectory
from tests.proofs.harnesses import install
from tests.proofs.page import ROOT, Check, publish, stage, table

FOLDER = Path("runs/local_teacher")
EASY = ("click-button", "click-link", "click-option", "click-tab", "click-dialog-2")
PAGES = (*EASY, "focus-text-2", "enter-text", "choose-list", "click-checkboxes", "login-user")
SEEDS, ROUNDS, STEPS = 2, 2, 4
TASKS = [(page, seed) for seed in range(SEEDS) for page in PAGES]
# browser-use's prompt is five times as long: it plays the first seed alone.
PEER, PEER_TASKS = ("browser-use==0.13.14",), TASKS[: len(PAGES)]
# Actions that it does without: with all of them the small model opens the page's address again and again.
PEERS: dict[str, list[str]] = {
    "browser-use": [],
    "browser-use, no navigation": ["search", "navigate", "go_back", "switch", "close"],
}


def main() -> None:
    model, server = os.environ.get("MODEL"), os.environ.get("SERVER")
    if not (model and server):
        raise SystemExit("error: name the model and its server: MODEL=name SERVER=http://127.0.0.1:18080/v1")
    limits = {"pages": repr(PAGES), "seeds": SEEDS, "rounds": ROUNDS, "limits.max_steps": STEPS}
    stage("collect", "local", FOLDER, **{"actor.model": model, "actor.base_url": server}, **limits)
    runs = sorted(read_dataset(FOLDER, Trajectory), key=lambda one: one.attempt)
    reflections = [Reflection.model_validate_json(line) for line in _lines(FOLDER / "reflections.jsonl")]
    report(runs, len(reflections), {name: browser_use(name, model, server) for name in PEERS})


def browser_use(name: str, model: str, server: str) -> dict[str, dict[str, Any]]:
    """What browser-use has done, by task."""
    stem = name.replace(",", "").replace("-", "_").replace(" ", "_")
    given, out = FOLDER / "browser_use_tasks.json", FOLDER / f"{stem}.json"
    python = install("browser_use", PEER, ours=False)
    with MiniWobServer() as pages:
        scripts = {
            "start": EPISODE_START,
            "status": EPISODE_STATUS,
            "chromium": find_programs(BrowserConfig())[0],
        }
        served = {"url": f"http://127.0.0.1:{pages.port}", "model": model, "server": server}
        settings = {
            "steps": STEPS,
            "settings": {"flash_mode": True},
            "tasks": PEER_TASKS,
            "excluded": PEERS[name],
        }
        given.write_text(json.dumps({**scripts, **served, **settings}))
        player = ROOT / "tests/proofs/browser_use_player.py"
        subprocess.run([python, player, given, out], check=True)
    return json.loads(out.read_text())


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def replies(steps: Sequence[Step]) -> dict[str, Any]:
    valid = [step for step in steps if not step.error]
    return {
        "replies": len(steps) + sum(len(step.discarded) for step in steps),
        "valid": len(valid),
        "read leniently": sum(step.repaired for step in valid),
        "asked again": sum(bool(step.discarded) for step in steps),
        "steps with a failed action": sum(any(result.error for result in step.results) for step in steps),
        "seconds of a step's calls": statistics.median(step.usage.seconds for step in steps),
        "prompt tokens": statistics.median(step.usage.prompt_tokens for step in steps),
        "reply tokens": statistics.median(step.usage.response_tokens for step in steps),
    }


def report(
    runs: Sequence[Trajectory], reflections: int, peers: Mapping[str, Mapping[str, dict[str, Any]]]
) -> None:
    found = replies([step for run in runs for step in run.steps])
    by_task = defaultdict(list)
    for run in runs:
        by_task[run.task.task_id.removeprefix("miniwob/")].append(run)
    over = sum(one[-1].success or len(one) == ROUNDS for one in by_task.values())
    solved = [sum(run.success for run in runs if run.attempt == number) for number in range(1, ROUNDS + 1)]
    paid = [sum(run.reward == 1 for run in runs if run.attempt == number) for number in range(1, ROUNDS + 1)]
    ever = sum(any(run.reward == 1 for run in one) for one in by_task.values())
    firsts = [by_task[f"{page}/{seed}"][0] for page, seed in PEER_TASKS]
    ours_paid = sum(run.reward == 1 for run in firsts)
    checks: list[Check] = [
        (
            f"all tasks are over: solved, or tried {ROUNDS} times with a reflection between",
            f"{over} of {len(TASKS)}; {len(runs)} episodes, {reflections} reflections",
            over == len(TASKS),
        ),
        (
            "at least 90 % of the replies are valid",
            f"{found['valid']} of {found['replies']}",
            found["valid"] >= 0.9 * found["replies"],
        ),
        ("tasks solved: paid by the page, and claimed by the agent", f"{sum(solved)} of {len(TASKS)}", None),
        ("of them in each round", " / ".join(map(str, solved)), None),
        ("episodes paid by the page in each round, claimed or not; tasks", f"{paid}; {ever}", None),
        (
            "ours at seed 0 in the first round: tasks paid by the page; seconds a step",
            f"{ours_paid} of {len(firsts)}; {_seconds_a_step(firsts):.0f}",
            None,
        ),
    ]
    for name, peer in peers.items():
        sums = {key: sum(one[key] for one in peer.values()) for key in ("valid", "steps", "seconds")}
        paid_tasks = sum(one["reward"] == 1 for one in peer.values())
        found_there = f"{paid_tasks} of {len(peer)}; {sums['seconds'] / max(1, sums['steps']):.0f}"
        found_there += f"; {sums['valid']} of {sums['steps']} replies valid"
        checks.append((f"{name} at seed 0: tasks paid by the page; seconds a step", found_there, None))
    rows = [
        {
            "task": f"{page}, seed {seed}",
            **{
                f"round {number}": _result(by_task[f"{page}/{seed}"], number)
                for number in range(1, ROUNDS + 1)
            },
            **{name: _peer(peer.get(f"{page}/{seed}")) for name, peer in peers.items()},
        }
        for page, seed in TASKS
    ]
    about = f"""\
**Baseline:** browser-use with the same model at seed 0, with and without its actions for navigation; no
positive control, such as a model that solves the tasks, and no random policy. Ten tasks a side do not
separate scores that differ by a few.

{os.environ["MODEL"]}, a model that takes text alone, plays ten easy pages of MiniWoB++,
{SEEDS} seeds each. A task has {ROUNDS} rounds of at most {STEPS} steps, the last for `done` alone, with a
reflection of the same model between them; a task that the first round has solved has no second. browser-use
has one round of as many steps at seed 0, its `flash_mode`, no images, and the same temperature; and once more
without its actions for navigation.

`paid`: the page was solved, and the agent ended without a claim of success, since it did not know it.

Before, a trial of Qwen2.5-Coder-1.5B-Instruct at this collector had 0 of 16 valid replies: it copied the
placeholder of the prompt's last line. What had to change: two concrete actions in its place, with indices
that no page has; no screenshots; the schema of the reply where the server takes one; lenient reading of what
can mean one thing only; one more try that shows the error; a temperature of 0.2
([Local models](../local_models.md))."""
    figures = {
        "replies": found,
        "solved": solved,
        "paid": paid,
        "paid tasks": ever,
        "peers": peers,
    }
    replied = [{"of the replies": name, "": value} for name, value in found.items()]
    publish("local_teacher", "A small local teacher", about, figures, checks, table(replied), table(rows))


def _seconds_a_step(runs: Sequence[Trajectory]) -> float:
    """Those of the whole episodes, as of browser-use."""
    return sum(run.seconds for run in runs) / max(1, sum(len(run.steps) for run in runs))


def _result(runs: Sequence[Trajectory], number: int) -> str:
    for run in runs:
        if run.attempt == number:
            return "solved" if run.success else "paid" if run.reward == 1 else run.outcome
    return ""


def _peer(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    return ("solved" if one["claimed"] else "paid") if one["reward"] == 1 else "not paid"


if __name__ == "__main__":
    main()
