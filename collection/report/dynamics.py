"""The paper's three panels of RL training dynamics (RMSWeb, appendix "Salvage-DS RL training dynamics")."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from collection.report.page_plots import BAD, MUTED, SERIES, Series, draw_curve, label_steps, render

# Metrics of one training, one row per step.
Rows = Sequence[Mapping[str, Any]]

_SIZE = (10.6, 3.3)
_SOLVED, _UNSOLVED = "gates/std_rejected_solved", "gates/std_rejected_unsolved"
_COMPETENCE = "gates/competence_rejected"
# Axes -> ((metric, label, colour), ...).
_LINES = {
    "gates": (
        (_SOLVED, "no contrast: solved", BAD),
        (_UNSOLVED, "no contrast: unsolved", BAD),
        (_COMPETENCE, "competence gate", SERIES[0]),
    ),
    "logp": (("logp/correct", "correct", SERIES[2]), ("logp/wrong", "wrong", BAD)),
    "gap": (("logp/gap", "gap", SERIES[0]),),
    "kl_ref": (("kl_ref", "KL to reference", SERIES[0]),),
    "ppo_kl": (("ppo_kl", "ppo_kl", SERIES[1]),),
    "pg_clipfrac": (("pg_clipfrac", "clip fraction", SERIES[3]),),
    "rollout_log_ppl": (("rollout_log_ppl", "rollout log-perplexity", SERIES[2]),),
}
METRICS = tuple(metric for lines in _LINES.values() for metric, _, _ in lines)


@dataclasses.dataclass(frozen=True)
class _Mean:
    """A metric by step: mean and range over the trainings that logged it at that step; all [N]."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def dynamics_plot(trainings: Sequence[Rows], name: str, title: str) -> str:
    """Draws three panels in a row as one `<svg>`; returns "" if the metrics have no values for them.

    (a) share of groups that the gates rejected, (b) log-probability of correct and wrong replies and their
    gap, (c) drift of the policy. For several trainings: the mean, with a band from the lowest to the highest.

    Args:
      trainings: runs of the same settings from different seeds.
      name, title: as for `plots.render`.
    """
    if not any(_mean(trainings, metric) for metric in METRICS):
        return ""

    def draw(figure: Figure) -> None:
        # No backgrounds: matplotlib writes their corners as 0 or -0 from one run to the next.
        panels: Any = figure.subfigures(1, 3, width_ratios=(1.15, 1.0, 1.55), frameon=False)
        left, middle, right = panels
        left.suptitle("(a) Rejected by the gates, share of groups", x=0.02, ha="left", fontsize=9)
        middle.suptitle("(b) Log-probability of replies", x=0.02, ha="left", fontsize=9)
        right.suptitle("(c) Drift and stability", x=0.02, ha="left", fontsize=9)
        upper, lower = middle.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
        strips = right.subplots(2, 2, sharex=True).flat
        all_axes = dict(zip(_LINES, (left.subplots(), upper, lower, *strips), strict=True))
        for key, axes in all_axes.items():
            for metric, label, color in _LINES[key]:
                if key != "gates":
                    _line(axes, trainings, metric, label, color)
            if key == "gates":
                _gates(axes, trainings)
            _finish(axes, key)
        lower.axhline(0, color=MUTED, linewidth=0.8)
        for key in ("gates", "gap", "pg_clipfrac", "rollout_log_ppl"):
            label_steps(all_axes[key])

    return render(draw, _SIZE, name, title)


def _mean(trainings: Sequence[Rows], metric: str) -> _Mean | None:
    """Averages a metric over trainings by step; None if no training has a number for it."""
    by_step: dict[int, list[float]] = {}
    for rows in trainings:
        for row in rows:
            if isinstance(row.get(metric), int | float):
                by_step.setdefault(row["step"], []).append(float(row[metric]))
    if not by_step:
        return None
    steps = sorted(by_step)
    parts = (np.asarray([f(by_step[step]) for step in steps]) for f in (np.mean, min, max))
    return _Mean(np.asarray(steps, float), *parts)


def _line(axes: Any, trainings: Sequence[Rows], metric: str, label: str, color: str) -> None:
    found = _mean(trainings, metric)
    if found is None:
        return
    if len(trainings) > 1:
        axes.fill_between(found.x, found.low, found.high, color=color, alpha=0.18, linewidth=0)
    draw_curve(axes, Series(label, found.x.tolist(), found.mean.tolist()), color)


def _gates(axes: Any, trainings: Sequence[Rows]) -> None:
    """Draws the two kinds of groups without contrast as stacked areas, the competence gate as a line."""
    solved, unsolved = _mean(trainings, _SOLVED), _mean(trainings, _UNSOLVED)
    if solved and unsolved:
        top = solved.mean + unsolved.mean
        axes.fill_between(
            solved.x, 0, solved.mean, color=BAD, alpha=0.55, linewidth=0, label="no contrast: solved"
        )
        axes.fill_between(
            solved.x, solved.mean, top, color=BAD, alpha=0.25, linewidth=0, label="no contrast: unsolved"
        )
    _line(axes, trainings, _COMPETENCE, "competence gate", SERIES[0])


def _finish(axes: Any, key: str) -> None:
    if key == "gates":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5 if key in ("gates", "logp") else 3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}".replace("-", "−")))
    axes.tick_params(labelsize=7.5)
    if len(_LINES[key]) > 1 and axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, handlelength=1.0, columnspacing=1.0,
            borderaxespad=0.1, fontsize=7.5,
        )  # fmt: skip
    elif key != "logp":
        axes.set_title(_LINES[key][0][1], loc="left", fontsize=8, color=MUTED, pad=3)
