"""A foreign data set with points: imported, trained on by SFT and RL, and measured on tasks held out."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection import Browser
from collection.browser.config import BrowserConfig
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task
from rmsweb_jax import Policy, read_dataset
from rmsweb_jax.actions import ReplyError, Target, parse_reply, points_of, score_response
from rmsweb_jax.actions.rules import inside
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from tests.formats.agent_runs import molmo_run
from tests.formats.foreign_runs import write_json
from tests.proofs.page import Check, named, publish, stage, table

FOLDER = Path("runs/points")
# What a task asks to be clicked: the element of a page, by what the request names.
PAGES = {
    "click-test": "document.querySelector('#subbtn')",
    "click-color": "document.querySelector(`[data-color='${arguments[0]}']`)",
    "focus-text": "document.querySelector('#tt')",
}
SIZE = (160, 210)
TRAINED, HELD_OUT, EPOCHS = 120, 40, 16
BOX = (
    "const box = {}.getBoundingClientRect();"
    "return [box.left, box.top, box.right, box.bottom].map(Math.round);"
)


def main() -> None:
    boxes = {name: write_runs(FOLDER / name, *seeds) for name, seeds in splits().items()}
    for name in boxes:
        stage("import_runs", "molmoweb", FOLDER / f"{name}_imported", source=FOLDER / name)
        corpus = FOLDER / f"{name}_corpus"
        stage("build_sft", "screenshot", corpus, trajectories=FOLDER / f"{name}_imported")
    model = {"max_pixels": 32_768, "row_tokens": 1_024}
    sft = {"corpus": FOLDER / "train_corpus", "epochs": EPOCHS, "batch_size": 16, **model}
    stage("train_sft", "demo", FOLDER / "sft", file="sft", **sft)
    small = {
        "iterations": 4,
        "train_groups": 8,
        "mini_batch_groups": 4,
        "gen_batch_groups": 8,
        "eval_every": 4,
    }
    small |= {"max_salvage_groups": 4, "rollout_lanes": 32, "held_out": 0.1, "max_response_tokens": 96}
    prompts = {"prompts": FOLDER / "train_corpus", "model": FOLDER / "sft/export"}
    stage("train_rl", "demo,full_corpus", FOLDER / "rl", file="rl", **prompts, **small, **model)
    samples = [one for one in read_dataset(FOLDER / "test_corpus", SftSample) if one.window is not None]
    goals = [boxes["test"][one.task_id.partition("/")[2]] for one in samples]
    policies = {"base": "tiny_base", "SFT": FOLDER / "sft/export", "SFT + RL": FOLDER / "rl/export"}
    rows = {name: measure(policy, samples, goals) for name, policy in policies.items()}
    trained = [points(one.response) for one in read_dataset(FOLDER / "train_corpus", SftSample) if one.window]
    middle = tuple(round(statistics.median(axis)) for axis in zip(*(one[0] for one in trained), strict=True))
    blind = sum(inside(box, (middle[0], middle[1])) for box in goals)
    rl = json.loads((FOLDER / "rl/report.json").read_text())
    report(rows, blind, len(samples), rl)


def splits() -> dict[str, tuple[int, int]]:
    """First seed and number of seeds of each page."""
    return {"train": (0, TRAINED), "test": (10_000, HELD_OUT)}


def write_runs(folder: Path, first: int, count: int) -> dict[str, tuple[int, int, int, int]]:
    """Plays tasks and saves them in MolmoWeb's own layout; returns the box of each task's element.

    Each is one click, at the middle of its element, which the page itself has paid.
    """
    known = folder / "boxes.json"
    if known.exists():
        return {name: tuple(box) for name, box in json.loads(known.read_text()).items()}
    boxes = {}
    with MiniWobServer() as server:
        config = BrowserConfig(width=SIZE[0], height=SIZE[1], host_rules=server.host_rules)
        with Browser(config) as browser:
            episode = MiniWobEpisode(browser)
            for page, element in PAGES.items():
                for seed in range(first, first + count):
                    task = episode.reset(make_task(page, seed))
                    colour = re.findall(r"the (\w+) colored", task.objective)
                    left, top, right, bottom = browser.script(BOX.format(element), *colour)
                    shots = [browser.screenshot()]
                    point = ((left + right) // 2, (top + bottom) // 2)
                    browser.mouse(point)
                    shots.append(browser.screenshot())
                    if episode.status() != (True, 1.0):
                        continue  # The page draws some elements over others.
                    name = f"{page}-{seed}"
                    save(folder / name, task.objective, point, shots)
                    boxes[name] = (left, top, right, bottom)
    known.write_text(json.dumps(boxes))
    return boxes


def save(folder: Path, goal: str, point: tuple[int, int], shots: Sequence[bytes]) -> None:
    click = {"x": float(point[0]), "y": float(point[1]), "button": "left", "click_type": "single"}
    molmo_run(folder, (("mouse_click", click), ("send_msg_to_user", {"msg": "[EXIT]"})))
    write_json(folder / "metadata.json", {"goal": goal})
    write_json(folder / "webvoyager_verdict.json", {"thought": "", "verdict": "SUCCESS"})
    for number, shot in enumerate(shots, 1):
        (folder / f"images/screenshot_{number:03d}.png").write_bytes(shot)


def points(reply: str) -> list[tuple[int, int]]:
    try:
        return [point for action in parse_reply(reply).executable for point in points_of(action)]
    except ReplyError:
        return []


def measure(
    model: Path | str, samples: Sequence[SftSample], goals: Sequence[tuple[int, int, int, int]]
) -> dict[str, Any]:
    """Greedy replies to the held-out prompts: whether the first point is in the element, and the reward."""
    policy = Policy.load(model, max_pixels=32_768)
    replies = policy.sample(
        [one.messages for one in samples],
        n=1,
        images=ImageStore(FOLDER / "test_corpus"),
        temperature=0.0,
        max_new_tokens=96,
        batch_size=32,
    )
    hits, rewards = 0, []
    by_page = dict.fromkeys(PAGES, 0)
    for sample, (reply,), box in zip(samples, replies, goals, strict=True):
        found = points(reply)
        hit = bool(found) and inside(box, found[0])
        hits += hit
        by_page[sample.task_id.partition("/")[2].rpartition("-")[0]] += hit
        assert sample.window is not None
        rewards.append(score_response(reply, Target(sample.response, sample.window)))
    return {"hits": hits, "of": len(samples), **by_page, "mean_reward": statistics.mean(rewards)}


def report(rows: dict[str, dict[str, Any]], blind: int, count: int, rl: dict[str, Any]) -> None:
    base, sft, last = (rows[name]["hits"] for name in ("base", "SFT", "SFT + RL"))
    curve = [f"{rl[when]['eval/reward']:.3f}" for when in ("first", "final") if "eval/reward" in rl[when]]
    checks: list[Check] = [
        ("SFT hits more held-out elements than the base", f"{sft} of {count}, {base}", sft > base),
        ("and the best single point for all tasks hits", f"{blind} of {count}", None),
        (
            "RL is rewarded on the imported points",
            f"{last} of {count} hit after it; {' to '.join(curve)}",
            None,
        ),
    ]
    about = f"""
**Baseline:** the best single point for all tasks hits {blind} of {count}, SFT {sft}:
{"more" if sft > blind else "no more"}; no positive control, such as a larger model that finds the elements.

Single clicks of three MiniWoB++ pages, rendered in Chromium at {SIZE[0]} x {SIZE[1]} pixels and written as
MolmoWeb writes its runs. `import_runs` reads the folder, `build_sft:screenshot` makes prompts of task,
history and screenshot, and `train_sft` and `train_rl` (`full_corpus`) train the demo's base, which sees no
page text. {TRAINED} tasks of each page are trained on, {HELD_OUT} others are measured: whether the first
point of a greedy reply is in the box of the element, which is in no file that training reads. The reward goes
by distance: 1 for the same pixel, 0.7 up to 5 pixels.

A policy that hits no more than the best single point, the median of those trained on, has learned to answer
with a point, and not to look for it ({EPOCHS} epochs)."""
    publish(
        "points",
        "A foreign data set with points",
        about,
        {"policies": rows, "blind": blind},
        checks,
        table(named(rows, "policy")),
    )


if __name__ == "__main__":
    main()
