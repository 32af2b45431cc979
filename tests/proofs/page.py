"""Pages of proofs: figures go to docs/results/NAME.json, what they say to docs/results/NAME.md."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
DEMO = Path("runs/demo")

# A page begins with what the thing measured must beat, and what must show the effect; or says what it lacks.
OPENINGS = ("**Baseline:**", "**Control, no baseline:**", "**No baseline, no control:**")
# What should hold, what was measured, and whether it holds; None: for information.
Check = tuple[str, str, bool | None]


def stage(name: str, variant: str, workdir: Path, file: str = "", **settings: Any) -> None:
    """Runs a stage of the recipe, or goes on with it; one that is done stays as it is.

    Raises:
      SystemExit: the stage failed, and has said why.
    """
    given = [f"--config.{key}={value}" for key, value in settings.items()]
    command = [f"--config=configs/{file or name}.py:{variant}", f"--workdir={workdir}", *given]
    if code := subprocess.run([sys.executable, "-m", f"experiments.{name}", *command]).returncode:
        raise SystemExit(code)


def publish(
    name: str, title: str, about: str, figures: Mapping[str, Any], checks: Sequence[Check], *parts: str
) -> None:
    """Writes and prints the page: text, checks, tables, and where it was measured.

    Args:
      about: begins with a paragraph that names the trivial baseline and the positive control, or says that
        there is none, by one of `OPENINGS`.

    Raises:
      SystemExit: a check failed; the page is written all the same.
    """
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    git = ("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*")
    result = {
        "title": title,
        "command": f"make proof-{name.replace('_', '-')}",
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{cpu[1] if cpu else platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"{psutil.virtual_memory().total / 1e9:.0f} GB, Python {platform.python_version()}",
        "figures": figures,
    }
    words = {True: "yes", False: "NO", None: "-"}
    judged = [{"check": check, "measured": found, "holds": words[holds]} for check, found, holds in checks]
    head = (f"# {title}", f"    {result['command']}", about.strip(), table(judged))
    foot = "Measured at {commit}, {date}: {machine}.".format(**result)
    foot += f" Figures: [{name}.json]({name}.json)."
    page = "\n\n".join(part for part in (*head, *parts, foot) if part)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(page + "\n")
    print(page)
    if missed := [check for check, _, holds in checks if holds is False]:
        raise SystemExit(f"error: does not hold: {'; '.join(missed)}")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table with a column for each key of the first row."""
    rows = list(rows)
    names = list(rows[0]) if rows else ["none"]
    lines = [[name.replace("_", " ") for name in names], ["---"] * len(names)]
    lines += [[_cell(row.get(name)) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def named(rows: Mapping[str, Mapping[str, Any]], head: str = "name") -> list[dict[str, Any]]:
    """Rows that begin with their name, in the column `head`."""
    return [{head: name, **row} for name, row in rows.items()]


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return " / ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if type(value) is int:
        return f"{value:,}"
    return "" if value is None else str(value).replace("|", "\\|")


def demo_run() -> Path:
    """The workdir of a finished demo; runs or resumes it first."""
    subprocess.run(["make", "demo", f"WORKDIR={DEMO}"], cwd=ROOT, check=True)
    return DEMO


def others_seconds() -> float:
    """Processor seconds so far of all other processes; differences show how idle the machine is."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _, _, *interrupts = map(int, line.split()[1:])
    ticks = user + nice + system + sum(interrupts[:3])
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
