"""Ablations: trains the full recipe and its variants with several seeds and evaluates them in the browser.

    python -m experiments.studies.ablations.run --config=configs/studies/ablations.py:demo \
        --workdir=runs/ablations

Each training is one `experiments.train_rl` and one `experiments.evaluate` in its own folder below the
workdir. A finished one leaves a small result file in `config.output` and does not run again, even if the
file came with the repository. `ablations.md`, `figures.json` and the plots in the workdir are made from the
result files alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from collection.evaluation.results import to_json
from collection.report.sources import RunFolder
from collection.report.tables import to_markdown
from experiments import cli
from experiments.stages import Chain, Stage, run_stages
from experiments.studies.ablations.figures import build_figures, document, render_panels
from experiments.studies.ablations.records import (
    SFT,
    Settings,
    load_runs,
    load_settings,
    make_run,
    read_training,
    run_path,
    save,
)
from experiments.studies.ablations.settings import FULL, AblationSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.settings import from_config, safe_keys
from rmsweb_jax.storage import local_path

# Settings that decide a training or its evaluation: all results in one folder share them.
_FIXED = ("size", "iterations", "eval_seeds", "runs")


def main(config: ConfigDict, workdir: Path) -> None:
    """Runs what is missing and writes the page, also after a failure or an interrupt.

    Raises:
      UserError: the demo run is missing or differs from that of earlier results, or trainings or evaluations
        failed (the others have finished).
    """
    settings = from_config(AblationSettings, config)
    folder = local_path(settings.output, "config.output") if settings.output else workdir / "results"
    finished = {(run.variant, run.seed) for run in load_runs(folder, settings.variants, settings.seeds)}
    chains = [chain for chain in plan(settings, workdir) if chain.key not in finished]
    try:
        if chains:
            begin(settings, folder)
            run_missing(chains, settings, workdir, folder)
    finally:
        if load_settings(folder) is not None:
            write_page(settings, folder, workdir)


def plan(settings: AblationSettings, workdir: Path) -> list[Chain]:
    """The SFT policy's evaluation, then all variants seed by seed, so that early results are balanced."""
    source = local_path(settings.run, "config.run")
    chains = [Chain(SFT, (_evaluation(settings, workdir / SFT, SFT, source / "sft/export"),), (SFT, 0))]
    for seed in settings.seeds:
        for variant in settings.variants:
            folder = workdir / variant / str(seed)
            name = settings.size if variant == FULL else f"{settings.size},{variant}"
            prompts = source / ("sft_corpus" if variant == "full_corpus" else "mine/prompts")
            training = Stage(
                "rl",
                folder / "rl",
                "experiments.train_rl",
                (
                    f"--config=configs/rl.py:{name}",
                    f"--config.seed={seed}",
                    f"--config.iterations={settings.iterations}",
                    f"--config.prompts={prompts}",
                    # The same held-out prompts for all, of tasks that no variant trains on.
                    f"--config.eval_prompts={source / 'mine/prompts'}",
                    f"--config.model={source / 'sft/export'}",
                ),
            )
            evaluation = _evaluation(settings, folder, "rl", folder / "rl/export")
            chains.append(Chain(f"{variant} {seed}", (training, evaluation), (variant, seed)))
    return chains


def _evaluation(settings: AblationSettings, folder: Path, label: str, model: Path) -> Stage:
    return Stage(
        f"evaluate/{label}",
        folder / "evaluate" / label,
        "experiments.evaluate",
        (
            f"--config=configs/evaluate.py:{settings.size}",
            f"--config.label={label}",
            f"--config.model={model}",
            f"--config.seeds={settings.eval_seeds}",
            f"--config.runs={settings.runs}",
            f"--config.fleet.workers={settings.workers}",
        ),
    )


