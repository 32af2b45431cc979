"""Renders a run's figures and records as one self-contained HTML page."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jinja2
from markupsafe import Markup

from collection.evaluation.judged_by import UNKNOWN, judge_line
from collection.report.dynamics import dynamics_plot
from collection.report.page_plots import line_plot, series
from collection.report.sources import LABELS, STAGES, RunFolder

# (title, caption, ((metric, label), ...))
_SFT_CURVES = (
    ("Loss", "Mean over samples of the mean over a reply's tokens.", (("loss/train", "loss"),)),
    (
        "Accuracy",
        "Share of reply tokens, and of whole action spans, predicted correctly (teacher forcing).",
        (("loss/token_accuracy", "tokens"), ("loss/action_accuracy", "whole actions")),
    ),
    ("Learning rate", "Warm-up, then half a cosine.", (("lr", "learning rate"),)),
)
_RL_CURVES = (
    (
        "Reward of rollouts",
        "Best of a group, mean, and spread within a group.",
        (("reward/best_of_k", "best of K"), ("reward/mean", "mean"), ("reward/group_std", "group std")),
    ),
    (
        "Held-out prompts",
        "Greedy replies to prompts that are not trained on.",
        (("eval/reward", "reward"), ("eval/exact", "exactly right")),
    ),
    ("Accepted groups", "Share of sampled groups that passed both gates.", (("gates/accepted", "accepted"),)),
    (
        "Clipped tokens",
        "Share of tokens at the lower and the upper bound.",
        (("pg_clipfrac_lower", "lower"), ("pg_clipfrac_upper", "upper")),
    ),
    ("Salvage anchor", "Negative log-likelihood of verified actions.", (("salvage_loss", "loss"),)),
    ("Gradient norm", "Before clipping.", (("norm/gradient", "norm"),)),
)
_DECISIONS = {
    "no_success": "no run solved the task",
    "no_contrast": "nothing to compare a success with",
    "runtime_gate": "runtime failure, not clear enough",
    "obstruction_cap": "over the share of access obstructions",
    "domain_cap": "over the share of one site",
}


@dataclasses.dataclass(frozen=True)
class InlinePlot:
    title: str
    caption: str
    svg: Markup


@dataclasses.dataclass(frozen=True)
class Gate:
    """A gate of the mining funnel: numbers of tasks that it dropped and that are left after it."""

    name: str
    dropped: int
    left: int


def render_page(run: RunFolder, summary: dict[str, Any], title: str, pages: str = "") -> str:
    """Renders the page; it needs no network.

    Args:
      summary: result of `build_summary`.
      title: the run's name.
      pages: address of the pages of its episodes; "" for none.
    """
    template = _environment().get_template("report.html.j2")
    rl_rows = _rl_rows(run) if summary["rl"] else []
    return template.render(
        title=title,
        summary=summary,
        labels=LABELS,
        stage_names=STAGES,
        style=Markup(_environment().loader.get_source(_environment(), "report.css")[0]),  # pyright: ignore
        sites=_sites(summary["models"]),
        judges=_judges(run),
        sft_plots=_plots(run.metrics("sft"), _SFT_CURVES, "sft") if summary["sft"] else [],
        dynamics=Markup(dynamics_plot([rl_rows], "dynamics", "RL training dynamics")),
        rl_plots=_plots(rl_rows, _RL_CURVES, "rl"),
        funnel=_funnel(summary["mining"]),
        pages=pages,
    )


def _rl_rows(run: RunFolder) -> list[dict[str, Any]]:
    """Returns RL's metrics with one more row: the evaluation after the last update.

    Each row describes the policy that sampled in that step, so the trained policy gets the next step number.
    """
    report = run.report("rl")
    assert report is not None
    final = report["final"]
    evaluation = {key: value for key, value in final.items() if key.startswith("eval/")}
    return [*run.metrics("rl"), {"step": final["step"] + 1, **evaluation}]


def _judges(run: RunFolder) -> list[str]:
    """Returns a line on each judge of the evaluations."""
    found = [[one for one, _ in results.judges] for label in LABELS if (results := run.results(label))]
    lines = [line for judges in found for line in (map(judge_line, judges) if judges else (UNKNOWN,))]
    return list(dict.fromkeys(lines))


def _sites(models: dict[str, Any]) -> list[str]:
    """Returns task types by mean pass@1 over the models, best first."""
    scores: dict[str, list[float]] = {}
    for model in models.values():
        for site, score in (model or {"by_site": {}})["by_site"].items():
            if rate := score["pass_at_1"]:
                scores.setdefault(site, []).append(rate["mean"])
    return sorted(scores, key=lambda site: (-sum(scores[site]) / len(scores[site]), site))


def _plots(rows: list[dict[str, Any]], plots: tuple, prefix: str) -> list[InlinePlot]:
    """Draws the plots whose metrics were logged."""
    drawn = []
    for number, (title, caption, keys) in enumerate(plots):
        curves = [curve for key, label in keys if (curve := series(rows, key, label))]
        if curves:
            svg = line_plot(curves, f"{prefix}{number}", title)
            drawn.append(InlinePlot(title, caption, Markup(svg)))
    return drawn


def _funnel(mining: dict[str, Any] | None) -> list[Gate]:
    if mining is None:
        return []
    left, gates = mining["tasks"], []
    for name, count in mining["decisions"].items():
        if name != "kept":
            left -= count
            gates.append(Gate(_DECISIONS[name] if name in _DECISIONS else _words(name), count, left))
    return gates


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}".replace("-", "−")


def _points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not run"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _words(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection", "report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": _percent,
        "points": _points,
        "duration": _duration,
        "words": _words,
        "reward": lambda value: "–" if value is None else f"{value:.2f}",
        "combine": lambda a, b: {**a, **b},
    }
    return environment
