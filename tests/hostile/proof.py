"""`make proof-hostile`: an episode at each hostile page, and a table of what came of it."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Trajectory
from tests.hostile.behaviours import Behaviour
from tests.hostile.play import MAX_SECONDS, PAGE_SECONDS, WORKERS, Visited, as_expected, incidents, visit
from tests.hostile.scan import Scanner, artefacts, leaks
from tests.hostile.secrets import CANARY
from tests.hostile.site import BEHAVIOURS, serve_hostile


def _row(behaviour: Behaviour, trajectory: Trajectory) -> str:
    found = incidents(trajectory)
    kinds = Counter(one.kind for one in found)
    told = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    expected = as_expected(behaviour, trajectory)
    return (
        f"| {behaviour.name} | {behaviour.about} | {trajectory.outcome} | {len(trajectory.steps)} "
        f"| {trajectory.seconds:.1f} | {told} | {'yes' if expected else 'NO'} |"
    )


def report(visited: Visited, seconds: float, found: list[str]) -> str:
    """The page of results."""
    rows = [_row(one, visited.trajectories[one.name]) for one in BEHAVIOURS]
    outcomes = Counter(one.outcome for one in visited.trajectories.values())
    told = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
    head = f"""# A hostile site

    make proof-hostile

runs `python -m tests.hostile.proof`: an episode at each of the endpoints of `tests/hostile`, served on
loopback, played by the fleet with real Chromium behind guard and proxy. The model is a chat-completions
endpoint that follows the plan written in the task; the guard allows the task's own site. An episode has
{MAX_SECONDS:.0f} s before its last step begins, a page {PAGE_SECONDS:.0f} s to load.

- endpoints: {len(BEHAVIOURS)}; each with a recorded outcome: {len(rows)} ({told})
- workers that died and were replaced: {visited.workers - WORKERS}
- connections and datagrams that reached the forbidden server: {len(visited.contacts)}
- places where the secret, or 8 letters of it, was written down or told the model: {len(found)}
- wall-clock: {seconds:.0f} s with {WORKERS} workers

Steps are looks at a page; an episode whose start page does not open has none. Incidents are those on record:
requests refused (by place and reason), windows closed, dialogs dismissed, orders given by a page. As
expected: the outcome is one that the table in `tests/hostile` allows, and the incidents that it asks for
are there.

| endpoint | what it does | outcome | steps | seconds | incidents | as expected |
|---|---|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="where the table goes (Markdown)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, serve_hostile() as running:
        start = time.monotonic()
        visited = visit(BEHAVIOURS, running, Path(folder))
        seconds = time.monotonic() - start
        texts = ((f"prompt {number}", text) for number, text in enumerate(visited.prompts))
        scanner = Scanner(CANARY)
        found = leaks(scanner, artefacts(visited.workdir)) + leaks(scanner, texts)
    write_atomic(arguments.output, report(visited, seconds, found).encode())
    print(f"{arguments.output}: {len(visited.trajectories)} episodes in {seconds:.0f} s")


if __name__ == "__main__":
    main()
