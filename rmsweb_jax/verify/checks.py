"""Checks with their limits, and the page to post: what was measured, where, and with which versions."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import rmsweb_jax
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.training.performance import compiler_options

_PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax", "transformers", "numpy")
# What changes how XLA compiles and computes.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_PLATFORMS")


@dataclasses.dataclass(frozen=True)
class Check:
    """One measured value.

    Attributes:
      measured: a number, or a text.
      limit: what it must be; "" if nothing is judged.
      ok: whether it is; None if nothing is judged, or the check was skipped.
      note: what else there is to know, such as why it was skipped.
    """

    name: str
    measured: float | str
    limit: str = ""
    ok: bool | None = None
    note: str = ""

    def __str__(self) -> str:
        value = self.measured if isinstance(self.measured, str) else f"{self.measured:.4g}"
        rest = " ".join(part for part in (self.limit and f"({self.limit})", verdict(self), self.note) if part)
        return f"{self.name}: {value} {rest}".rstrip()


def at_most(name: str, measured: float, limit: float, note: str = "") -> Check:
    """A check of a value that must not exceed a limit; NaN does."""
    return Check(name, measured, f"at most {limit:g}", bool(measured <= limit), note)


def at_least(name: str, measured: float, limit: float, note: str = "") -> Check:
    """A check of a value that must reach a limit; NaN does not."""
    return Check(name, measured, f"at least {limit:g}", bool(measured >= limit), note)


def skipped(name: str, why: str) -> Check:
    return Check(name, "skipped", note=why)


def verdict(check: Check) -> str:
    return {True: "ok", False: "NO", None: ""}[check.ok]


def run_checks(
    parts: Mapping[str, Callable[[], Iterable[Check]]], report: Callable[[str], None] = print
) -> list[Check]:
    """Runs every part; an exception becomes a failed check, and the next part runs all the same."""
    done, begin = [], time.monotonic()

    def add(check: Check) -> None:
        done.append(check)
        report(f"[{time.monotonic() - begin:4.0f} s] {check}")

    for name, part in parts.items():
        report(f"[{time.monotonic() - begin:4.0f} s] {name}")
        try:
            for check in part():
                add(check)
        except Exception as error:
            # In full on the terminal, to find its cause; one line on the page.
            report(traceback.format_exc())
            words = " ".join(f"{type(error).__name__}: {error}".split())
            add(Check(name, "failed", "runs", ok=False, note=words[:300]))
    return done


def environment(model: str) -> dict[str, Any]:
    """The versions, devices and flags that the results depend on; no names of hosts or folders."""
    devices = jax.devices()
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return {
        "model": model,
        "versions": {"rmsweb-jax": rmsweb_jax.__version__, "python": platform.python_version(), **found},
        "commit": package_commit(),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "platform": devices[0].platform,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "compiler_options": compiler_options(devices[0], ()),
    }


def package_commit() -> str | None:
    """The commit of the checkout that this package is in, or from which pip installed it; None if unknown."""
    root = Path(rmsweb_jax.__file__).parents[1]
    if (root / ".git").exists():  # Not the repository of a program that has this package in its environment.
        command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        return done.stdout.strip() or None
    try:
        origin = metadata.distribution("rmsweb-jax").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")


def write_report(folder: Path, about: Mapping[str, Any], checks: Sequence[Check], seconds: float) -> str:
    """Writes `verify.json` and `verify.md`, and returns the page."""
    rows = [dataclasses.asdict(check) for check in checks]
    for row in rows:  # JSON has no NaN.
        if isinstance(row["measured"], float) and not math.isfinite(row["measured"]):
            row["measured"] = str(row["measured"])
    content = {**about, "seconds": round(seconds, 1), "checks": rows}
    text = page(content)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "verify.json", (json.dumps(content, indent=1) + "\n").encode())
    write_atomic(folder / "verify.md", text.encode())
    return text


def page(content: Mapping[str, Any]) -> str:
    """The Markdown page of a report."""
    failed = [row["name"] for row in content["checks"] if row["ok"] is False]
    judged = sum(row["ok"] is not None for row in content["checks"])
    words = {True: "ok", False: "NO", None: ""}
    lines = [["check", "measured", "limit", "", "note"], ["---"] * 5]
    for row in content["checks"]:
        value = row["measured"]
        value = value if isinstance(value, str) else f"{value:.4g}"
        lines.append([row["name"], value, row["limit"], words[row["ok"]], row["note"]])
    table = "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
    versions = ", ".join(f"{name} {value}" for name, value in content["versions"].items() if value)
    flags = "; ".join(f"`{name}={value}`" for name, value in content["flags"].items()) or "none"
    options = ", ".join(f"`{name}={value}`" for name, value in content["compiler_options"].items()) or "none"
    return (
        f"# Verified: {content['model']} on {content['devices']}\n\n"
        f"{judged - len(failed)} of {judged} checks are ok"
        f"{'; not: ' + '; '.join(failed) if failed else ''}. {content['seconds']:,.0f} s, "
        f"{content['cores']} cores of the host; {versions}; commit {content['commit'] or 'unknown'}; "
        f"flags: {flags}; compiler options: {options}.\n\n{table}\n"
    )
