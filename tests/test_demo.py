"""The whole recipe in a real browser: killed once in every long stage, then finished by the same command."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordReader

from experiments.demo import stages
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset

ROOT = Path(__file__).parent.parent
VARIANT = "smoke"


def command(root: Path) -> list[str]:
    return [sys.executable, "-m", "experiments.demo", f"--variant={VARIANT}", f"--workdir={root}"]


def kill_within(root: Path, folder: str) -> bool:
    """Runs the demo until `folder`'s stage has done something, then SIGKILLs the run.

    Returns:
      Whether the stage was still unfinished when it was killed.
    """
    with open(root / "killed.log", "ab") as log:
        process = subprocess.Popen(command(root), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    while process.poll() is None and not under_way(root / folder):
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    unfinished = not (root / folder / "report.json").exists()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return unfinished


def under_way(folder: Path) -> bool:
    if (folder / "report.json").exists():
        return True
    try:
        state = json.loads((folder / "progress.json").read_text())
    except FileNotFoundError:
        return False
    return state["done"] > 0


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("demo")
    # The other stages take a second or two; the other evaluations are the same program with another model.
    long = ("collect", "sft", "collect_policy", "rl", "evaluate/base")
    killed = {folder: kill_within(root, folder) for folder in long}
    result = subprocess.run(command(root), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert all(killed.values()), f"not interrupted: {killed}"
    yield root


def raw_records(dataset: Path) -> list[bytes]:
    records = []
    for path in sorted(dataset.glob("*.array_record")):
        reader = ArrayRecordReader(str(path))
        records += reader.read_all()
        reader.close()
    return records


def by_task(dataset: Path) -> dict[str, list[Trajectory]]:
    runs = defaultdict(list)
    for trajectory in read_dataset(dataset, Trajectory):
        runs[trajectory.task.task_id].append(trajectory)
    return {task: sorted(found, key=lambda run: run.attempt) for task, found in runs.items()}


def test_collection_lost_and_doubled_nothing(run):
    for found in by_task(run / "collect").values():
        assert [trajectory.attempt for trajectory in found] == list(range(1, len(found) + 1))
        wins = [trajectory.success for trajectory in found]
        assert sum(wins) <= 2
        assert len(wins) == 5 or (sum(wins) == 2 and wins[-1]), wins


def test_policy_ran_once_on_every_training_task(run):
    teacher, policy = by_task(run / "collect"), by_task(run / "collect_policy")
    assert policy.keys() == teacher.keys()
    assert {len(found) for found in policy.values()} == {1}


def test_every_model_ran_every_held_out_task_three_times(run):
    tasks = [by_task(run / "evaluate" / label) for label in ("base", "sft", "rl")]
    for found in tasks:
        assert found.keys() == tasks[0].keys()
        assert {tuple(run.attempt for run in runs) for runs in found.values()} == {(1, 2, 3)}
    assert not tasks[0].keys() & by_task(run / "collect").keys()


def test_page_types(run):
    assert len({runs[0].task.site for runs in by_task(run / "collect").values()}) >= 12


def test_no_reflection_text_reached_a_training_record(run):
    sentences = set()
    for path in run.glob("collect/**/*reflections*"):
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            sentences |= {part.strip().encode() for part in re.split(r"[.\n]", guidance_of(line))}
    sentences = {text for text in sentences if len(text) > 20}
    assert sentences
    corpora = [*raw_records(run / "sft_corpus"), *raw_records(run / "mine/prompts")]
    assert corpora
    for record in corpora:
        assert b"reflection_guidance" not in record
        for text in sentences:
            assert text not in record


def guidance_of(line: bytes) -> str:
    found = re.search(rb'"guidance":("(?:[^"\\]|\\.)*")', line)
    return json.loads(found[1]) if found else ""


def test_summary_holds_every_model_and_stage(run):
    summary = json.loads((run / "report/summary.json").read_text())
    for label in ("base", "sft", "rl"):
        score = summary["models"][label]["pass_at_1"]
        assert 0 <= score["low"] <= score["mean"] <= score["high"] <= 1
    for stage in stages(VARIANT, run):
        if stage.folder != "report":
            assert summary["stages"][stage.folder]["seconds"] > 0
    page = (run / "report/index.html").read_text()
    assert not Counter(re.findall(r'(?:src|href)="(https?:[^"]*)"', page))


def test_a_finished_run_has_nothing_left_to_do(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.array_record")}
    result = subprocess.run(command(run), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*.array_record")}
