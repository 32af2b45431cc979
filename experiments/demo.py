"""The whole recipe on one machine: seven stages, one workdir, resumable.

    python -m experiments.demo --variant=demo --workdir=runs/demo

Each stage is an experiment script that also runs alone; `--dry_run` prints their commands. A stage
that has written its report is not run again, so the same command continues after any interruption.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from rich.console import Console

from experiments.cli import parse_flags, user_errors
from experiments.stages import Chain, Stage, run_stages
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import local_path
from rmsweb_jax.workdir import lock_workdir, make_folder

_VARIANT = flags.DEFINE_enum("variant", "demo", ["demo", "smoke"], "Size of the run.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder for everything the run writes.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the stages' commands and stop.")


def stages(variant: str, root: Path) -> list[Stage]:
    """The recipe in order; each stage reads what earlier ones wrote below `root`."""

    def stage(name: str, script: str, config: str, *settings: str, always: bool = False) -> Stage:
        file = f"--config=configs/{config}"
        return Stage(name, root / name, f"experiments.{script}", (file, *settings), always)

    evaluations = [("base", "tiny_base"), ("sft", root / "sft/export"), ("rl", root / "rl/export")]
    return [
        stage("collect", "collect", f"collect.py:{variant}"),
        stage(
            "sft_corpus", "build_sft", f"build_sft.py:{variant}", f"--config.trajectories={root / 'collect'}"
        ),
        stage("sft", "train_sft", f"sft.py:{variant}", f"--config.corpus={root / 'sft_corpus'}"),
        stage(
            "collect_policy",
            "collect",
            f"collect.py:{variant}_policy",
            f"--config.actor.model={root / 'sft/export'}",
            f"--config.tasks_from={root / 'collect'}",
        ),
        stage(
            "mine",
            "mine",
            f"mine.py:{variant}",
            f"--config.pools={root / 'collect'},{root / 'collect_policy'}",
        ),
        stage(
            "rl",
            "train_rl",
            f"rl.py:{variant}",
            f"--config.prompts={root / 'mine/prompts'}",
            f"--config.model={root / 'sft/export'}",
        ),
        *(
            stage(
                f"evaluate/{label}",
                "evaluate",
                f"evaluate.py:{variant}",
                f"--config.label={label}",
                f"--config.model={model}",
                f"--config.training={root / 'collect'}",
            )
            for label, model in evaluations
        ),
        # Always drawn again: it takes seconds, and stages may have been redone by hand.
        stage("report", "report", f"report.py:{variant}", f"--config.run={root}", always=True),
    ]


def run_demo(variant: str, root: Path) -> None:
    """Runs the stages that have no report yet, with one progress line for each.

    Raises:
      UserError: a stage failed; quotes the last line of its log.
    """
    console = Console(stderr=True, highlight=False)
    plan = stages(variant, root)
    begin = time.monotonic()
    with console.status("starting") as status:
        printed = begin

        def show(running: Sequence[tuple[Chain, Stage]]) -> None:
            nonlocal printed
            for _, stage in running:
                line = f"[{plan.index(stage) + 1}/{len(plan)}] {stage.name}: {stage.progress()}"
                status.update(line)
                # Without a terminal there is no live line: a line a minute shows that it goes on.
                if not console.is_terminal and time.monotonic() > printed + 60:
                    console.print(line)
                    printed = time.monotonic()

        chain = Chain("demo", tuple(plan))
        with contextlib.closing(run_stages([chain], root / ".jax_cache", on_wait=show)) as ends:
            for end in ends:
                if end.error:
                    raise UserError(end.error)
                took = "done before" if end.seconds is None else f"done in {end.seconds:.0f} s"
                console.print(f"[{plan.index(end.stage) + 1}/{len(plan)}] {end.stage.name}: {took}")
                printed = time.monotonic()
    console.print(
        f"finished in {(time.monotonic() - begin) / 60:.1f} min: open {root / 'report/pages/index.html'}"
    )


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}")
    root = local_path(_WORKDIR.value, "--workdir")
    if _DRY_RUN.value:
        for stage in stages(_VARIANT.value, root):
            print(" ".join(["python", *stage.command()[1:]]))
        return
    make_folder(root)
    with lock_workdir(root):
        run_demo(_VARIANT.value, root)


if __name__ == "__main__":
    with user_errors():
        app.run(main, flags_parser=parse_flags)
