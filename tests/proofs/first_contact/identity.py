"""Damaged checkpoints, another base, other data and a full disk, met by real SFT and RL runs. Twenty minutes.

The full disk is a small tmpfs, which only root can mount.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmsweb_jax.qwen.checkpoint import resolve_model
from tests.policies import perturb, write_corpus
from tests.proofs.rl_resume import write_prompts
from tests.training.runs import ROOT, command
from tests.virtual_devices import device_environment

BYTES, PLACES = 64, 6
# Of the checkpoints of SFT two do not fit, with all that a run writes.
SMALL = "45m"
SFT: dict[str, Any] = {
    "max_length": 256,
    "max_pixels": 4096,
    "batch_size": 4,
    "epochs": 2,
    "row_tokens": 512,
    "checkpoint_every": 2,
}
RL: dict[str, Any] = {
    "max_prompt_tokens": 512,
    "max_response_tokens": 8,
    "max_pixels": 4096,
    "held_out": 0.15,
    "iterations": 4,
    "lora.rank": 4,
    "lora.alpha": 8.0,
    "row_tokens": 1024,
    "row_multiple": 64,
    "checkpoint_every": 1,
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """A training: its command but for the workdir, and the folders that it reads, by setting."""

    name: str
    command: list[str]
    reads: Mapping[str, Path]

    def run(self, workdir: Path, log: Path, stop_after: int = 0) -> tuple[int, list[str]]:
        """Runs it; returns the exit code and what it printed but for its log.

        Args:
          stop_after: rows of metrics after which it gets SIGTERM; 0 for never.
        """
        arguments = [f"--config.{name}={folder}" for name, folder in self.reads.items()]
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, *self.command, *arguments, f"--workdir={workdir}"],
                cwd=ROOT,
                env=device_environment(1),
                stdout=file,
                stderr=file,
            )
            metrics = workdir / "metrics.jsonl"
            while stop_after and process.poll() is None:
                if metrics.exists() and metrics.read_bytes().count(b"\n") >= stop_after:
                    process.send_signal(signal.SIGTERM)
                    break
                time.sleep(0.05)
            code = process.wait()
        lines = [line for line in log.read_text().splitlines() if not is_log(line)]
        return code, lines


def is_log(line: str) -> bool:
    """True for lines of absl's log, and those that every run prints at its end."""
    return (line[:1] in "IW" and line[1:5].isdigit()) or line.startswith(("trained ", "to look at it"))


@dataclasses.dataclass(frozen=True)
class Case:
    """What was done to a stopped run, what it printed, its exit code, and whether its end was the same."""

    stage: str
    what: str
    code: int
    lines: list[str]
    same: bool

    def holds(self, code: int) -> bool:
        return self.code == code and len(self.lines) == 1 and self.same


