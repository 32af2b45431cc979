"""Repetitions of benchmark questions planted among 100,000 tasks: what the check finds, how fast.

DATA=FOLDER takes the benchmarks' own files, otherwise questions of the same length are made up.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.contaminated import contamination_report
from collection.tasks.benchmarks import read_questions
from collection.tasks.contamination import BenchmarkQuestion
from tests.proofs.result import Claim, Figures, Proof, main, table
from tests.tasks.planted import CLEAN_KINDS, FOUND_KINDS, Definition, Planted, made_up_questions, plant

TASKS, EACH, CORES, LIMIT_S = 100_000, 1_000, 2, 60.0
FILES = {
    "webvoyager": "webvoyager.jsonl",
    "online_mind2web": "online_mind2web.json",
    "webtailbench": "webtailbench.jsonl",
}


def measure() -> Figures:
    process = psutil.Process()
    process.cpu_affinity(process.cpu_affinity()[:CORES])
    rng = random.Random(0)
    if folder := os.environ.get("DATA"):
        questions = read_questions({name: str(Path(folder) / file) for name, file in FILES.items()})
    else:
        questions = made_up_questions(1552, rng)
    tasks = plant(questions, TASKS, EACH, rng)
    found, seconds = check(tasks, questions)
    return {
        "tasks": TASKS,
        "each": EACH,
        "questions": len(questions),
        "source": "the benchmarks' own files" if folder else "made up, of the same length",
        "check_seconds": round(seconds, 1),
        "kinds": judge(tasks, questions, found),
    }


def check(tasks: Sequence[Planted], questions: Sequence[BenchmarkQuestion]) -> tuple[dict[str, str], float]:
    """Tasks named in the report with the test that found them, and the seconds it took."""
    with tempfile.TemporaryDirectory(prefix="rmsweb-contamination-") as folder:
        path = Path(folder) / "tasks.jsonl"
        path.write_text("".join(one.task.model_dump_json() + "\n" for one in tasks), encoding="utf-8")
        start = time.perf_counter()
        report = contamination_report(Benchmark(name="all", tasks=(), questions=tuple(questions)), [path])
        seconds = time.perf_counter() - start
    assert report["checked"] and report["training_tasks"] == len(tasks)
    return {one["task_id"]: one["test"] for one in report["overlaps"]}, seconds


def judge(
    tasks: Sequence[Planted], questions: Sequence[BenchmarkQuestion], found: dict[str, str]
) -> list[dict[str, Any]]:
    """By kind: the number of tasks, those found, and those found that the definition says are repetitions."""
    number, hits, right = Counter(), Counter(), Counter()
    definition = Definition(questions)
    for one in tasks:
        number[one.kind] += 1
        if one.task.task_id in found:
            hits[one.kind] += 1
            right[one.kind] += one.kind in FOUND_KINDS or definition.meets(one.task)
    return [
        {"kind": kind, "tasks": number[kind], "found": hits[kind], "right": right[kind]}
        for kind in (*FOUND_KINDS, *CLEAN_KINDS)
    ]


def claims(figures: Figures) -> list[Claim]:
    kinds = figures["kinds"]
    planted = [row for row in kinds if row["kind"] in FOUND_KINDS]
    hits, count = sum(row["found"] for row in planted), sum(row["tasks"] for row in planted)
    found, right = (sum(row[name] for row in kinds) for name in ("found", "right"))
    seconds = figures["check_seconds"]
    return [
        Claim("each planted repetition is found (recall)", f"{hits:,} of {count:,}", hits == count),
        Claim(
            "each task that is found is a repetition (precision)", f"{right:,} of {found:,}", right == found
        ),
        Claim(f"{TASKS:,} tasks are checked within {LIMIT_S:.0f} s", f"{seconds} s", seconds < LIMIT_S),
    ]


def tables(figures: Figures) -> str:
    rows = [
        [f"{cell:,}" if isinstance(cell, int) else cell for cell in row.values()] for row in figures["kinds"]
    ]
    return table(("kind (the last three are clean)", "tasks", "found", "right"), rows)


ABOUT = """\
{tasks:,} training tasks in a file, {each:,} of each planted kind, are compared with {questions:,} questions
({source}) by `collection.evaluation.contaminated`, which writes this part of every evaluation's report:
equal texts, one within the other, 3-grams of words (Jaccard from 0.4, containment from 0.6, both times 0.6
on one domain). Reading the file is part of the time; the process is held to two cores and uses one.

A planted task must be found. A near-miss shares as many 3-grams as a same-domain near-copy, on another
domain; a distant one shares fewer, on the same domain. A clean task that is found is wrong unless the
definition agrees, which `tests/tasks/planted.py` implements a second time, without an index.
"""
PROOF = Proof("Planted repetitions of benchmark questions", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
