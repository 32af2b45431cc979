"""Benchmark files: made-up rows in the shapes of the real ones, and these where they are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from collection.evaluation import benchmarks
from collection.evaluation.benchmarks import Benchmark
from collection.evaluation.config import evaluate_settings

ROOT = Path(__file__).parents[2]
# The benchmarks' own files are no part of the project.
REAL = Path(os.environ.get("RMSWEB_BENCHMARKS", ROOT.parent / "shared" / "data"))


def _voyager(name: str, text: str, website: str) -> dict[str, str]:
    return {"web_name": name.partition("--")[0], "id": name, "ques": text, "web": website}


VOYAGER = [
    _voyager("Stays--0", "Find a hotel in Rome from Jan 1 to Jan 4, 2024.", "https://www.stays.example.com/"),
    _voyager("Stays--1", "Book a room for December 25-26.", "https://www.stays.example.com/"),
    _voyager(
        "Papers--0",
        "How many papers were submitted between Jan 1, 2024, and Jan 3, 2024?",
        "https://papers.example.org/",
    ),
    _voyager("Words--0", "Look up 'zest' and give an example from 2023.", "https://dictionary.example.org/"),
]
EXCLUDED = ["Stays--1"]
REFERENCES = {
    "Stays": {
        "notice": " real-time",
        "answers": [
            {"id": 0, "type": "golden", "ans": "Hotel Uno"},
            {"id": 1, "type": "possible", "ans": "Room 3"},
        ],
    },
    "Papers": {"notice": "", "answers": [{"id": 0, "type": "golden", "ans": "17"}]},
}
MIND2WEB = [
    {"task_id": name, "confirmed_task": text, "website": website, "reference_length": 3, "level": level}
    for name, text, website, level in (
        ("a1", "Find the cheapest green tea.", "https://tea.example.com/", "easy"),
        ("b2", "Compare two loans of 15,000 dollars.", "", "hard"),
    )
]


def _tail(name: str, category: str, text: str, *items: dict[str, Any]) -> dict[str, Any]:
    empty = {"description": "", "justification": "", "earned_points": ""}
    rubric = {"items": [empty | item for item in items]}
    return {"id": name, "category": category, "ques": text, "web": "", "precomputed_rubric": rubric}


TAILBENCH = [
    _tail(
        "air_1",
        "flights",
        "Book a flight from Oslo to Rome from November 24 to November 27.\r",
        {
            "criterion": "Right dates",
            "description": "Nov 24–27 (Monday to Thursday), or Nov 24 alone for half.",
            "max_points": 4,
        },
        {
            "criterion": "Says so when there is none",
            "condition": "Only if nothing flies on November 24.",
            "max_points": 2,
        },
    ),
    _tail(
        "shop_2", "shopping_head", "Buy a 2023 calendar.\r", {"criterion": "In the basket", "max_points": 3}
    ),
]


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def load_benchmark(settings: dict[str, Any]) -> Benchmark:
    """Runs the evaluation as `experiments.evaluate` does."""
    return benchmarks.load_benchmark(evaluate_settings(settings))


def voyager_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """Settings of WebVoyager with made-up files in `folder`."""
    return {
        "benchmark": "webvoyager",
        "task_ids": (),
        "own_rows": True,
        "tasks_file": str(write_lines(folder / "tasks.jsonl", VOYAGER)),
        "excluded_file": str(write_json(folder / "excluded.json", EXCLUDED)),
        "references_file": str(write_json(folder / "references.json", REFERENCES)),
    } | changes


def tail_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "benchmark": "webtailbench",
        "task_ids": (),
        "own_rows": True,
        "tasks_file": str(write_lines(folder / "tail.jsonl", TAILBENCH)),
        "start_page": "https://search.example.com/",
    } | changes


def mind2web_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "benchmark": "online_mind2web",
        "task_ids": (),
        "own_rows": True,
        "tasks_file": str(write_json(folder / "om2w.json", MIND2WEB)),
        "start_page": "https://search.example.com/",
    } | changes


def real_settings(benchmark: str) -> dict[str, Any]:
    """Settings of a benchmark with its own files; skips the test where they are not."""
    if not (REAL / f"{benchmark}.jsonl").exists() and not (REAL / f"{benchmark}.json").exists():
        pytest.skip("set RMSWEB_BENCHMARKS to the folder of the benchmarks' files")
    settings: dict[str, Any] = {
        "benchmark": benchmark,
        "task_ids": (),
        "tasks_file": str(REAL / f"{benchmark}.json{'' if benchmark == 'online_mind2web' else 'l'}"),
    }
    if benchmark != "webvoyager":
        settings["start_page"] = "https://search.example.com/"
    if benchmark == "webvoyager":
        settings["excluded_file"] = str(REAL / "webvoyager_excluded_55.json")
        settings["references_file"] = str(REAL / "webvoyager_reference_answer.json")
    return settings
