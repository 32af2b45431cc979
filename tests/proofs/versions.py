"""Numeric tests with the oldest and the newest packages that pyproject.toml admits. An hour on two cores.

uv makes an environment for each in build/versions, and finds or downloads its Python.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proofs.page import ROOT, Check, named, publish, table

BUILD = ROOT / "build/versions"
UV = "uv==0.13.9"
# Python, and which of the admitted versions uv takes of each package that pyproject.toml names.
ENVIRONMENTS = {"oldest": ("3.11", "lowest-direct"), "newest": ("3.13", "highest")}
FOLDERS = ("data", "decoding", "qwen", "rl", "sft", "training")
PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "ml-dtypes", "jaxtyping"),
    *("transformers", "tokenizers", "safetensors", "torch", "peft", "qwix", "chex"),
)
_VERSIONS = """
import platform, sys
from importlib.metadata import version
print(*(f"{name}={version(name)}" for name in sys.argv[1:]), f"python={platform.python_version()}")
"""


def measure() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    admitted = {name: project["optional-dependencies"][name] for name in ("train", "tpu", "cuda")}
    return {"admitted": admitted, "environments": [measured(name) for name in ENVIRONMENTS]}


def measured(name: str) -> dict[str, Any]:
    """Installs an environment and runs the tests in it, a folder at a time."""
    python = install(name)
    output = run(python, "-c", _VERSIONS, *PACKAGES, check=True).stdout
    versions = dict(word.split("=") for word in output.split())
    return {"name": name, "versions": versions, "tests": [tested(python, folder) for folder in FOLDERS]}


def install(name: str) -> str:
    """Makes the environment anew; returns its Python."""
    version, resolution = ENVIRONMENTS[name]
    tools, folder = BUILD / "tools", BUILD / name
    if not (tools / "bin/uv").exists():
        run(sys.executable, "-m", "venv", tools, check=True)
        run(tools / "bin/python", "-m", "pip", "install", "--quiet", UV, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv, python = tools / "bin/uv", str(folder / "bin/python")
    run(uv, "venv", "--quiet", f"--python={version}", folder, check=True)
    chosen = ("--quiet", f"--python={python}", f"--resolution={resolution}")
    run(uv, "pip", "install", *chosen, "--editable=.[dev]", check=True)
    return python


def tested(python: str, folder: str) -> dict[str, Any]:
    """Runs the tests of a folder; counts those that passed and were skipped, and names those that failed."""
    report = BUILD / "report.xml"
    report.unlink(missing_ok=True)
    done = run(python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", f"tests/{folder}")
    if not report.exists():
        raise SystemExit(f"error: no test of tests/{folder} ran: {(done.stderr or done.stdout)[-2000:]}")
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    if failed:
        print(done.stdout[-5000:])
    return {
        "folder": folder,
        "passed": len(cases) - len(failed) - len(skipped),
        "skipped": len(skipped),
        "failed": [f"{case.get('classname')}.{case.get('name')}" for case in failed],
    }


def run(*command: str | Path, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a command in the checkout.

    Raises:
      SystemExit: it failed, and `check` is set.
    """
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(
            f"error: {' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done


def checks(figures: dict[str, Any]) -> Sequence[Check]:
    found = []
    for environment in figures["environments"]:
        versions, tests = environment["versions"], environment["tests"]
        passed, skipped = (sum(part[key] for part in tests) for key in ("passed", "skipped"))
        failed = [name for part in tests for name in part["failed"]]
        found.append(
            (
                f"{environment['name']} packages (Python {versions['python']}, jax {versions['jax']}, "
                f"flax {versions['flax']}): each numeric test passes",
                f"{passed} passed, {len(failed)} failed, {skipped} skipped",
                passed > 0 and not failed,
            )
        )
    return found


def tables(figures: dict[str, Any]) -> list[str]:
    environments = figures["environments"]
    packages = named({one["name"]: one["versions"] for one in environments}, "packages")
    tests = [{"packages": one["name"], **part} for one in environments for part in one["tests"]]
    return [table(packages), table(tests)]


ABOUT = """\
**No baseline, no control:** tests pass or fail; their references are transformers, PEFT and torch. No version
that `pyproject.toml` excludes is tried, so nothing here shows that a bound is needed.

The tests of the model, of its training and of decoding run with the oldest and with the newest versions that
`pyproject.toml` admits of the packages it names, each with a Python of its own. They compare with
transformers, PEFT and torch, and need no browser. jax 0.10.2 is the last that Python 3.11 can install. On
Python 3.12 and newer flax 0.12.12 or newer is needed, and with it jax 0.11.1 or newer.
"""

if __name__ == "__main__":
    found = measure()
    publish("versions", "Oldest and newest packages", ABOUT, found, checks(found), *tables(found))
