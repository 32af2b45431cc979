"""The code before and after the work on its structure: sizes, repetitions, and files that each stage enters.

Measures this tree and the tree of `BEFORE` with the same functions. The journeys are the stages of the smoke
demo, run under a profile hook: an entered file is one of ours of which at least one function ran.
"""

from __future__ import annotations

import ast
import collections
import io
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.proofs.result import ROOT, Claim, Figures, Proof, main

BEFORE = "6a28797"
PACKAGES = ("rmsweb_jax", "collection", "experiments", "configs")
STUDIES = ("experiments/studies", "configs/studies")
CAPABILITIES = {
    "model and decoding": ("rmsweb_jax/qwen3_vl", "rmsweb_jax/decoding"),
    "RL": ("rmsweb_jax/rl", "rmsweb_jax/sampling.py"),
    "SFT and data": ("rmsweb_jax/sft", "rmsweb_jax/data"),
    "server": ("rmsweb_jax/serve",),
    "contract (actions, records)": ("rmsweb_jax/actions", "rmsweb_jax/records"),
    "browser": ("collection/browser",),
    "agent, environments, models": ("collection/agent", "collection/environments", "collection/llm"),
    "fleet and corpus": (
        *("collection/fleet", "collection/corpus", "collection/corpus.py", "collection/worker.py"),
        *("collection/station.py", "collection/journals.py", "collection/rounds.py", "collection/steps.py"),
        *("collection/policy_server.py", "collection/reflect.py", "collection/fleet_config.py"),
        *("collection/tally.py", "collection/sites.py"),
    ),
    "mining": ("collection/mining",),
    "judges and evaluation": ("collection/judges", "collection/evaluation"),
    "scripts and configs": ("experiments", "configs"),
}


def sources(root: Path, installed: bool = True) -> list[Path]:
    """Python files of the packages; with `installed` those that a wheel holds."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    studies = tuple(str(root / folder) + "/" for folder in STUDIES)
    return [path for path in files if not (installed and str(path).startswith(studies))]


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def comment_lines(path: Path) -> int:
    """Lines that hold nothing but a comment, or end with one."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def names_used(tree: ast.AST) -> Iterator[str]:
    """Names that code refers to, once for each place; definitions and imports do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def said_twice(root: Path) -> int:
    """Counts settings to which `configs/` gives the same value as a dataclass's default."""
    stated: set[tuple[str, str]] = set()
    for path in (root / "configs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                stated |= {
                    (key.value, ast.dump(value))
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
            elif isinstance(node, ast.Assign):
                stated |= {
                    (t.attr, ast.dump(node.value)) for t in node.targets if isinstance(t, ast.Attribute)
                }
            elif isinstance(node, ast.keyword) and node.arg:
                stated.add((node.arg, ast.dump(node.value)))
    defaults: set[tuple[str, str]] = set()
    for package in ("rmsweb_jax", "collection"):
        for path in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    defaults |= {
                        (part.target.id, ast.dump(part.value))
                        for part in node.body
                        if isinstance(part, ast.AnnAssign)
                        and part.value
                        and isinstance(part.target, ast.Name)
                    }
    return len(stated & defaults)


def measure(root: Path) -> dict[str, float | dict[str, int]]:
    files = sources(root)
    trees = {path: ast.parse(path.read_text()) for path in files}
    total = sum(map(lines, files))
    defined = [node for tree in trees.values() for node in functions(tree)]
    lengths = [node.end_lineno - node.lineno + 1 for node in defined if node.end_lineno]
    used = collections.Counter(name for tree in trees.values() for name in names_used(tree))
    names = collections.Counter(node.name for node in defined)
    once = [name for name in names if names[name] == 1 and used[name] == 1]
    classes = collections.Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    comments = sum(map(comment_lines, files))
    capabilities = {
        name: sum(lines(path) for path in files if any(path.is_relative_to(root / part) for part in parts))
        for name, parts in CAPABILITIES.items()
    }
    return {
        "modules_installed": len(files),
        "lines_installed": total,
        "lines_of_studies": sum(map(lines, sources(root, installed=False))) - total,
        "lines_of_tests": sum(map(lines, (root / "tests").rglob("*.py"))),
        "median_lines_of_a_module": statistics.median(map(lines, files)),
        "modules_under_45_lines": sum(5 < lines(path) < 45 and path.stem != "__init__" for path in files),
        "functions": len(defined),
        "median_lines_of_a_function": statistics.median(lengths),
        "functions_over_60_lines": sum(length > 60 for length in lengths),
        "functions_used_once": len(once),
        "class_names_defined_twice": sum(count > 1 for count in classes.values()),
        "import_lines": imports,
        "comment_share": round(comments / total, 4),
        "settings_said_twice": said_twice(root),
        "lines_by_capability": capabilities,
    }


# Loaded by every Python process of a run (`sitecustomize`): appends each function that runs, once per
# process, to a file named after the stage. Appended lines survive a kill.
_HOOK = """
import os, sys, threading
argv, root = sys.orig_argv, os.environ["HOUSE_ROOT"]
if "-m" in argv and argv[argv.index("-m") + 1].startswith(("experiments.", "rmsweb_jax.")):
    os.environ["HOUSE_STAGE"] = argv[argv.index("-m") + 1].split(".", 1)[1].removesuffix(".__main__")
stage = os.environ.get("HOUSE_STAGE")
if stage:
    seen, log = set(), open(os.path.join(os.environ["HOUSE_LOGS"], stage), "a", buffering=1)
    def hook(frame, event, _):
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            name = code.co_filename
            # Bodies of modules and classes run when they are imported, which is no step of a journey.
            if name.startswith(root + os.sep) and ".venv" not in name and code.co_flags & 2:
                log.write(f"{name[len(root) + 1:]}\\t{code.co_qualname}\\n")
    sys.setprofile(hook)
    threading.setprofile(hook)
"""


def journeys(root: Path) -> dict[str, dict[str, int]]:
    """Runs the smoke demo of a tree; counts the files, functions and packages that each stage enters."""
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-house-") as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_HOOK)
        (folder / "logs").mkdir()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(root), str(folder)]),
            "HOUSE_ROOT": str(root),
            "HOUSE_LOGS": str(folder / "logs"),
        }
        command = [sys.executable, "-m", "experiments.demo", "--variant=smoke", f"--workdir={folder / 'run'}"]
        subprocess.run(command, cwd=root, env=environment, check=True)
        entered = {
            log.name: {tuple(line.split("\t")) for line in log.read_text().splitlines()}
            for log in (folder / "logs").iterdir()
        }
    return {
        stage: {
            "files": len({file for file, _ in functions}),
            "functions": len(functions),
            "packages": len({str(Path(file).parent) for file, _ in functions}),
        }
        for stage, functions in sorted(entered.items())
    }


