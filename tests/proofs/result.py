"""Runs a proof, stores its figures in `docs/results/NAME.json` and renders the page `docs/results/NAME.md`.

A proof is a module of this package that assigns `PROOF = Proof(...)` and ends in `main(PROOF)`. Its `measure`
returns figures by name: numbers, lists, or rows of a table; a share is a fraction of 1. Claims and page are
made from the figures alone: `python -m tests.proofs.NAME --page` makes them again and measures nothing.

`make proof-NAME` measures again only when the code has changed: a result stores a digest of the code that the
proof imports or starts (`digest`), and while that is the same the command says so and stops. FORCE=1 measures
anyway. Comments, docstrings, formatting and what makes claims and page do not count. A result that was
converted from an older page has no digest and is stale until it is measured again.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from rmsweb_jax.records.files import write_atomic

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PACKAGES = ("rmsweb_jax", "collection", "experiments", "configs", "tests")
# Modules that a command line or a fixture names, and configs that a flag names.
_MODULE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_IMPORT = re.compile(rf"(?:^|\n)(?:from|import) ((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")
_CONFIG = re.compile(r"(?:--config=)?(configs(?:/\w+)+\.py)")

Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence that the figures support or refute; `holds` is None where nothing is judged."""

    claim: str
    measured: str
    holds: bool | None


@dataclasses.dataclass(frozen=True)
class Proof:
    """A proof module's texts and functions.

    Attributes:
      title: heading of the page.
      about: what is measured and how, at most a screen; `{name}` inserts a figure.
      measure: returns the figures.
      claims: judges the figures.
      tables: the page's tables and notes, Markdown.
      packages: distributions whose versions are part of the result.
      browser: True if Chromium is needed.
      command: the study's own command; "" for `make proof-NAME`.
    """

    title: str
    about: str
    measure: Callable[[], Figures]
    claims: Callable[[Figures], Sequence[Claim]]
    tables: Callable[[Figures], str] = lambda figures: ""
    packages: Sequence[str] = ()
    browser: bool = False
    command: str = ""

    @property
    def name(self) -> str:
        return Path(self.measure.__code__.co_filename).stem


def main(proof: Proof) -> None:
    """The command line of a proof module.

    Raises:
      SystemExit: a claim does not hold; figures and page are written all the same.
    """
    parser = argparse.ArgumentParser(description=f"Proof: {proof.title}.")
    parser.add_argument(
        "--force", action="store_true", default=bool(os.environ.get("FORCE")), help="also if fresh"
    )
    parser.add_argument("--page", action="store_true", help="render the page again, measure nothing")
    options = parser.parse_args()
    path = RESULTS / f"{proof.name}.json"
    stored = json.loads(path.read_bytes()) if path.exists() else {}
    if options.page:
        result = stored | {"title": proof.title, "claims": judged(proof, stored["figures"])}
    elif stored and stored.get("digest") == digest(proof.name) and not options.force:
        print(f"{path.relative_to(ROOT)}: the code is that of {stored['commit']}; FORCE=1 measures again")
        return
    else:
        if proof.browser:
            subprocess.run(["sh", "scripts/ensure_chromium.sh"], cwd=ROOT, check=True)
        result = run(proof)
    write_atomic(path, to_json(result).encode())
    page = render(proof, result)
    write_atomic(path.with_suffix(".md"), page.encode())
    from tests.proofs import index  # It reads this module.

    write_atomic(RESULTS / "index.md", index.index().encode())
    print(page)
    if missed := [claim["claim"] for claim in result["claims"] if claim["holds"] is False]:
        raise SystemExit(f"error: does not hold: {'; '.join(missed)}")


def judged(proof: Proof, figures: Figures) -> list[dict[str, Any]]:
    return [dataclasses.asdict(claim) for claim in proof.claims(figures)]


