"""Plots as PDF and PNG in one style, each drawn from a data frame that is written as CSV next to them."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from collection.report.evaluations import Evaluation, benchmark_title
from rmsweb_jax.records.files import make_folder, replacing, write_atomic

# It logs each table of a font that it leaves out of a PDF.
logging.getLogger("fontTools").setLevel(logging.WARNING)

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":")
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    # Text stays text, in fonts that journals accept.
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}
# From so many points a curve is smoothed, by a moving average over the raw values in a lighter tone.
_SMOOTH_FROM = 60
# Ratio of the highest to the lowest cost from which the cost axis is logarithmic.
_LOGARITHMIC_FROM = 20
# Title -> (metric, label), ...: curves of a training.
CURVES: dict[str, tuple[tuple[str, str], ...]] = {
    "Loss": (("loss/train", "train"), ("eval/loss", "held out")),
    "Accuracy": (("loss/token_accuracy", "tokens"), ("loss/action_accuracy", "whole actions")),
    "Reward of rollouts": (
        *(("reward/best_of_k", "best of K"), ("reward/mean", "mean")),
        ("reward/group_std", "deviation in a group"),
    ),
    "Held-out prompts": (("eval/reward", "reward"), ("eval/exact", "exactly right")),
    "Accepted groups": (("gates/accepted", "accepted"),),
    "Clipped tokens": (("pg_clipfrac_lower", "lower bound"), ("pg_clipfrac_upper", "upper bound")),
    "Salvage anchor": (("salvage_loss", "loss"),),
    "Gradient norm": (("norm/gradient", "before clipping"),),
}
# The paper's three panels of RL training dynamics (RMSWeb, appendix "Salvage-DS RL training dynamics").
DYNAMICS: dict[str, tuple[tuple[str, str], ...]] = {
    "(a) Rejected groups": (
        ("gates/std_rejected_solved", "no contrast: solved"),
        ("gates/std_rejected_unsolved", "no contrast: unsolved"),
        ("gates/competence_rejected", "competence gate"),
    ),
    "(b) Log-probability": (("logp/correct", "correct"), ("logp/wrong", "wrong"), ("logp/gap", "gap")),
    "(c) KL to reference": (("kl_ref", "kl_ref"),),
    "(c) PPO KL": (("ppo_kl", "ppo_kl"),),
    "(c) Clip fraction": (("pg_clipfrac", "pg_clipfrac"),),
    "(c) Rollout log-perplexity": (("rollout_log_ppl", "rollout_log_ppl"),),
}
METRICS = tuple(metric for lines in DYNAMICS.values() for metric, _ in lines)
# Metrics of one training, one row per step.
Rows = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure, and the data that it shows: `series`, `x`, `y`, and where known `low`, `high` and `panel`.

    Attributes:
      name: of its files.
    """

    name: str
    title: str
    figure: Figure
    data: pandas.DataFrame

    def write(self, folder: Path) -> None:
        """Writes `name` as .pdf, .png and .csv; the same data give the same bytes."""
        make_folder(folder)
        for ending, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
            with replacing(folder / f"{self.name}.{ending}") as path, matplotlib.rc_context(_STYLE):
                self.figure.savefig(path, format=ending, metadata=metadata)
        write_atomic(folder / f"{self.name}.csv", self.data.to_csv(index=False).encode())


def cost_plots(evaluations: Sequence[Evaluation]) -> list[Plot]:
    """Plots pass@k against the cost of k runs by benchmark, in dollars if all policies have a price.

    Otherwise in tokens. Evaluations without any result are left out, as are policies that cost nothing.
    """
    plots = []
    for benchmark in dict.fromkeys(one.benchmark for one in evaluations):
        shown = [one for one in evaluations if one.benchmark == benchmark and one.score["pass_at_1"]]
        dollars = all(one.score["cost"]["usd"] for one in shown)
        costs = [_dollars(one) if dollars else _tokens(one) for one in shown]
        if not any(costs):
            continue
        data = pandas.DataFrame(
            [
                {"series": one.label, "k": k, "x": k * cost, **_percent(rate)}
                for one, cost in zip(shown, costs, strict=True)
                if cost
                for k in range(1, min(3, one.results.runs) + 1)
                if (rate := one.score[f"pass_at_{k}"])
            ]
        )
        figure, axes = _figure(4.6, 3.0)
        _draw(axes, data, "o")
        for k, *point in data[["k", "x", "y"]].to_numpy().tolist():
            axes.annotate(f"{k:.0f}", point, (4, -9), textcoords="offset points", fontsize=7)
        ends = data["x"].agg(["min", "max"]).tolist()
        if ends[1] / ends[0] >= _LOGARITHMIC_FROM:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_xlim(left=0)
        axes.set_xlabel(f"cost of k runs of a task ({'US dollars' if dollars else 'tokens'})")
        _rates(axes, "pass@k (%)")
        title = f"Accuracy and cost on {benchmark_title(benchmark)}"
        plots.append(Plot(f"cost-{benchmark}", title, figure, data))
    return plots