def begin(settings: AblationSettings, folder: Path) -> None:
    """Records what all results in `folder` share, or checks that it is unchanged.

    Raises:
      UserError: the demo run lacks a stage, or earlier results are from another run.
    """
    root = local_path(settings.run, "config.run")
    reports = {stage: RunFolder(root).report(stage) for stage in ("collect", "sft_corpus", "sft", "mine")}
    for stage, report in reports.items():
        if report is None:
            raise UserError(
                f"config.run is {str(root)!r}, where {stage} has not finished: run "
                "`python -m experiments.demo` there, or give --config.run=DIR of one that has"
            )
    now = Settings(
        config={key: getattr(settings, key) for key in _FIXED},
        inputs={
            name: _digest(root / name, pattern)
            for name, pattern in (
                ("sft/export", "model.safetensors"),
                ("mine/prompts", "*.array_record"),
                ("sft_corpus", "*.array_record"),
            )
        },
        corpus=_corpus(reports),
    )
    before = load_settings(folder)
    if before is None:
        save(folder / "settings.json", now)
        return
    changed = [key for key in _FIXED if before.config.get(key) != now.config[key]]
    changed += [name for name in now.inputs if before.inputs.get(name) != now.inputs[name]]
    if changed:
        raise UserError(
            f"{folder}: the results there were made with other settings or inputs ({', '.join(changed)}): "
            "use those, delete the folder to begin anew, or give another --config.output"
        )


def _digest(folder: Path, pattern: str) -> str:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise UserError(f"{folder}: no {pattern} there; run that stage of the demo again")
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _corpus(reports: dict[str, Any]) -> dict[str, Any]:
    collect = reports["collect"]
    return {
        "teacher": collect["teacher"],
        "tasks": collect["tasks"],
        "trajectories": collect["trajectories"],
        "sft_samples": reports["sft_corpus"]["samples"]["action"],
        "prompts": reports["mine"]["prompts"],
        "parameters": reports["sft"]["parameters"]["base"],
    }


def run_missing(chains: Sequence[Chain], settings: AblationSettings, workdir: Path, folder: Path) -> None:
    """Runs the chains, several at once, and writes the result of each as it ends.

    Raises:
      UserError: some failed; names the first failed stage and its log.
    """
    console = Console(stderr=True, highlight=False)
    progress = Progress(workdir, "ablations", len(chains))
    started, done, failed = time.monotonic(), 0, []

    def show(running: Sequence[tuple[Chain, Stage]]) -> None:
        progress.update(done, ", ".join(f"{chain.name}: {stage.name}" for chain, stage in running))

    with contextlib.closing(run_stages(chains, workdir / ".jax_cache", settings.jobs, show)) as ends:
        for end in ends:
            if not end.last:
                continue
            done += 1
            if end.error:
                failed.append(end.error)
            else:
                keep(end.chain, workdir, folder)
            minutes = (time.monotonic() - started) / 60
            left = minutes / done * (len(chains) - done)
            result = f"{end.error or 'done'} ({minutes:.0f} min, about {left:.0f} left)"
            console.print(f"[{done}/{len(chains)}] {end.chain.name}: {result}", markup=False)
    progress.close()
    if failed:
        others = f" ({len(failed)} of {len(chains)} failed)" if len(failed) > 1 else ""
        raise UserError(f"{failed[0]}{others}; run the same command again to go on")


def keep(chain: Chain, workdir: Path, folder: Path) -> None:
    """Writes the result file of a finished chain."""
    variant, seed = chain.key
    label = SFT if variant == SFT else "rl"
    run = RunFolder(workdir / SFT if variant == SFT else workdir / variant / str(seed))
    training = None
    if variant != SFT:
        corpus = json.loads((run.root / "rl/config.json").read_bytes())["corpus"]
        training = read_training(run, corpus)
    results, report = run.results(label), run.report(f"evaluate/{label}")
    assert results is not None
    assert report is not None
    record = make_run(variant, seed, training, results, report["seconds"])
    save(run_path(folder, variant, seed), record)


def write_page(settings: AblationSettings, folder: Path, workdir: Path) -> None:
    """Writes `ablations.md`, `figures.json` and the plots, from the result files in `folder` alone."""
    shared = load_settings(folder)
    assert shared is not None
    variants, seeds = settings.variants, settings.seeds
    runs = load_runs(folder, variants, seeds)
    figures = build_figures(shared, runs, variants, seeds, settings.seed)
    panels = render_panels(runs)
    for variant, svg in panels.items():
        write_atomic(workdir / f"{variant}.svg", svg.encode())
    command = shlex.join(["python", "-m", "experiments.studies.ablations.run", *sys.argv[1:]])
    path = workdir / "ablations.md"
    write_atomic(workdir / "figures.json", to_json(figures))
    write_atomic(path, to_markdown(document(figures, panels, command)).encode())
    print(f"{path}: {len(runs)} of {1 + len(variants) * len(seeds)} results are there")


if __name__ == "__main__":
    cli.run(main, "configs/studies/ablations.py:demo", safe_keys(AblationSettings))
