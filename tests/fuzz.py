"""Runs the property tests on new examples until the time is over, and prints what fails as a case to keep.

python -m tests.fuzz --seconds=3600
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)
_EXAMPLE = re.compile(r"^E\s+Failing test case: (\w+)\((.*?)^E\s+\)", re.MULTILINE | re.DOTALL)


def cases(output: str, seed: int) -> dict[str, str]:
    """A recipe for each failed test, by the test's id."""
    examples = {
        name: " ".join(re.sub(r"(?m)^E\s*|  # or any .*$", "", body).split())
        for name, body in _EXAMPLE.findall(output)
    }
    found = {}
    for test in _FAILED.findall(output):
        name = test.rpartition("::")[2].partition("[")[0]
        again = f"python -m pytest {test} --hypothesis-profile=fuzz --hypothesis-seed={seed}"
        case = f"@example({examples[name]})" if name in examples else "see the printed example"
        found[test] = f"{test}\n  keep it as a named case: {case}\n  again: {again}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws new examples for the property tests.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    end = time.monotonic() + parser.parse_args().seconds
    found: dict[str, str] = {}
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "hypothesis", "--hypothesis-profile=fuzz"]
        command += [f"--hypothesis-seed={seed}", *(f"--deselect={test}" for test in found)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        rounds += 1
        if done.returncode not in (0, 1):
            raise SystemExit(f"error: pytest ended with {done.returncode}:\n{done.stdout[-3000:]}")
        new = {test: case for test, case in cases(done.stdout, seed).items() if test not in found}
        found |= new
        print(f"round {rounds}, seed {seed}: {len(new)} new failures", *new.values(), sep="\n", flush=True)
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