def checkpoints_plot(evaluations: Sequence[Evaluation]) -> list[Plot]:
    """Plots pass@1 over policies, a line a benchmark, with 95 % intervals.

    The axis is the number at the end of the labels, such as of checkpoints, if all have another one;
    otherwise labels are in their order. Nothing is drawn of a single policy.
    """
    shown = [one for one in evaluations if one.score["pass_at_1"]]
    labels = list(dict.fromkeys(one.label for one in shown))
    if len(labels) < 2:
        return []
    numbers = [int(found[0]) for label in labels if (found := re.search(r"\d+$", label))]
    numbered = len(set(numbers)) == len(labels)
    places = dict(zip(labels, numbers if numbered else range(len(labels)), strict=True))
    data = pandas.DataFrame(
        [
            {
                "series": benchmark_title(one.benchmark),
                "policy": one.label,
                "x": places[one.label],
                **_percent(one.score["pass_at_1"]),
            }
            for one in sorted(shown, key=lambda one: places[one.label])
        ]
    )
    figure, axes = _figure(4.6, 2.8)
    _draw(axes, data, "o")
    if not numbered:
        axes.set_xticks(range(len(labels)), labels)
        axes.margins(x=0.1)
    axes.set_xlabel("checkpoint" if numbered else "policy")
    _rates(axes, "pass@1 (%)")
    return [Plot("pass-at-1", "pass@1 over policies", figure, data)]


def curve_plots(rows: Rows, name: str) -> list[Plot]:
    """Plots the curves of a training that were logged; files begin with `name`."""
    plots = []
    for title, lines in CURVES.items():
        data = _series([rows], lines)
        if not data.empty:
            figure, axes = _figure(3.4, 2.2)
            _draw(axes, data)
            _steps(axes, title, data)
            plots.append(Plot(f"{name}-{title.lower().replace(' ', '-')}", f"{name}: {title}", figure, data))
    return plots


def dynamics_plot(trainings: Sequence[Rows], name: str = "dynamics") -> list[Plot]:
    """Plots the paper's panels of training dynamics; of several trainings the mean and the range by step.

    Args:
      trainings: runs of the same settings from different seeds.
    """
    panels = {title: _series(trainings, lines) for title, lines in DYNAMICS.items()}
    if all(data.empty for data in panels.values()):
        return []
    figure, all_axes = _figure(7.2, 3.8, 2, 3)
    for axes, (title, data) in zip(all_axes.flat, panels.items(), strict=True):
        _draw(axes, data)
        _steps(axes, title, data)
    data = pandas.concat([data.assign(panel=title) for title, data in panels.items()])
    return [Plot(name, "RL training dynamics", figure, data)]


def _series(trainings: Sequence[Rows], lines: Sequence[tuple[str, str]]) -> pandas.DataFrame:
    """Returns metrics by step: mean and range over the trainings that logged it at that step."""
    found = [
        {"series": label, "x": row["step"], "value": float(row[metric])}
        for metric, label in lines
        for rows in trainings
        for row in rows
        if isinstance(row.get(metric), int | float)
    ]
    table = pandas.DataFrame(found, columns=["series", "x", "value"])
    grouped = table.groupby(["series", "x"], sort=False)["value"]
    data = grouped.agg(y="mean", low="min", high="max").reset_index()
    return data if len(trainings) > 1 else data.drop(columns=["low", "high"])


def _percent(rate: Mapping[str, float]) -> dict[str, float]:
    return {"y": 100 * rate["mean"], "low": 100 * rate["low"], "high": 100 * rate["high"]}


def _dollars(one: Evaluation) -> float:
    return one.score["cost"]["usd"]["mean"]


def _tokens(one: Evaluation) -> float:
    return sum(one.score["cost"][name]["mean"] for name in ("prompt_tokens", "response_tokens"))


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns)


def _draw(axes: Any, data: pandas.DataFrame, marker: str = "") -> None:
    """Draws a line a series: with bars of its interval if it has markers, else with a band."""
    with matplotlib.rc_context(_STYLE):
        for number, (name, line) in enumerate(data.groupby("series", sort=False)):
            color = COLORS[number % len(COLORS)]
            dash = _DASHES[number // len(COLORS) % len(_DASHES)]
            x, y = line["x"].to_numpy(float), line["y"].to_numpy(float)
            if len(x) >= _SMOOTH_FROM:
                width = max(5, len(x) // 25)
                axes.plot(x, y, color=color, linewidth=0.6, alpha=0.35)
                # "valid": no padding, which would bend the curve at its ends.
                x, y = x[width - 1 :], np.convolve(y, np.ones(width) / width, mode="valid")
            axes.plot(x, y, dash, color=color, marker=marker or ("o" if len(x) <= 25 else ""), label=name)
            if "low" in line and marker:
                axes.vlines(line["x"], line["low"], line["high"], color=color, linewidth=1.0, alpha=0.6)
            elif "low" in line:
                axes.fill_between(line["x"], line["low"], line["high"], color=color, alpha=0.18, linewidth=0)
        if len(set(data["series"])) > 1 or marker:
            axes.legend(loc="best", handlelength=1.6)


def _steps(axes: Any, title: str, data: pandas.DataFrame) -> None:
    axes.set_visible(not data.empty)
    axes.set_title(title, loc="left", fontsize=_STYLE["axes.titlesize"])
    axes.set_xlabel("step")
    if min(data["y"], default=0) >= 0:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _rates(axes: Any, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(0, 100)