def run(proof: Proof) -> dict[str, Any]:
    """Measures, and adds where, when and with what."""
    commit, dirty = _commit()
    load, start = os.getloadavg()[0], time.monotonic()
    figures = proof.measure()
    return {
        "name": proof.name,
        "title": proof.title,
        "command": proof.command or f"make proof-{proof.name.replace('_', '-')}",
        "commit": commit,
        "dirty": dirty,
        "machine": machine(),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in proof.packages},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(time.monotonic() - start, 1),
        "load_at_start": round(load, 1),
        "claims": judged(proof, figures),
        "figures": figures,
        "digest": digest(proof.name),
    }


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system; no names of hosts or folders."""
    cpu, release = Path("/proc/cpuinfo"), Path("/etc/os-release")
    names = re.findall(r"^model name\s*: (.*)$", cpu.read_text(), re.MULTILINE) if cpu.exists() else []
    system = (
        re.search(r'^PRETTY_NAME="(.*)"$', release.read_text(), re.MULTILINE) if release.exists() else None
    )
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "os": f"{system[1] if system else platform.system()} {platform.machine()}",
    }


def _commit() -> tuple[str | None, bool | None]:
    """The checkout's commit, and whether anything but results differs from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results")
        return git("rev-parse", "--short=7", "HEAD"), bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None, None


def to_json(value: Any, depth: int = 0) -> str:
    """JSON with an entry of the three outermost levels in each line, so that changes can be read."""
    pad = " " * (depth + 1)
    if depth < 3 and value and isinstance(value, dict):
        lines = [f"{pad}{json.dumps(key)}: {to_json(inner, depth + 1)}" for key, inner in value.items()]
        brackets = "{}"
    elif depth < 3 and value and isinstance(value, list) and isinstance(value[0], (dict, list)):
        lines = [f"{pad}{json.dumps(row, ensure_ascii=False)}" for row in value]
        brackets = "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    end = "\n" if depth == 0 else ""
    return brackets[0] + "\n" + ",\n".join(lines) + "\n" + pad[1:] + brackets[1] + end


# --- Pages ---


