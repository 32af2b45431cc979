"""The whole recipe on one machine: seven stages, one workdir, resumable.

    python -m experiments.demo --variant=demo --workdir=runs/demo

Each stage is an experiment script that also runs alone; `--dry_run` prints their commands. A stage
that has written its report is not run again, so the same command continues after any interruption.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from absl import app, flags
from rich.console import Console

from experiments.cli import lock_workdir, parse_flags, user_errors
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

_VARIANT = flags.DEFINE_enum("variant", "demo", ["demo", "smoke"], "Size of the run.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder for everything the run writes.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the stages' commands and stop.")

_POLL_S = 0.5


@dataclass(frozen=True)
class Stage:
    """One script of the recipe.

    Attributes:
      folder: its workdir below the run's, also its name in messages.
      module: what is run.
      settings: `--config` and its overrides.
    """

    folder: str
    module: str
    settings: tuple[str, ...]

    def command(self, root: Path) -> list[str]:
        return [sys.executable, "-m", self.module, *self.settings, f"--workdir={root / self.folder}"]


def stages(variant: str, root: Path) -> list[Stage]:
    """The recipe in order; each stage reads what earlier ones wrote below `root`."""
    config = "--config=configs/{}.py:" + variant
    evaluations = [("base", "tiny_base"), ("sft", root / "sft/export"), ("rl", root / "rl/export")]
    return [
        Stage("collect", "experiments.collect", (config.format("collect"),)),
        Stage(
            "sft_corpus",
            "experiments.build_sft",
            (config.format("build_sft"), f"--config.trajectories={root / 'collect'}"),
        ),
        Stage(
            "sft",
            "experiments.train_sft",
            (config.format("sft"), f"--config.corpus={root / 'sft_corpus'}"),
        ),
        Stage(
            "collect_policy",
            "experiments.collect",
            (
                config.format("collect") + "_policy",
                f"--config.actor.model={root / 'sft/export'}",
                f"--config.tasks_from={root / 'collect'}",
            ),
        ),
        Stage(
            "mine",
            "experiments.mine",
            (config.format("mine"), f"--config.pools={root / 'collect'},{root / 'collect_policy'}"),
        ),
        Stage(
            "rl",
            "experiments.train_rl",
            (
                config.format("rl"),
                f"--config.prompts={root / 'mine/prompts'}",
                f"--config.model={root / 'sft/export'}",
            ),
        ),
        *(
            Stage(
                f"evaluate/{label}",
                "experiments.evaluate",
                (
                    config.format("evaluate"),
                    f"--config.label={label}",
                    f"--config.model={model}",
                    f"--config.training={root / 'collect'}",
                ),
            )
            for label, model in evaluations
        ),
        Stage("report", "experiments.report", (config.format("report"), f"--config.run={root}")),
    ]


def run_demo(variant: str, root: Path) -> None:
    """Runs the stages that have no report yet, with one progress line for each.

    Raises:
      UserError: a stage ended with an error; its own message has been printed.
    """
    console = Console(stderr=True, highlight=False)
    plan = stages(variant, root)
    begin = time.monotonic()
    for number, stage in enumerate(plan, start=1):
        title = f"[{number}/{len(plan)}] {stage.folder}"
        # The report is drawn again each time: it costs seconds and stages may have been redone by hand.
        if stage.folder != "report" and (root / stage.folder / "report.json").exists():
            console.print(f"{title}: done before")
            continue
        started = time.monotonic()
        _run_stage(stage, root, title, console)
        console.print(f"{title}: done in {time.monotonic() - started:.0f} s")
    console.print(f"finished in {(time.monotonic() - begin) / 60:.1f} min: open {root / 'report/index.html'}")


def _run_stage(stage: Stage, root: Path, title: str, console: Console) -> None:
    folder = root / stage.folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "ab") as log:
        # A session of its own: Ctrl-C reaches this process alone, which then stops the stage in order.
        process = subprocess.Popen(
            stage.command(root),
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
            env=_environment(root),
        )
        with _stopping(process):
            _follow(process, folder, title, console)
    if process.returncode:
        lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
        reason = lines[-1].removeprefix("error: ") if lines else f"exit code {process.returncode}"
        raise UserError(f"{stage.folder}: {reason} (log: {folder / 'log.txt'})")


def _environment(root: Path) -> dict[str, str]:
    """The stages share compiled programs: servers of one model, and resumed runs, need not compile again."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str((root / ".jax_cache").resolve())}
    return {**os.environ, **cache, "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def _stopping(process: subprocess.Popen) -> Iterator[None]:
    """Never leaves the stage running behind this process's back."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _follow(process: subprocess.Popen, folder: Path, title: str, console: Console) -> None:
    """Shows the stage's progress until it ends: a live line on a terminal, a line a minute elsewhere."""
    quiet_until = time.monotonic() + 60
    with console.status(f"{title}: starting") as status:
        while True:
            try:
                process.wait(timeout=_POLL_S)
                return
            except subprocess.TimeoutExpired:
                line = f"{title}: {_progress_line(folder)}"
            status.update(line)
            if not console.is_terminal and time.monotonic() > quiet_until:
                console.print(line)
                quiet_until += 60


def _progress_line(folder: Path) -> str:
    try:
        state = json.loads((folder / "progress.json").read_text())
    except FileNotFoundError:
        return "starting"
    left = "" if state["eta_s"] is None else f", {state['eta_s']:.0f} s left"
    return f"{state['done']}/{state['total']}{left} {state['note']}".rstrip()


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}")
    root = Path(_WORKDIR.value)
    if _DRY_RUN.value:
        for stage in stages(_VARIANT.value, root):
            print(" ".join(["python", *stage.command(root)[1:]]))
        return
    root.mkdir(parents=True, exist_ok=True)
    with lock_workdir(root):
        run_demo(_VARIANT.value, root)


if __name__ == "__main__":
    with user_errors():
        app.run(main, flags_parser=parse_flags)
