"""A small run folder of real records, written with the stages' own writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collection.config import BuildSftSettings
from collection.evaluation.results import gather_results, score, to_json
from collection.fleet.rounds import yield_report
from collection.mining.mine import MiningResult, summarize
from configs import build_sft as build_sft_config
from experiments import build_sft
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Trajectory
from rmsweb_jax.settings import from_config
from tests.evaluation.made import REWARD
from tests.records.sets import png
from tests.trajectories import DONE, step, trajectory

SITES = ("click-button", "login-user")
SOLVED = {"teacher": (0, 1, 1), "sft": (0, 1, 1), "base": (0, 0, 0), "rl": (1, 1, 1)}
HOSTILE = "Type \"<script>alert('x')</script>\" & press Login"


def play(folder: Path, actor: str, site: str, seed: int, attempt: int) -> Trajectory:
    won = bool(SOLVED[actor][attempt - 1]) and not (actor == "sft" and seed % 2)
    images = ImageStore(folder)
    acts = ({"click_element_by_index": {"index": 1}}, {"click_element_by_index": {"index": 2}}, DONE)
    steps = (
        step(number, act, page=str(number), screenshot=images.put(png(number)))
        for number, act in enumerate(acts, start=1)
    )
    return trajectory(
        *steps,
        task_id=f"miniwob/{site}/{seed}",
        objective=HOSTILE,
        actor=actor,
        attempt=attempt,
        outcome="done" if won else "failures",
        success=won,
        reward=None,
        judge_fingerprint=REWARD,
    )


def write_plays(folder: Path, actor: str, attempts: int, first_seed: int = 0) -> list[Trajectory]:
    plays = [
        play(folder, actor, site, seed, attempt)
        for site in SITES
        for seed in (first_seed, first_seed + 1)
        for attempt in range(1, attempts + 1)
    ]
    write_dataset(folder, plays, "trajectories")
    return plays


def write_report(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(to_json(report))


def write_collection(root: Path, stage: str, actor: str, attempts: int) -> None:
    plays = write_plays(root / stage, actor, attempts)
    who = {"teacher": "scripted", "model": "scripted", "reflection": actor == "teacher", "reflections": 4}
    write_report(root / stage, {"stage": "collect", "seconds": 12.5, **who, **yield_report(plays, attempts)})


def write_evaluation(root: Path, label: str) -> None:
    folder = root / "evaluate" / label
    plays = write_plays(folder, label, 3, 1_000_000)
    results = gather_results(label, "m", 3, plays, "miniwob")
    results.write(folder)
    write_report(folder, {"stage": "evaluate", "seconds": 70.0, "temperature": 0.6, **score(results)})


def write_mining(root: Path) -> None:
    success, failure = (f"miniwob/login-user/0#{name}" for name in ("teacher-2", "sft-1"))
    shot = ImageStore(root / "collect").put(png(2))
    common = {"task_id": "miniwob/login-user/0", "site": "login-user", "category": "ui_navigation"}
    audit = AuditPair(
        **common,
        success_id=success,
        localization_id=failure,
        label_confidence=0.8,
        label_source="rule",
        decision="kept",
        scores={"total": 0.9},
        success_step=2,
        localization_step=2,
        success_screenshot=shot,
        localization_screenshot=shot,
        notes=("primary pair",),
    )
    dropped = AuditPair(
        task_id="miniwob/click-button/0",
        site="click-button",
        success_id="",
        localization_id="",
        category="",
        label_confidence=0.0,
        label_source="rule",
        decision="no_success",
    )
    prompt = RlPrompt(**common, prompt_id="p", messages=(), target="{}")
    write_dataset(root / "mine/audit", [audit, dropped], "audit_pairs")
    mined = MiningResult([prompt], [audit, dropped], {}, {}, 1)
    write_report(root / "mine", {"stage": "mine", "seconds": 1.0, **summarize(mined)})


def write_training(root: Path) -> None:
    sft = {"model": "tiny_base", "trainable": "lora", "steps": 100, "samples": 48}
    rl: dict[str, Any] = {"model": "sft/export", "iterations": 10, "optimizer_steps": 40, "prompts": 1}
    rows = [{"step": step, "loss/train": 1 / step, "loss/token_accuracy": 0.5} for step in range(1, 101)]
    rounds = [
        {
            "step": step,
            "gates/accepted": 0.4,
            "gates/std_rejected_solved": 0.03 * step,
            "gates/std_rejected_unsolved": 0.1,
            "gates/competence_rejected": 0.2,
            "reward/best_of_k": 0.7,
            "reward/mean": 0.5,
            "logp/correct": -0.5 + 0.02 * step,
            "kl_ref": None,
        }
        for step in range(1, 11)
    ]
    parts = {"type/click_element_by_index": 0.5, "type/done": 0.25, "category/ui_navigation": 0.4}
    rounds[0] |= {"eval/reward": 0.45, **{f"eval/reward/{name}": value for name, value in parts.items()}}
    parts = {"type/click_element_by_index": 0.75, "category/ui_navigation": 0.6}
    rl["final"] = rounds[-1] | {
        "eval/reward": 0.65,
        **{f"eval/reward/{name}": value for name, value in parts.items()},
    }
    for stage, report, metrics in (("sft", sft, rows), ("rl", rl, rounds)):
        write_report(root / stage, {"stage": stage, "seconds": 200.0, **report})
        lines = [json.dumps(row) + "\n" for row in metrics]
        (root / stage / "metrics.jsonl").write_text("".join(lines) + '{"step": 9')


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every stage done."""
    root = tmp_path_factory.mktemp("demo-run")
    write_collection(root, "collect", "teacher", 3)
    config = build_sft_config.get_config("demo")
    config.trajectories = str(root / "collect")
    (root / "sft_corpus").mkdir()
    build_sft.main(from_config(BuildSftSettings, config), root / "sft_corpus")
    write_collection(root, "collect_policy", "sft", 1)
    write_mining(root)
    write_training(root)
    for label in ("base", "sft", "rl"):
        write_evaluation(root, label)
    return root


@pytest.fixture(scope="session")
def begun_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collected, and nothing more."""
    root = tmp_path_factory.mktemp("begun-run")
    write_collection(root, "collect", "teacher", 3)
    return root
