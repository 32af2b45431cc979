"""Training curves as inline SVG whose colours follow the page's light or dark scheme."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# matplotlib writes literal colours; each of these is replaced by the page's CSS variable.
_INK, _MUTED, _GRID = "#0a0b0c", "#0a0b0d", "#0a0b0e"
_SERIES = ("#0b0c01", "#0b0c02", "#0b0c03", "#0b0c04")
_VARIABLES = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _GRID: "var(--rule)",
    **{color: f"var(--series-{number})" for number, color in enumerate(_SERIES, 1)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "font.size": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
}
_SMOOTH_FROM = 60


@dataclasses.dataclass(frozen=True)
class Series:
    """One curve: points (x, y) in order of x; a missing y breaks no line, it is left out."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def series(rows: Sequence[dict], key: str, label: str) -> Series | None:
    """The curve of `key` over `step`; None when no row has a number there."""
    points = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Series(label, x, y)


def line_plot(curves: Sequence[Series], name: str, title: str) -> str:
    """An `<svg>` of up to four curves.

    Args:
      name: unique on the page; keeps the ids of several inline plots apart and the output repeatable.
      title: for those who cannot see the plot.
    """
    if not 1 <= len(curves) <= len(_SERIES):
        raise ValueError(f"{name}: {len(curves)} curves, between 1 and {len(_SERIES)} can be told apart")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(4.3, 2.5), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for curve, color in zip(curves, _SERIES, strict=False):
            _draw(axes, curve, color)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if len(curves) > 1:
            axes.legend(loc="best", handlelength=1.2)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, title)


def _draw(axes, curve: Series, color: str) -> None:
    x, y = np.asarray(curve.x, float), np.asarray(curve.y, float)
    marker = "o" if len(x) <= 25 else ""
    if len(x) < _SMOOTH_FROM:
        axes.plot(x, y, color=color, linewidth=1.7, marker=marker, markersize=3, label=curve.label)
        return
    width = max(5, len(x) // 25)
    axes.plot(x, y, color=color, linewidth=0.6, alpha=0.35)
    smooth = np.convolve(y, np.ones(width) / width, mode="valid")
    axes.plot(x[width - 1 :], smooth, color=color, linewidth=1.7, label=curve.label)


def _inline(text: str, name: str, title: str) -> str:
    """The bare `<svg>` element: no prolog, no metadata, ids of its own, colours as variables."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # The page's own font and stroke rules; matplotlib's style element would reach the whole page.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r" font-family: [^;]*;", "", text)
    text = re.sub(r'(id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', text
    )
    text = text.replace("xlink:href", "href")
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    return text
