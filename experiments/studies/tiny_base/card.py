"""The model card that ships with the tiny base: how it was made, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.studies.tiny_base.settings import BaseConfig, Phase
from rmsweb_jax.records.files import write_atomic

_HEAD = """---
license: apache-2.0
pipeline_tag: image-text-to-text
tags: [{family}, web-agent, tiny]
---

# The demo's tiny base

A {name} of {millions:.1f} million parameters with a vocabulary of its own. It is to the demo what a released
model is to the recipe: it reads the agent's state message, answers in the agent's JSON, and
points at the element that its own `next_goal` names. It knows no task: nothing it was trained on says
what to do on a page. It is of no use outside this demo.

## How it was made

    make base BASE={variant}

that is `experiments.studies.tiny_base.run` with `configs/studies/tiny_base.py:{variant}`: {steps} steps,
about {tokens:.0f} million tokens, {minutes:.0f} minutes on two shared CPU cores. All weights start at random.

- Generated pages: buttons, links, fields, choices, lists, tabs, trees and search results with random words,
  written by the same code that writes pages for the agent. No page is seen twice.
- Recorded pages: MiniWoB++ in Chromium, seeds from 100000 (the demo trains on 0..9999 and is scored on
  1000000 and up), fresh and after up to three random actions, with screenshots of at most 16,384 pixels.
- Questions: replies that name an element of the page at random, or the one the request spells out
  (`Click on the "Ok" button.`). Learned are the action, what of the goal can be known from the prompt, and
  for spelled-out requests the whole goal. Pages under the START cover are left out.
- A row is one prompt with as many replies as fit, each attending to the prompt and to itself.
- Muon for the decoder's matrices, Adam for the rest, float32; fan-in initialisation, embeddings at 0.5.

| phase | steps | tokens a step | accuracy at its end | guessing |
|---|---|---|---|---|
"""


def write_card(
    folder: Path,
    report: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    config: BaseConfig,
    num_params: int,
) -> None:
    """Writes `folder/README.md`.

    Args:
      report: `steps`, `seconds`, and `scores` by name of a set (`train.score`).
      metrics: rows of the run's `metrics.jsonl`.
      config: settings of the run.
    """
    trained = phase_rows(metrics, config.phases)
    tokens = sum(row["steps"] * row["tokens"] for row in trained)
    rows = [
        f"| {row['phase']} | {row['steps']} | {row['tokens']} | {row['accuracy']:.3f} | {row['chance']:.3f} |"
        for row in trained
    ]
    recurrent = config.model.attention_interval > 0
    head = _HEAD.format(
        family="qwen3_5" if recurrent else "qwen3_vl",
        name="Qwen3.5" if recurrent else "Qwen3-VL",
        variant="qwen35" if recurrent else "tiny",
        millions=num_params / 1e6,
        steps=report["steps"],
        tokens=tokens / 1e6,
        minutes=report["seconds"] / 60,
    )
    kinds = ("click", "type", "select")
    table = [
        "| held-out pages | questions | index right | guessing | " + " | ".join(kinds) + " | copied tokens |",
        "|---" * (len(kinds) + 5) + "|",
    ]
    for name, values in report["scores"].items():
        by_kind = " | ".join(
            f"{values[f'accuracy_{kind}']:.3f}" if f"accuracy_{kind}" in values else "" for kind in kinds
        )
        table.append(
            f"| {name} | {values['questions']:.0f} | {values['accuracy']:.3f} | {values['chance']:.3f} "
            f"| {by_kind} | {values['copy_accuracy']:.3f} |"
        )
    scores = "\n## Scores\n\nThe index that the model finds likeliest, given the goal before it.\n\n"
    write_atomic(
        folder / "README.md", (head + "\n".join(rows) + "\n" + scores + "\n".join(table) + "\n").encode()
    )


def phase_rows(metrics: Sequence[Mapping[str, Any]], phases: Sequence[Phase]) -> list[dict[str, Any]]:
    """Steps, tokens per step, and accuracy and chance at the end of each phase of the run."""
    rows, before = [], 0
    for phase in phases:
        own = [row for row in metrics if row["phase"] == phase.name]
        if own:
            last = own[-1]
            row = {"phase": phase.name, "steps": last["step"] - before, "tokens": phase.length * phase.rows}
            rows.append(row | {"accuracy": last["accuracy"], "chance": last["chance"]})
            before = last["step"]
    return rows
