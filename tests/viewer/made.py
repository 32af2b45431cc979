"""A folder of runs as the stages leave them, with text that tries to run in every field of a page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from collection.evaluation.dates import Refreshed
from collection.evaluation.results import gather_results
from collection.judges.judgements import Judgement
from collection.llm.calls import CallEnd, Calls, Limits
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import (
    ActionResult,
    AuditPair,
    CallUsage,
    Element,
    Incident,
    Tab,
    Trajectory,
)
from tests.evaluation.made import REWARD
from tests.report.evaluated import write_results
from tests.trajectories import CLICK, DONE, PNG, SHOT, TYPE, numbered, step, trajectory

# Text of a page that would report itself if it ran.
HOSTILE = (
    '"><img src=x onerror="window.hit=1"><script>window.hit=2</script>'
    "<svg/onload=window.hit=3></svg>'-window.hit=4-'{{7*7}}</pre></title>"
    "<a href=javascript:window.hit=5>x</a>"
)
NO_SHOT = "0" * 64


def make_runs(root: Path) -> Path:
    """Data sets of episodes, mined pairs, a training, evaluations of the same tasks, judges, moved dates."""
    ImageStore(root / "collect").put(PNG)
    runs = [
        trajectory(*numbered(TYPE, CLICK), success=False, detail="", final_text="gave up"),
        trajectory(*numbered(TYPE, TYPE, CLICK, DONE), attempt=2, final_text="in", judge="reward"),
        trajectory(*numbered(CLICK), success=False, task_id="miniwob/login-user/2", outcome="captcha"),
        hostile("miniwob/hostile/1"),
        # It ended before the page had paid.
        trajectory(*numbered(TYPE, DONE), success=False, reward=None, task_id="miniwob/login-user/3"),
    ]
    write_dataset(root / "collect", runs, "trajectories")
    notes = [
        {"task_id": runs[0].task.task_id, "attempt": 1, "guidance": "Enter the password before login."},
        {"task_id": runs[0].task.task_id, "attempt": 2, "guidance": "Enter nothing more before login."},
        {"task_id": "miniwob/hostile/1", "attempt": 1, "guidance": HOSTILE},
    ]
    (root / "collect/reflections.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    report = {
        "stage": "collect",
        "seconds": 3.5,
        "tasks": 4,
        "success_by_round": {"1": 0.25, "2": 1.0, "3": None},
    }
    (root / "collect/report.json").write_text(json.dumps(report))
    with Calls(root / "collect/calls.jsonl") as calls:
        turn = calls.begin("reply", "gemini", 1.0, 1000, Limits())
        calls.end(turn.call, CallEnd("ok", True, 1, 1000, 0, 50, 1.25))
    mined = AuditPair(
        task_id=runs[0].task.task_id,
        site="login-user",
        success_id=runs[1].trajectory_id,
        localization_id=runs[0].trajectory_id,
        category="endpoint_incomplete",
        label_confidence=0.9,
        label_source="rule",
        decision="kept",
        scores={"state": 0.9, "total": 0.8} | {f"a part of them {number}": 0.5 for number in range(9)},
        success_step=2,
        localization_step=2,
        notes=("primary pair", HOSTILE),
    )
    write_dataset(root / "mine/audit", [mined], "audit_pairs")
    decisions = {"no_success": 2, "replay": 1, "domain_cap": 0, "kept": 1}
    share = {"filter_context": {"share": 100.0, "paper_share": 4.53}}
    report = {
        "stage": "mine",
        "seconds": 1,
        "tasks": 4,
        "decisions": decisions,
        "categories": share,
        "prompts": 1,
    }
    (root / "mine/report.json").write_text(json.dumps(report))
    make_training(root / "rl")
    make_training(root / "rl2", better=0.1)
    make_judgements(root / "judge", runs)
    make_dates(root / "evaluate/dated")
    for number, label in enumerate(("sft", "rl")):
        make_evaluation(root / f"evaluate/{label}", label, solves=2 + number)
    return root


def hostile(task_id: str, text: str = HOSTILE) -> Trajectory:
    """An episode with a text in every field that a page or a model can set."""
    observed = step(1, CLICK, result_text=text, memory=text, screenshot=SHOT)
    seen = observed.observation.model_copy(
        update={
            "url": f"javascript:{text}",
            "title": text,
            "tabs": (Tab(tab_id=text, url=text, title=text),),
            "page_text": f"[3]{text}\n{text}",
            "elements": (Element(index=3, tag=text, text=text, attributes={text: text}, box=(0, 0, 1, 1)),),
        }
    )
    results = (ActionResult(action=text, text=text, output=text),)
    incidents = (Incident(kind="injection", detail=text),)
    first = observed.model_copy(update={"observation": seen, "results": results, "incidents": incidents})
    second = step(2, response=text, error=text, screenshot=NO_SHOT)
    return trajectory(
        *(first, second),
        task_id=task_id,
        objective=text,
        final_text=text,
        judge=text,
        judge_text=text,
        detail=text,
        success=False,
    )


def make_training(folder: Path, better: float = 0.0) -> None:
    folder.mkdir()
    rows = [
        {"step": at, "eval/reward": at / 10 + better, "reward/mean": at / 20, "kl_ref": at / 1000}
        | {
            "eval/reward/type/click": 0.5,
            "pg_clipfrac": 0.0,
            "update/padding": 0.4,
            "salvage_loss": float("nan"),
        }
        for at in (1, 2, 3)
    ]
    tokens = [[HOSTILE, -4.5], ["certain", -0.01], ["", -0.2]]
    reply = {"text": HOSTILE, "reward": 0.0, "field": "action", "truncated": False, "log_prob": -0.5}
    reply["tokens"] = tokens
    groups = [
        {
            "step": at,
            "prompt_id": "p1",
            "category": "",
            "fate": "accepted",
            "target": "{}",
            "responses": [reply, {**reply, "text": "right", "reward": 1.0}],
        }
        for at in (1, 2)
    ]
    replies = [{"step": 3, "sample_id": "s1", "reply": HOSTILE, "target": "{}", "reward": 0.25}]
    for name, lines in (("metrics", rows), ("groups", groups), ("replies", replies)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    final = {"step": 3, "eval/reward": 0.4 + better}
    report = {"stage": "train_rl", "seconds": 9.0, "row_tokens": 768, "final": final}
    (folder / "report.json").write_text(json.dumps(report))
    settings = {
        "prompts": "runs/mine/prompts",
        "model": "Qwen/Qwen3-VL",
        "eval_prompts": "elsewhere/runs/mine/audit",
    }
    (folder / "config.json").write_text(json.dumps(settings))


def make_judgements(folder: Path, runs: Sequence[Trajectory]) -> None:
    """Two judges, which differ on the second run."""
    folder.mkdir()
    lines = [
        Judgement(
            trajectory_id=run.trajectory_id,
            task_id=run.task.task_id,
            judge=judge,
            success=run.success and judge == "own",
            score=None,
            text=HOSTILE,
            usage=CallUsage(),
            key="",
            fingerprint=REWARD,
        )
        for run in runs
        for judge in ("own", "other")
    ]
    (folder / "judgements.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in lines))
    pair = {"first": "own", "second": "other", "agreement": 0.75, "kappa": None}
    (folder / "report.json").write_text(json.dumps({"stage": "judge", "seconds": 1, "pairs": [pair]}))


def make_dates(folder: Path) -> None:
    """A refresh of the dates of one prompt."""
    folder.mkdir(parents=True)
    old, new = f"Fly on May 3 {HOSTILE}", f"Fly on December 20 {HOSTILE}"
    moved = Refreshed(task_id=HOSTILE, old=old, prompt=new, notes={old: new}, by="model", reason=HOSTILE)
    (folder / "date_refresh.jsonl").write_text(moved.model_dump_json() + "\n")
    (folder / "report.json").write_text('{"stage": "evaluate", "seconds": 1}')


def make_evaluation(folder: Path, label: str, solves: int) -> None:
    """Three tasks, of which the policy solves the first ones."""
    ImageStore(folder).put(PNG)
    runs = [
        trajectory(
            *numbered(TYPE, CLICK if number < solves else TYPE, DONE),
            task_id=f"miniwob/login-user/{100 + number}",
            actor=label,
            success=number < solves,
            judge="reward",
        )
        for number in range(3)
    ]
    write_dataset(folder, runs, "trajectories")
    write_results(
        folder, dataclasses.replace(gather_results(label, "m", 1, runs, "miniwob"), judges=((REWARD, 3),))
    )