def render(proof: Proof, result: Mapping[str, Any]) -> str:
    """The page of a result."""
    figures = result["figures"]
    words = {True: "yes", False: "NO", None: "-"}
    claims = [(claim["claim"], claim["measured"], words[claim["holds"]]) for claim in result["claims"]]
    parts = [
        f"# {proof.title}",
        f"    {result['command']}",
        filled(proof.about.format(**{name: _listed(figure) for name, figure in figures.items()})),
        table(("claim", "measured", "holds"), claims) if claims else "",
        proof.tables(figures).strip("\n"),
        provenance(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(figure: Any) -> Any:
    if isinstance(figure, dict):
        return "; ".join(f"{name}: {value}" for name, value in figure.items())
    return ", ".join(map(str, figure)) if isinstance(figure, list) else figure


def filled(text: str) -> str:
    """Paragraphs wrapped anew, since figures have been inserted; lists and code stay as they are."""
    wrap = textwrap.TextWrapper(110, break_long_words=False, break_on_hyphens=False)
    blocks = text.strip().split("\n\n")
    return "\n\n".join(wrap.fill(block) if block[0] not in "-| #!" else block for block in blocks)


def provenance(result: Mapping[str, Any]) -> str:
    """The origin of the figures, in one paragraph."""
    name, place = result["name"], described(result["machine"])
    when = (
        f"Measured at {result['commit']}{' with local changes' if result['dirty'] else ''}, {result['date']}"
    )
    took = f", in {result['seconds']:,.0f} s" if result["seconds"] is not None else ""
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    if result.get("converted"):
        when = f"From the page of {result['commit']}, {result['date']}"
    where = "; ".join(part for part in (place, versions) if part) or "machine not recorded"
    return f"{when}{took}: {where}. Figures: [{name}.json]({name}.json)."


def described(machine: Mapping[str, Any]) -> str:
    """One line about a machine, of what is known."""
    words = (
        machine.get("cpu"),
        f"{machine['cores']} cores" if machine.get("cores") else None,
        f"{machine['memory_gb']:.0f} GB" if machine.get("memory_gb") else None,
        machine.get("os"),
    )
    return ", ".join(word for word in words if word)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; bars within cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


# --- Sources ---


# Of a proof's own module: what is made from figures, and changes none.
_PRESENTATION = ("ABOUT", "claims", "tables", "PROOF")


def digest(name: str) -> str:
    """Digest of the code and data that a proof's figures depend on."""
    found = hashlib.sha256()
    own = ROOT / f"tests/proofs/{name}.py"
    for path in sources(f"tests.proofs.{name}"):
        content = _measuring(path) if path == own else _content(path)
        found.update(f"{path.relative_to(ROOT)}\n{content}\n".encode())
    return found.hexdigest()[:16]


def _measuring(path: Path) -> str:
    """A proof's module without claims and page."""

    def presents(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return isinstance(node.targets[0], ast.Name) and node.targets[0].id in _PRESENTATION
        return isinstance(node, ast.FunctionDef) and node.name in _PRESENTATION

    return "\n".join(ast.unparse(node) for node in _code(path).body if not presents(node))


def sources(module: str) -> list[Path]:
    """Files that a module's behaviour depends on, as far as the code shows.

    These are, transitively, the modules of this repository that it imports or that a string names (scripts it
    starts, configs), and the data files and data folders next to them that a string names.
    """
    modules, strings = set(), set()
    waiting = [_module_file(module)]
    while waiting:
        path = waiting.pop()
        if path in (None, Path(__file__), *modules):  # This module presents, and measures nothing.
            continue
        modules.add(path)
        parsed = _parsed(path)
        strings |= parsed.words
        waiting += map(_module_file, parsed.modules)
        if path.name == "__init__.py":  # `python -m PACKAGE` starts this.
            waiting += [main for main in (path.with_name("__main__.py"),) if main.is_file()]
    return sorted(modules | set(_data_files({path.parent for path in modules}, strings)))


def _data_files(folders: Iterable[Path], strings: set[str]) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in _data_beside(folder) if path.relative_to(folder).parts[0] in strings)


@functools.cache
def _data_beside(folder: Path) -> tuple[Path, ...]:
    """Files without code in a folder of modules and in its subfolders that hold no modules."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix not in (".py", ".pyc", ".md"):
            found.append(path)
        elif path.is_dir() and path.name != "__pycache__" and not any(path.glob("**/*.py")):
            found += [inner for inner in sorted(path.rglob("*")) if inner.is_file()]
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class _Parsed:
    """References of a module: modules (or names in them), and all words in its strings."""

    modules: frozenset[str]
    words: frozenset[str]


@functools.cache
def _parsed(path: Path) -> _Parsed:
    modules, words = set(), set()
    # A module's package runs first, so that its `__init__` counts.
    parts = path.relative_to(ROOT).parts[:-1]
    modules |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    lazy = {inner for part in _lazy_imports(path) for inner in ast.walk(part)}
    for node in ast.walk(_code(path)):
        if node in lazy:  # Counted where the name is used.
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
            # Any of the package's names may be used.
            packages = [ROOT / alias.name / "__init__.py" for alias in node.names]
            modules |= {str(lazy.module) for package in packages for lazy in _lazy_imports(package)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules |= {node.value} if _MODULE.fullmatch(node.value) else set()
            modules |= set(_IMPORT.findall(node.value))
            modules |= {name.removesuffix(".py").replace("/", ".") for name in _CONFIG.findall(node.value)}
            words |= set(re.findall(r"[\w.-]+", node.value))
    own = {name for name in modules if name.partition(".")[0] in PACKAGES}
    return _Parsed(frozenset(own), frozenset(words))


def _lazy_imports(path: Path) -> list[ast.ImportFrom]:
    """Imports of a module that only type checkers run; a package loads their names when they are used."""
    blocks = [node for node in _code(path).body if isinstance(node, ast.If)] if path.is_file() else []
    checked = [node for node in blocks if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]
    return [node for block in checked for node in block.body if isinstance(node, ast.ImportFrom)]


@functools.cache
def _module_file(name: str) -> Path | None:
    *parents, last = name.split(".")
    folder = ROOT.joinpath(*parents)
    for path in (folder / f"{last}.py", folder / last / "__init__.py"):
        if path.is_file():
            return path
    package = folder / "__init__.py"
    for node in _lazy_imports(package):
        if node.module and last in {alias.name for alias in node.names}:
            return _module_file(node.module)
    return None


@functools.cache
def _code(path: Path) -> ast.Module:
    return without_docstrings(path.read_text(encoding="utf-8"))


def without_docstrings(code: str) -> ast.Module:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def _content(path: Path) -> str:
    if path.suffix == ".py":
        return ast.unparse(_code(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def demo_run() -> Path:
    """The workdir of a finished `make demo`; runs or resumes it first."""
    workdir = Path("runs/demo")
    print(f"this proof needs the demo: running it, or resuming it, in {workdir}", flush=True)
    command = [sys.executable, "-m", "experiments.demo", "--variant=demo", f"--workdir={workdir}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return workdir
