"""Curves as inline SVG whose colours follow the page's light or dark scheme."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Markers: matplotlib writes literal colours, and `_inline` replaces each of these by a CSS variable.
INK, MUTED, GRID, BAD = "#0a0b0c", "#0a0b0d", "#0a0b0e", "#0a0b0f"
SERIES = ("#0b0c01", "#0b0c02", "#0b0c03", "#0b0c04")
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    BAD: "var(--bad)",
    **{color: f"var(--series-{number})" for number, color in enumerate(SERIES, 1)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "font.size": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}
_SMOOTH_FROM = 60
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
# (light, dark); must equal the variables in report.css.
_SCHEME = {
    "card": ("#ffffff", "#17191d"),
    "ink": ("#1b1e23", "#e7e9ec"),
    "muted": ("#666d78", "#98a0ab"),
    "rule": ("#e3e4e7", "#2a2e34"),
    "bad": ("#c23b3b", "#f07878"),
    "series-1": ("#2c6bd8", "#6ea2ff"),
    "series-2": ("#d0661f", "#f09a5c"),
    "series-3": ("#12906a", "#4cc79d"),
    "series-4": ("#8a4fc4", "#bb8df0"),
}


@dataclasses.dataclass(frozen=True)
class Series:
    """One curve: points (x, y) in order of x. Points without y are left out; the line continues."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def series(rows: Sequence[dict], key: str, label: str) -> Series | None:
    """Returns the curve of `key` over `step`; None if no row has a number for it."""
    points = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Series(label, x, y)


def line_plot(curves: Sequence[Series], name: str, title: str) -> str:
    """Draws up to four curves as an `<svg>`.

    Args:
      name, title: as for `render`.
    """
    if not 1 <= len(curves) <= len(SERIES):
        raise ValueError(f"{name}: {len(curves)} curves, between 1 and {len(SERIES)} can be distinguished")

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for curve, color in zip(curves, SERIES, strict=False):
            draw_curve(axes, curve, color)
        label_steps(axes)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if len(curves) > 1:
            axes.legend(loc="best", handlelength=1.2)

    return render(draw, (4.3, 2.5), name, title)


def render(draw: Callable[[Figure], None], size: tuple[float, float], name: str, title: str) -> str:
    """Renders a figure drawn by `draw` as `<svg>`, for a page that defines the colours.

    Args:
      size: width and height in inches.
      name: unique on the page; prefix of the ids, and salt that makes the output repeatable.
      title: text alternative for screen readers.
    """
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, title)


def label_steps(axes: Any) -> None:
    """Labels the x axis as steps, in whole numbers."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def draw_curve(axes: Any, curve: Series, color: str) -> None:
    """Draws one line; a long one is smoothed by a moving average, over the raw values in a lighter tone."""
    x, y = np.asarray(curve.x, float), np.asarray(curve.y, float)
    marker = "o" if len(x) <= 25 else ""
    if len(x) < _SMOOTH_FROM:
        axes.plot(x, y, color=color, linewidth=1.7, marker=marker, markersize=3, label=curve.label)
        return
    width = max(5, len(x) // 25)
    axes.plot(x, y, color=color, linewidth=0.6, alpha=0.35)
    # "valid": no padding, which would bend the curve at its ends; the first width - 1 points are missing.
    smooth = np.convolve(y, np.ones(width) / width, mode="valid")
    axes.plot(x[width - 1 :], smooth, color=color, linewidth=1.7, label=curve.label)


def standalone(svg: str) -> str:
    """Returns the plot as a standalone SVG file on a card, light or dark like the reader's system.

    Args:
      svg: result of `render`.
    """
    width, height = re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg)[0]
    colors = "; ".join(f"--{name}: {light}" for name, (light, _) in _SCHEME.items())
    dark = "; ".join(f"--{name}: {dark}" for name, (_, dark) in _SCHEME.items())
    style = (
        f"<style>svg {{ font-family: sans-serif; {colors} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
        f'<rect width="{width}" height="{height}" rx="8" style="fill: var(--card)"/>'
    )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt"'
    return svg.replace("<svg", opening, 1).replace(">", f">{style}", 1)


def _inline(text: str, name: str, title: str) -> str:
    """Reduces matplotlib's output to an `<svg>` element with its own ids and CSS variables as colours."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # A style element inside inline SVG applies to the whole page, so matplotlib's must not stay.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r" font-family: [^;]*;", "", text)
    # The last digits of the layout differ from run to run, and so do matplotlib's ids, which are hashes of
    # coordinates. Round numbers to two places and number the ids.
    text = re.sub(
        r"<[^>]*>",
        lambda tag: _LONG_NUMBER.sub(lambda one: f"{round(float(one[0]), 2) + 0.0:.2f}", tag[0]),
        text,
    )
    numbers = {found: str(number) for number, found in enumerate(re.findall(r' id="([^"]*)"', text))}
    text = re.sub(
        r'( id="|url\(#|xlink:href="#)([^")]*)', lambda found: f"{found[1]}{name}-{numbers[found[2]]}", text
    )
    text = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', text
    )
    text = text.replace("xlink:href", "href")
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    return text