def flip(path: Path, place: int) -> None:
    """Inverts 64 bytes at one of six places."""
    with open(path, "r+b") as file:
        file.seek((path.stat().st_size - BYTES) * place // (PLACES - 1))
        content = file.read(BYTES)
        file.seek(-BYTES, os.SEEK_CUR)
        file.write(bytes(byte ^ 0xFF for byte in content))


def export(workdir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((workdir / "export").iterdir())}


def newest(workdir: Path) -> Path:
    steps = [path for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal()]
    return max(steps, key=lambda path: int(path.name))


def largest(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def try_stage(stage: Stage, root: Path, stop_after: int) -> Iterator[tuple[int, Case]]:
    """Yields the exit code that is wanted, and what happened."""
    log = root / f"{stage.name}.log"
    straight, stopped = root / f"{stage.name}-straight", root / f"{stage.name}-stopped"
    code, lines = stage.run(straight, log)
    assert code == 0, lines[-5:]
    wanted = export(straight)
    code, lines = stage.run(stopped, log, stop_after)
    assert code == 75, (code, lines[-5:])
    name = newest(stopped).name

    def resumed(what: str, place: int | None) -> Case:
        workdir = root / f"{stage.name}-damaged"
        shutil.copytree(stopped, workdir)
        path = largest(workdir / "checkpoints" / name)
        if place is None:
            os.truncate(path, path.stat().st_size // 2)
        else:
            flip(path, place)
        code, lines = stage.run(workdir, log)
        case = Case(stage.name, what, code, lines, export(workdir) == wanted)
        shutil.rmtree(workdir)
        return case

    for place in range(PLACES):
        yield 0, resumed(f"{BYTES} bytes flipped, place {place + 1} of {PLACES}", place)
    yield 0, resumed("the largest file cut to half", None)

    workdir = root / f"{stage.name}-swapped"
    shutil.copytree(stopped, workdir)
    for setting, folder in stage.reads.items():
        kept = folder.with_name(f"{folder.name}-kept")
        folder.rename(kept)
        if setting == "model":
            shutil.copytree(kept, folder)
            perturb(folder / "model.safetensors")
        elif setting == "corpus":
            write_corpus(folder, [1 + number % 2 for number in range(24)])
        else:
            write_prompts(folder, 6)
        code, lines = stage.run(workdir, log)
        shutil.rmtree(folder)
        kept.rename(folder)
        nothing = newest(workdir).name == name and not (workdir / "export").exists()
        yield 2, Case(stage.name, f"config.{setting} replaced", code, lines, nothing)
    code, lines = stage.run(workdir, log)
    yield 0, Case(stage.name, "all put back", code, lines or ["(nothing)"], export(workdir) == wanted)


def fill_disk(stage: Stage, root: Path) -> Iterator[tuple[int, Case]]:
    """A disk on which the second checkpoint does not fit; afterwards it is enlarged."""
    workdir, log = root / "small" / "run", root / "small.log"
    with small_disk(root / "small"):
        code, lines = stage.run(workdir, log)
        whole = newest(workdir).name
        yield 2, Case(stage.name, f"a disk of {SMALL}", code, lines, whole == "2")
        subprocess.run(["mount", "-o", "remount,size=200m", str(root / "small")], check=True)
        code, lines = stage.run(workdir, log)
        same = export(workdir) == export(root / f"{stage.name}-straight")
        yield 0, Case(stage.name, "the disk enlarged", code, lines or ["(nothing)"], same)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def measure(root: Path) -> list[tuple[int, Case]]:
    write_corpus(root / "corpus", [1 + number % 3 for number in range(24)])
    write_prompts(root / "prompts")
    shutil.copytree(resolve_model("tiny_base"), root / "base")
    sft = Stage(
        "SFT",
        command("experiments.train_sft", "configs/sft.py:smoke", SFT),
        {"corpus": root / "corpus", "model": root / "base"},
    )
    rl = Stage(
        "RL",
        command("experiments.train_rl", "configs/rl.py:smoke", RL),
        {"prompts": root / "prompts", "model": root / "base"},
    )
    disk = fill_disk(sft, root) if os.geteuid() == 0 else ()
    cases = []
    for code, case in itertools.chain(try_stage(sft, root, 5), disk, try_stage(rl, root, 2)):
        print(f"{case.stage}, {case.what}: {case.holds(code)}", *case.lines, sep="\n", file=sys.stderr)
        cases.append((code, case))
    return cases


def page(cases: list[tuple[int, Case]], root: Path) -> str:
    lines = [
        "# What a run is made of",
        "",
        "SFT (all weights) and RL (adapters) train the tiny base, and are stopped by SIGTERM. Copies of the",
        "stopped run are damaged or meet other files, and the same command is given again. `same`: the",
        "export equals that of the undisturbed run in every byte; where the run ends with code 2, that",
        "nothing was deleted or written.",
        "",
        "| | done to it | code | printed | same |",
        "|---|---|---|---|---|",
    ]
    for _, case in cases:
        printed = "<br>".join(case.lines[:3]).replace(f"{root}/", "")
        lines.append(
            f"| {case.stage} | {case.what} | {case.code} | {printed} | {'yes' if case.same else 'NO'} |"
        )
    held = sum(case.holds(code) for code, case in cases)
    lines += ["", f"{held} of {len(cases)} as they should be: the code, one line, the same end."]
    if not any("disk" in case.what for _, case in cases):
        lines.append("The full disk was left out: only root can mount a small one.")
    return "\n".join(lines) + "\n"


def main() -> str:
    """Prints and returns the page.

    Raises:
      AssertionError: a case is not as it should be.
    """
    with tempfile.TemporaryDirectory() as folder:
        cases = measure(Path(folder))
        text = page(cases, Path(folder))
    print(text)
    wrong = [f"{case.stage}, {case.what}" for code, case in cases if not case.holds(code)]
    assert not wrong, wrong
    return text


if __name__ == "__main__":
    main()
