"""The whole recipe in a real browser: killed in its first stage, then finished by the same command.

It runs from the installed wheel in a folder that is not the checkout, as a user runs it.
"""

import contextlib
import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordReader
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from experiments.demo import stages
from rmsweb_jax.processes import ChildProcess, StallClock
from rmsweb_jax.progress import read_progress
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from tests.browser.plain import open_browser
from tests.viewer.serving import open_viewer

VARIANT = "smoke"
# A busy machine takes long, but it moves; compiling the tiny model is the longest step that writes nothing.
STUCK_S = 900.0

# Progress is watched instead of the clock.
pytestmark = pytest.mark.timeout(0)


class Watcher:
    """Looks at stages while they run, in a browser without clicks: its pages load themselves again.

    Attributes:
      seen: stage -> the different texts that its page showed while it went on.
    """

    def __init__(self, driver: WebDriver, address: str, root: Path):
        self.seen: dict[str, list[str]] = {stage: [] for stage in ("collect", "rl")}
        self._driver, self._address, self._root, self._open = driver, address, root, ""

    def look(self) -> None:
        stage = "rl" if (self._root / "rl/progress.json").exists() else "collect"
        if self._open != stage and (self._root / stage / "progress.json").exists():
            self._driver.get(f"{self._address}/run?data={self._root.name}/{stage}")
            self._open = stage
        if not self._open or followed(self.seen, self._open):
            return
        with contextlib.suppress(StaleElementReferenceException):
            text = self._driver.find_element(By.TAG_NAME, "main").text
            if "going on" in text and text not in self.seen[self._open]:
                self.seen[self._open].append(text)
            if followed(self.seen, self._open):
                # Pages that load themselves again to the end would take minutes of the stages' cores.
                self._driver.get("about:blank")


def followed(seen: dict[str, list[str]], stage: str) -> bool:
    """Whether the page of a stage changed while it went on, and named the workers of a collection."""
    texts = seen[stage]
    return len(texts) > 1 and (stage != "collect" or any("worker 1" in text for text in texts))


def demo(
    python: Path, root: Path, until: Path | None = None, look: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Runs the demo to its end, or until the stage in the folder `until` is under way, and then kills it.

    Args:
      look: called about once a second.

    Returns:
      Exit code, and what the demo printed.
    """
    log = root.parent / "demo.log"
    log.unlink(missing_ok=True)
    command = [str(python), "-m", "experiments.demo", f"--variant={VARIANT}", f"--workdir={root}"]
    stall, looked, turn = StallClock(), 0.0, 0
    with ChildProcess("demo", command, log, cwd=root.parent, env={"PYTHONPATH": ""}) as process:
        while process.wait(0.05) is None and not (until and under_way(until)):
            # Reading all that the run has written at every turn would take half a core.
            if time.monotonic() < looked + 1.0:
                continue
            looked, turn = time.monotonic(), turn + 1
            look()
            if turn % 5 == 0 and stall.seconds(written(root)) > STUCK_S:
                pytest.fail(f"nothing was written for {STUCK_S:.0f} s: {process.failure()}")
        process.kill()
    return process.wait() or 0, log.read_text()


def written(root: Path) -> tuple[int, list[str]]:
    """Changes with all that a run writes, but for rewritten progress files that say the same."""
    # Not `glob`, which fails on a folder that the run removes meanwhile.
    files = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    logs = [path.stat().st_size for path in files if path.name in ("log.txt", "episodes.jsonl")]
    return sum(logs), [path.read_text() for path in sorted(files) if path.name == "progress.json"]


def under_way(folder: Path) -> bool:
    state = read_progress(folder)
    return (folder / "report.json").exists() or (state is not None and state["done"] > 0)


@pytest.fixture(scope="module")
def watched() -> dict[str, list[str]]:
    """Filled while `run` is made; see `Watcher.seen`."""
    return {}


@pytest.fixture(scope="module")
def run(wheel_python, tmp_path_factory, watched) -> Path:
    root = tmp_path_factory.mktemp("demo") / "run"
    # tests/sft, tests/rl and tests/evaluation stop the other stages.
    demo(wheel_python, root, until=root / "collect")
    assert not (root / "collect/report.json").exists(), "it ended before it was killed"
    with (
        open_viewer(root, tmp_path_factory.mktemp("viewer")) as address,
        open_browser() as driver,
    ):
        watcher = Watcher(driver, address, root)
        code, output = demo(wheel_python, root, look=watcher.look)
        watched |= watcher.seen
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert code == 0, output
    return root


def test_pages_followed_the_collection_and_the_training_while_they_ran(run, watched):
    assert all(followed(watched, stage) for stage in ("collect", "rl"))


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
        if stage.name != "report":
            assert summary["stages"][stage.name]["seconds"] > 0
    assert "rl − sft" in (run / "report/table.md").read_text()
    page = (run / "report/pages/index.html").read_text()
    assert not Counter(re.findall(r'(?:src|href)="(https?:[^"]*)"', page))
