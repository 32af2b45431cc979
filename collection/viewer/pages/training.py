"""The page of a training: curves, held-out replies, and groups with all their replies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from collection.report.dynamics import dynamics_plot
from collection.report.page_plots import line_plot, series, standalone
from collection.viewer.pages.base import MOST, NotFoundError, Page, Sources, whole
from collection.viewer.pages.runs import state_of

# Metric -> title of its curve.
_CURVES = {
    "loss/train": "loss",
    "eval/loss": "held-out loss",
    "eval/action_accuracy": "held-out exact replies",
    "eval/exact": "held-out exact replies",
    "eval/reward": "held-out reward",
    "reward/mean": "reward",
    "reward/best_of_k": "best of k",
    "gates/accepted": "accepted groups",
    "tokens_per_second/rollout": "sampler, tokens/s",
    "tokens_per_second/update": "update, tokens/s",
}
# Classes of shades, and what is shaded at most: a token of log-probability -5 is as rare as one of 150.
_SHADES, _RAREST = 5, 5.0


def training(sources: Sources, asked: Mapping[str, str]) -> Page:
    """Curves, held-out replies, and the groups of an iteration, or of a `prompt` in all iterations."""
    found = sources.folder(asked, "metrics.jsonl")
    rows = found.lines("metrics.jsonl")
    plots = ["dynamics"] if any("kl_ref" in row for row in rows) else []
    plots += [metric for metric in _CURVES if any(isinstance(row.get(metric), float) for row in rows)]
    groups, replies = found.lines("groups.jsonl"), found.lines("replies.jsonl")
    steps = sorted({step for group in groups if isinstance(step := group.get("step"), int)})
    prompt = asked.get("prompt", "")
    step = whole(asked.get("step"), steps[-1] if steps else 0)
    shown = [one for one in groups if (one.get("prompt_id") == prompt if prompt else one.get("step") == step)]
    last = max((reply.get("step", 0) for reply in replies), default=0)
    worst = sorted(
        (one for one in replies if one.get("step") == last), key=lambda one: float(one.get("reward", 0.0))
    )
    return Page(
        "training",
        f"Training {found.name}",
        {
            "name_of": found.name,
            "plots": [(metric, _CURVES.get(metric, "Training dynamics")) for metric in plots],
            "steps": steps,
            "step": step,
            "prompt": prompt,
            "groups": [_shaded(group) for group in shown[:MOST]],
            "replies": worst[:MOST],
            "replies_at": last,
            "last": rows[-1] if rows else {},
            "live": state_of(found) == "going on",
        },
    )


def _shaded(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group whose replies' tokens have a shade each: 0 for certain ones, up to 5 for rare ones."""
    replies = []
    for reply in group.get("responses", ()):
        tokens = [
            (text, log_prob, min(_SHADES, math.ceil(-log_prob * _SHADES / _RAREST)) if log_prob < -0.1 else 0)
            for text, log_prob in reply.get("tokens", ())
        ]
        replies.append({**reply, "tokens": tokens})
    return {**group, "responses": replies}


def plot(sources: Sources, asked: Mapping[str, str]) -> str:
    """A curve of a training, or its dynamics, as an SVG file.

    Raises:
      NotFoundError: there is no such training or metric.
    """
    found, metric = sources.folders.all().get(asked.get("data", "")), asked.get("metric", "")
    rows = found.lines("metrics.jsonl") if found else []
    svg = ""
    if metric == "dynamics":
        svg = dynamics_plot([rows], "dynamics", "Training dynamics")
    elif metric in _CURVES and (curve := series(rows, metric, _CURVES[metric])):
        svg = line_plot([curve], "curve", _CURVES[metric])
    if not svg:
        raise NotFoundError("no such curve")
    return standalone(svg)
