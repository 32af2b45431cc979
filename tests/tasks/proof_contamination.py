"""Planted repetitions of benchmark questions among 100,000 tasks: what the check finds, and how fast.

python -m tests.tasks.proof_contamination --data=FOLDER --output=docs/results/contamination.md
"""

from __future__ import annotations

import argparse
import platform
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.contaminated import contamination_report
from collection.tasks.benchmarks import read_questions
from collection.tasks.contamination import Question
from rmsweb_jax.records.files import write_atomic
from tests.tasks.planted import CLEAN_KINDS, FOUND_KINDS, Definition, Planted, made_up_questions, plant

TASKS, EACH, CORES, LIMIT_S = 100_000, 1_000, 2, 60.0
FILES = {
    "webvoyager": "webvoyager.jsonl",
    "online_mind2web": "online_mind2web.json",
    "webtailbench": "webtailbench.jsonl",
}
INTRODUCTION = """\
# Planted repetitions of benchmark questions

    make proof-contamination

runs `{command}`, which writes this page.

{tasks:,} training tasks in a file, {each:,} of each planted kind, are compared with {questions:,} questions
({source}) by `collection.evaluation.contaminated`, which writes this part of every evaluation's report: equal
texts, one within the other, 3-grams of words (Jaccard from 0.4, containment from 0.6, both times 0.6 on one
domain). Reading the file is part of the time; the process was held to {cores} cores and uses one.

A planted task has to be found. A near-miss shares as many 3-grams as a same-domain near-copy does, on
another domain; a distant one fewer, on the same. What is found of the clean kinds is wrong unless the
definition agrees, which `tests/tasks/planted.py` has a second time, without an index.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="Folder of the benchmarks' own files.")
    options = parser.parse_args(arguments)
    process = psutil.Process()
    process.cpu_affinity(process.cpu_affinity()[:CORES])
    rng = random.Random(0)
    if options.data:
        questions = read_questions({name: str(options.data / file) for name, file in FILES.items()})
    else:
        questions = made_up_questions(1552, rng)
    tasks = plant(questions, TASKS, EACH, rng)
    found, seconds = check(tasks, questions)
    rows, wrong, missed = judge(tasks, questions, found)
    planted = sum(one.kind in FOUND_KINDS for one in tasks)
    checks = [
        ("planted and found (recall)", f"{planted - missed} of {planted}", missed == 0),
        ("found and right (precision)", f"{len(found) - wrong} of {len(found)}", wrong == 0),
        ("seconds, at most 60", f"{seconds:.1f}", seconds < LIMIT_S),
    ]
    text = "\n".join(
        [
            INTRODUCTION.format(
                command=f"python -m tests.tasks.proof_contamination --data=FOLDER --output={options.output}",
                tasks=TASKS,
                each=EACH,
                questions=len(questions),
                source="the benchmarks' own files" if options.data else "made up, of the same length",
                cores=CORES,
            ),
            *(
                "| kind (the last three are clean) | tasks | found | right |",
                "|---|---|---|---|",
                *rows,
                "",
            ),
            *("| | measured | holds |", "|---|---|---|"),
            *(f"| {claim} | {measured} | {'yes' if holds else 'NO'} |" for claim, measured, holds in checks),
            *("", f"Python {platform.python_version()}, {platform.machine()}.", ""),
        ]
    )
    print(text)
    write_atomic(options.output, text.encode())
    if not all(holds for _, _, holds in checks):
        raise SystemExit("error: not every line holds")


def check(tasks: Sequence[Planted], questions: Sequence[Question]) -> tuple[dict[str, str], float]:
    """Which tasks the report names, with the test that says so, and the seconds it took."""
    with tempfile.TemporaryDirectory(prefix="rmsweb-contamination-") as folder:
        path = Path(folder) / "tasks.jsonl"
        path.write_text("".join(one.task.model_dump_json() + "\n" for one in tasks), encoding="utf-8")
        start = time.perf_counter()
        report = contamination_report(Benchmark(name="all", tasks=(), questions=tuple(questions)), [path])
        seconds = time.perf_counter() - start
    assert report["checked"] and report["training_tasks"] == len(tasks)
    return {one["task_id"]: one["test"] for one in report["overlaps"]}, seconds


def judge(
    tasks: Sequence[Planted], questions: Sequence[Question], found: dict[str, str]
) -> tuple[list[str], int, int]:
    """Table rows by kind; how many were found wrongly, and how many planted ones were not found."""
    number, hits, right = Counter(), Counter(), Counter()
    definition = Definition(questions)
    missed = 0
    for one in tasks:
        number[one.kind] += 1
        if one.task.task_id not in found:
            missed += one.kind in FOUND_KINDS
            continue
        hits[one.kind] += 1
        right[one.kind] += one.kind in FOUND_KINDS or definition.meets(one.task)
    rows = [
        f"| {kind} | {number[kind]} | {hits[kind]} | {right[kind]} |" for kind in (*FOUND_KINDS, *CLEAN_KINDS)
    ]
    return rows, hits.total() - right.total(), missed


if __name__ == "__main__":
    main()
