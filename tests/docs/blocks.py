"""The commands and Python of README and the documentation: parses all, and runs what this machine can.

    python -m tests.docs.blocks runs/smoke build/docs

The first folder is the output of `make demo DEMO=smoke`, the second is emptied. A comment above a block says
what is done with it; pages do not show it:

- none: it runs as it is written, where the demo's output has the names that the pages use (`_COPIES`);
- `<!-- docs: run, 8b -> smoke; A -> B -->`: it runs with these replacements, at the size of a smoke test;
- `<!-- docs: serve -->`, with replacements or not: likewise, and goes on until the end of its page;
- `<!-- docs: parse, REASON -->`: its programs, flags, settings, files and names are checked, as those of all.

Blocks of Python run after those before them on their page. A failure is printed; the exit code is then 1.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(
    r"(?:^<!-- docs: (\w+)(?:, )?(.*?) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
# What a stage of the demo has written, by the names that the pages use.
_COPIES = {
    "runs/demo": ".", "data/collect": "collect", "data/collect_policy": "collect_policy",
    "data/sft_corpus": "sft_corpus", "data/mine": "mine", "runs/sft": "sft", "runs/rl": "rl",
    "runs/webvoyager/sft": "evaluate/sft", "runs/webvoyager/rl": "evaluate/rl",
}  # fmt: skip
# Programs and words of shells that are not this project's.
_OTHERS = re.compile(
    r"curl|docker|done|envsubst|export|git|kill|kubectl|printf|python|sbatch|sh|sky|sleep|vf-eval|vllm|\S*/bin/pip"
)


class Block(NamedTuple):
    """A block of code of a page, and what is done with it (`run`, `serve` or `parse`)."""

    page: Path
    line: int
    kind: str
    code: str
    how: str
    detail: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def small(self) -> str:
        """Returns the code with its replacements."""
        code = self.code
        for pair in filter(None, self.detail.split("; ")):
            old, new = pair.split(" -> ")
            assert old in code, f"{self}: nothing to replace: {old}"
            code = code.replace(old, new)
        return code


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text[: found.start(4)].count("\n")
        kind = {"bash": "sh"}.get(found[3], found[3])
        if kind in ("sh", "python"):
            yield Block(page, line, kind, found[4], found[1] or "run", found[2] or "")


def problems(found: list[Block]) -> list[str]:
    """Parses blocks, and returns what is wrong with them."""
    wrong, lines = [], []
    for block in found:
        try:
            if block.kind == "python":
                _check_python(block.code)
            else:
                lines += [(block, words) for words in _check_shell(block.code)]
        except (ValueError, SyntaxError, ImportError, AttributeError, AssertionError) as error:
            wrong.append(f"{block}: {error}")
    command = [sys.executable, "-m", "tests.launch.flags"]
    given = json.dumps([words for _, words in lines])
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=True)
    for (block, words), (code, output) in zip(lines, json.loads(done.stdout), strict=True):
        # A command that leaves out what is above it lacks settings.
        if code and not ("..." in block.code and " is empty: give " in output):
            wrong.append(f"{block}: {' '.join(words)}: {output.strip()}")
    return wrong


def _check_python(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            missing = {name.name for name in node.names} - set(dir(module))
            assert not missing, f"{node.module} has no {missing}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)


def _check_shell(code: str) -> Iterator[list[str]]:
    """Yields the scripts that are run, with their flags; checks all else."""
    code = re.sub(r"\\\n|\.\.\.(?=\s)|(?<!\S)#.*", " ", code).replace("\n", " ; ")
    lexer = shlex.shlex(code, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    for words in commands:
        while words and re.fullmatch(r"\w+=.*|do|until", words[0]):
            words = words[1:]
        if words[:2] == ["python", "-m"] or words[:1] == ["rmsweb"]:
            name = words[2] if words[0] == "python" else f"experiments.{words[1]}"
            arguments = words[3 if words[0] == "python" else 2 :]
            if name.startswith("experiments."):
                yield [name, *arguments]
            else:
                assert importlib.util.find_spec(name), f"no module {name}"
        elif words[:1] == ["make"]:
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            for target in (word for word in words[1:] if "=" not in word and word[0] != "-"):
                assert target in targets, f"make has no target {target}"
        elif words[:2] == ["pip", "install"]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            for word in words[2:]:
                extra = re.fullmatch(r"\.\[(\w+)\]", word)
                assert extra[1] in extras if extra else "rmsweb" not in word, f"pip cannot install {word}"
        else:
            assert not words or _OTHERS.fullmatch(words[0]), f"unknown program {words[0]}"
            for word in words:
                assert not re.match(r"(scripts|docs|configs)/", word) or (ROOT / word).exists(), (
                    f"no file {word}"
                )


class Runner:
    """Runs blocks in a folder with the demo's output."""

    def __init__(self, demo: Path, folder: Path):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self._servers = folder, list[subprocess.Popen[str]]()
        # Settings of its stages name its folders.
        shutil.copytree(demo, folder / "runs" / demo.name)
        for name, stage in _COPIES.items():
            shutil.copytree(demo / stage, folder / name)
        for name in ("docs", "scripts"):
            (folder / name).symlink_to(ROOT / name)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}

    def run(self, block: Block, before: str) -> str:
        """Runs a block, after the Python of its page before it; returns what went wrong."""
        if block.kind == "python":
            command = [sys.executable, "-c", f"{before}\n{block.small()}"]
        else:
            command = ["bash", "-euo", "pipefail", "-c", block.small()]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if block.how != "serve":
            output, _ = process.communicate()
            return "" if process.returncode == 0 else output[-3000:]
        self._servers.append(process)
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "http://" in line:
                return ""
        return said

    def stop_servers(self) -> None:
        for process in self._servers:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        self._servers.clear()


def main() -> None:
    demo, folder = (Path(name).resolve() for name in sys.argv[1:])
    found = [block for page in PAGES for block in blocks(page)]
    wrong = problems(found)
    runner, ran, before, page = Runner(demo, folder), 0, "", None
    for block in found:
        if block.page != page:
            runner.stop_servers()
            before, page = "", block.page
        if block.how == "parse":
            continue
        begin = time.monotonic()
        failed = runner.run(block, before)
        ran += 1
        print(f"{'NO' if failed else 'ok'} {time.monotonic() - begin:6.1f} s  {block}", flush=True)
        wrong += [f"{block}:\n{failed}"] * bool(failed)
        before += block.small() * (block.kind == "python")
    runner.stop_servers()
    print(f"{len(found)} blocks: {ran} run, {len(found) - ran} only parsed, {len(wrong)} wrong")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