def checkout(commit: str, folder: Path) -> None:
    """Writes the tree of a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def prove() -> Figures:
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-before-") as name:
        before = Path(name)
        checkout(BEFORE, before)
        return {
            "before": measure(before) | {"journeys": journeys(before)},
            "after": measure(ROOT) | {"journeys": journeys(ROOT)},
        }


def claims(figures: Figures) -> Sequence[Claim]:
    before, after = figures["before"], figures["after"]

    def fewer(key: str, what: str) -> Claim:
        return Claim(
            f"fewer {what}", f"{before[key]:,} before, {after[key]:,} after", after[key] < before[key]
        )

    return [
        fewer("lines_installed", "installed lines"),
        fewer("modules_installed", "installed modules"),
        fewer("import_lines", "import lines"),
        fewer("functions_used_once", "functions that are used once"),
        fewer("class_names_defined_twice", "class names that are defined in several places"),
        fewer("settings_said_twice", "settings whose value is stated twice"),
        Claim(
            "comments on at least 4 % of installed lines",
            f"{before['comment_share']:.1%} before, {after['comment_share']:.1%} after",
            after["comment_share"] >= 0.04,
        ),
    ]


def tables(figures: Figures) -> str:
    before, after = figures["before"], figures["after"]

    def table(title: str, one: dict[str, Any], other: dict[str, Any]) -> str:
        rows = [
            f"| {key.replace('_', ' ')} | {one.get(key, '')} | {other.get(key, '')} |" for key in one | other
        ]
        return "\n".join([f"| {title} | before | after |", "|---|---|---|", *rows, ""])

    plain = [
        {key: value for key, value in part.items() if not isinstance(value, dict)} for part in (before, after)
    ]
    entered = [
        {stage: f"{n['files']} files, {n['functions']} functions" for stage, n in part["journeys"].items()}
        for part in (before, after)
    ]
    return "\n".join(
        [
            table("figure", *plain),
            table("lines of a capability", before["lines_by_capability"], after["lines_by_capability"]),
            table("stage of the smoke demo enters", *entered),
        ]
    )


PROOF = Proof(
    title="Structure of the code, before and after",
    about=textwrap.dedent(
        f"""\
        `before` is commit {BEFORE}. A function counts as used once if its name is unique and occurs in one
        place. A setting is stated twice if `configs/` gives it the value of a dataclass's default. Studies
        (`experiments/studies`) are not installed."""
    ),
    measure=prove,
    claims=claims,
    tables=tables,
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
