"""Figures published in the paper (RMSWeb); shown next to measured ones, never mixed with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class PaperBenchmark:
    """A column of the paper's tables.

    Attributes:
      tasks: number of tasks in the benchmark's own file.
    """

    name: str
    title: str
    tasks: int


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables.

    Attributes:
      label: label of the measured policy that this row shows; empty for systems that we cannot run.
      section: heading in the paper.
      rates: benchmark -> success in percent, as printed, marks included.
      steps: benchmark -> mean steps of successes, as printed.
      note: the table's remark: size or access, or the change that the variant makes.
      tasks: numbers of tasks on the three benchmarks, as printed.
    """

    label: str
    title: str
    rates: Mapping[str, str]
    section: str = ""
    steps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    tasks: str = ""


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables.

    Attributes:
      source: place in the paper.
      marks: explanation of its footnote marks.
    """

    name: str
    title: str
    source: str
    rows: tuple[PaperRow, ...]
    marks: str = ""


WV, OM2W, WTB = "webvoyager", "online_mind2web", "webtailbench"
# Appendix, "Benchmarks". The paper excludes 55 WebVoyager tasks, which leaves 588.
BENCHMARKS = {
    WV: PaperBenchmark(WV, "WebVoyager", 643),
    OM2W: PaperBenchmark(OM2W, "Online-Mind2Web", 300),
    WTB: PaperBenchmark(WTB, "WebTailBench", 609),
}


def _each(*values: str) -> dict[str, str]:
    """Maps the three benchmarks, in the paper's order, to values; "" means that none is printed."""
    return {name: value for name, value in zip(BENCHMARKS, values, strict=True) if value}


def _external(title: str, note: str, tasks: str, *rates: str) -> PaperRow:
    section = "Proprietary / API" if note == "Closed" else "Open-weight models"
    return PaperRow("", title, _each(*rates), section=section, note=note, tasks=tasks)


def _own(label: str, title: str, note: str, *rates: str) -> PaperRow:
    return PaperRow(label, title, _each(*rates), section="The recipe", note=note, tasks="588 / 300 / 609")


MAIN = PaperTable(
    "main",
    "Task success",
    "table 1 (main results)",
    (
        _external("SoM Agent (o3)", "Closed", "F595 / 300 / 609", "79.3", "55.4", "52.7"),
        _external("SoM Agent (GPT-5)", "Closed", "F595 / 300 / 609", "90.6", "57.7", "60.4"),
        _external("OpenAI computer-use-preview", "Closed", "F595 / 300 / 609", "70.9", "42.9", "25.7"),
        _external("Gemini CUA preview", "Closed", "F595 / 300 / 609", "88.6†", "57.3‡", "63.0†"),
        _external("Claude Sonnet 4", "Closed", "12 sites / 291 / —", "80.5‡", "67.7‡", ""),
        _external("UI-TARS-1.5-7B", "7B", "F595 / 300 / 609", "66.4", "31.3", "19.5"),
        _external("GLM-4.1V-9B-Thinking", "9B", "F595 / 300 / 609", "66.8", "33.9", "22.4"),
        _external("Fara-7B", "7B", "F595 / 300 / 609", "73.5", "34.1", "38.4"),
        _external("MolmoWeb-8B", "8B", "F595 / 300 / 609", "78.2†", "35.3†", "49.5†"),
        _external("Weblica-8B", "8B", "— / 300 / NR", "", "39.2", "33.5"),
        _external("GUI-Owl-1.5-8B-Thinking", "8B", "NR / 300 / —", "78.1‡", "48.6‡", ""),
        _external(
            "Qwen3-VL-235B-A22B-Thinking",
            "235B MoE (22B active)",
            "F595 / 300 / —",
            "66.4‡",
            "63.7‡",
            "",
        ),
        _own("8b_base", "Qwen3-VL-8B-Instruct (base)", "8B", "51.13", "36.56", "23.31"),
        _own("8b_sft", "8B + SFT", "8B", "82.65", "59.44", "55.39"),
        _own("8b_rl", "8B + SFT + RL", "8B", "86.39", "66.44", "57.74"),
        _own("32b_base", "Qwen3-VL-32B-Instruct (base)", "32B", "75.68", "53.67", "39.57"),
        _own("32b_sft", "32B + SFT", "32B", "86.45", "66.11", "51.62"),
        _own("32b_rl", "32B + SFT + RL", "32B", "87.64", "68.11", "59.28"),
    ),
    marks=(
        "In the paper's columns: F595 is Fara's subset of WebVoyager; † a mean over 3 to 5 evaluations; "
        "‡ pass@1 without averaging on record; NR and — not reported. External systems follow the protocols "
        "of their sources."
    ),
)

ABLATION = PaperTable(
    "ablation",
    "Ablation of the RL recipe",
    "table 2 (ablation of the RL recipe, 8B)",
    (
        PaperRow("full", "Full recipe", _each("86.39", "66.44", "57.74")),
        PaperRow(
            "full_corpus",
            "Full-corpus RL",
            _each("84.41", "60.78", "52.99"),
            note="no failure-mode mining",
        ),
        PaperRow(
            "anchor_free", "Anchor-free RL", _each("84.69", "60.56", "56.71"), note="salvage_weight = 0"
        ),
        PaperRow(
            "dapo",
            "DAPO",
            _each("84.92", "62.67", "54.74"),
            note="no competence gate or salvage anchor",
        ),
    ),
)

REFLECTION = PaperTable(
    "reflection",
    "Reflection in collecting the SFT data",
    "table 3 (reflection ablation, 8B SFT)",
    (
        PaperRow(
            "with_reflection",
            "With reflection",
            _each("82.65", "59.44", "55.39"),
            steps=_each("9.57", "15.96", "14.83"),
        ),
        PaperRow(
            "without_reflection",
            "Without reflection",
            _each("83.28", "60.78", "50.14"),
            steps=_each("10.99", "19.42", "18.47"),
        ),
    ),
)
# Last row of the reflection table: 1 - steps with / steps without, in percent.
STEPS_SAVED = _each("12.9", "17.8", "19.7")

TABLES = {table.name: table for table in (MAIN, ABLATION, REFLECTION)}
