"""Judges on recorded runs, and how far they agree.

    python -m experiments.judge --config=configs/judge.py:demo --config.data=runs/demo/evaluate/sft \
        --workdir=runs/demo/judge
    python -m experiments.judge --config=configs/judge.py:paper --config.data=data/imported \
        --config.actor.base_url=URL --config.actor.model=gpt-4o --config.actor.api_key_env=OPENAI_API_KEY \
        --config.labels=labels.jsonl --workdir=runs/judge

Variants: `demo` (the reward's verdict and the recorded one, no model), `paper` (outcome judge and WebJudge by
one model as well, and what it makes of the outcome judge's failures when it sees all of a run). Tasks with
rubrics: `--config.judges.rubric.kind=actor --config.notes=FILE`.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import collect

VARIANTS = ("demo", "paper")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    asked = "actor" if variant == "paper" else "none"
    config = ConfigDict()
    # A data set folder of trajectories: of collect, evaluate or import_runs.
    config.data = ""
    # What a benchmark tells its judges: JSONL with task_id and, where there are any, reference and rubric.
    config.notes = ""
    # People's verdicts: JSONL with trajectory_id and success.
    config.labels = ""
    # Which of the judges the others are held against ("labels": the people); empty: the labels, where there
    # are any, else nobody.
    config.reference = ""
    # Of the bootstrap.
    config.seed = 0
    # Judgements at once.
    config.workers = 8
    # The model of the judges of kind actor, and the limits of all: none, gemini or chat.
    config.actor = collect.actor("chat" if variant == "paper" else "none", max_tokens=4096)
    # By name. kind: none (left out), reward (the environment's), recorded (what the data set says), or as in
    # configs/collect.py; `second` is for another model or method beside the others.
    config.judges = ConfigDict(
        {
            "reward": {"kind": "reward"},
            "recorded": {"kind": "recorded"},
            "outcome": collect.judge(asked, "outcome"),
            "webjudge": collect.judge(asked, "webjudge"),
            "rubric": collect.judge("none", "rubric"),
            "second": collect.judge("none", "outcome"),
        }
    )
    # Failures of the judge `of`, looked at again: kind none, actor, gemini or chat.
    config.cross_check = collect.judge(asked)
    config.cross_check.of = "outcome"
    del config.cross_check.method, config.cross_check.reference
    return config
