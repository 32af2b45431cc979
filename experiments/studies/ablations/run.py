"""Ablations: trains the full recipe and its variants with several seeds, on prompts drawn by fate.

    python -m experiments.studies.ablations.run --config=configs/studies/ablations.py:demo \
        --workdir=runs/ablations

First an early SFT policy is trained, the teacher and that policy play tasks on fresh seeds, and their runs
are mined; prompts are drawn so that a third each is accepted, solved, and too hard for the policy. All
variants train from that policy and answer the same held-out prompts; those of the first seeds also play in
the browser.

A finished training or evaluation leaves a small result file in `config.output` and does not run again, even
if the file came with the repository. `ablations.md` and `figures.json` in the workdir are made from the
result files alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collection.evaluation.results import to_json
from collection.report.sources import RunFolder
from collection.report.tables import to_markdown
from configs import rl
from experiments import cli
from experiments.stages import Chain, Stage, run_stages
from experiments.studies.ablations.figures import build_figures, document
from experiments.studies.ablations.records import (
    SFT,
    SFT_ON_PROMPTS,
    BrowserRun,
    Settings,
    TrainingRun,
    load_held_out,
    load_runs,
    load_settings,
    read_browser,
    read_training,
    run_path,
    save,
)
from experiments.studies.ablations.settings import FULL, AblationSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import local_path

# Variant, seed and kind of a result.
Key = tuple[str, int, type[TrainingRun | BrowserRun]]
# Settings that decide a training or its evaluation: all results in one folder share them.
_FIXED = (
    *("size", "iterations", "sft_epochs", "task_seeds", "held_out", "per_class", "sft_learning_rate"),
    *("eval_seeds", "runs", "seed"),
)
# The teacher's tasks; the demo's are the first seeds, and evaluations have seeds from a million on.
_FIRST_SEED = 1000


def main(settings: AblationSettings, workdir: Path) -> None:
    """Runs what is missing and writes the page, also after a failure or an interrupt.

    Raises:
      UserError: the demo run is missing or differs from that of earlier results, or trainings or evaluations
        failed (the others have finished).
    """
    folder = local_path(settings.output, "config.output") if settings.output else workdir / "results"
    try:
        if missing(settings, folder):
            corpus = [Chain("prompts", tuple(corpus_stages(settings, workdir / "corpus")))]
            run_chains(corpus, settings, workdir, lambda chain: None)
            begin(settings, workdir / "corpus", folder)
            left = missing(settings, folder)
            chains = [chain for chain in plan(settings, workdir) if chain.key in left]
            run_chains(chains, settings, workdir, lambda chain: keep(chain, workdir, folder))
    finally:
        if load_settings(folder) is not None:
            write_page(settings, folder, workdir)


def missing(settings: AblationSettings, folder: Path) -> set[Key]:
    """The results that are not there yet."""
    played = settings.seeds[: settings.browser_seeds]
    wanted: set[Key] = {
        (variant, seed, TrainingRun) for variant in settings.variants for seed in settings.seeds
    }
    wanted |= {(variant, seed, BrowserRun) for variant in settings.variants for seed in played}
    wanted |= {(SFT, 0, BrowserRun)} if played else set()
    return {key for key in wanted if not run_path(folder, *key).exists()}


def corpus_stages(settings: AblationSettings, root: Path) -> list[Stage]:
    """The first policy, and the prompts that are drawn by their fates under it."""

    def stage(name: str, script: str, config: str, *overrides: str) -> Stage:
        return Stage(name, root / name, f"experiments.{script}", (f"--config=configs/{config}", *overrides))

    corpus = local_path(settings.run, "config.run") / "sft_corpus"
    if not (corpus / "report.json").exists():
        raise UserError(
            f"config.run is {settings.run!r}, where sft_corpus has not finished: run "
            "`python -m experiments.demo` there, or give --config.run=DIR of one that has"
        )
    size, policy = settings.size, root / "sft/export"
    return [
        stage(
            "sft",
            "train_sft",
            f"sft.py:{size}",
            f"--config.corpus={corpus}",
            f"--config.epochs={settings.sft_epochs}",
        ),
        stage(
            "collect",
            "collect",
            f"collect.py:{size}",
            f"--config.first_seed={_FIRST_SEED}",
            f"--config.seeds={settings.task_seeds}",
        ),
        stage("sft_corpus", "build_sft", f"build_sft.py:{size}", f"--config.trajectories={root / 'collect'}"),
        stage(
            "collect_policy",
            "collect",
            f"collect.py:{size}_policy",
            f"--config.actor.model={policy}",
            f"--config.tasks_from={root / 'collect'}",
        ),
        stage(
            "mine", "mine", f"mine.py:{size}", f"--config.pools={root / 'collect'},{root / 'collect_policy'}"
        ),
        stage(
            "prompts",
            "studies.ablations.prompts",
            f"studies/ablation_prompts.py:{size}",
            f"--config.prompts={root / 'mine/prompts'}",
            f"--config.eval_prompts={root / 'sft_corpus'}",
            f"--config.model={policy}",
            f"--config.held_out={settings.held_out}",
            f"--config.per_class={settings.per_class}",
            f"--config.seed={settings.seed}",
        ),
    ]


def plan(settings: AblationSettings, workdir: Path) -> list[Chain]:
    """All trainings seed by seed, so that early results are balanced, then what is played in the browser."""
    root = workdir / "corpus"
    trainings = {
        (variant, seed): _training(settings, root, workdir / variant / str(seed), variant, seed)
        for seed in settings.seeds
        for variant in settings.variants
    }
    chains = [
        Chain(f"{variant} {seed}", training, (variant, seed, TrainingRun))
        for (variant, seed), training in trainings.items()
    ]
    first = _evaluation(settings, workdir / SFT, SFT, root / "sft/export")
    chains.append(Chain(f"{SFT} in the browser", (first,), (SFT, 0, BrowserRun)))
    for (variant, seed), training in trainings.items():
        if seed in settings.seeds[: settings.browser_seeds]:
            folder = workdir / variant / str(seed)
            # An RL run that changes nothing exports what supervised training made.
            evaluation = _evaluation(settings, folder, "rl", folder / "rl/export")
            chains.append(
                Chain(
                    f"{variant} {seed} in the browser", (*training, evaluation), (variant, seed, BrowserRun)
                )
            )
    return chains


def _training(
    settings: AblationSettings, root: Path, folder: Path, variant: str, seed: int
) -> tuple[Stage, ...]:
    """The stages of a training; the last one answers the held-out prompts, the one before it or it trains."""
    name = settings.size if variant in (FULL, SFT_ON_PROMPTS) else f"{settings.size},{variant}"
    prompts = root / ("sft_corpus" if variant == "full_corpus" else "prompts/prompts")
    own: dict[str, Any] = {"model": root / "sft/export", "iterations": settings.iterations}
    before: tuple[Stage, ...] = ()
    if variant == SFT_ON_PROMPTS:
        before = (_supervised(settings, root, folder, seed),)
        # RL that changes nothing: its evaluation is that of the other variants.
        own = {"model": folder / "sft/export", "iterations": 1, "learning_rate": 0.0}
    own |= {
        "seed": seed,
        "prompts": prompts,
        # The same held-out prompts for all, of tasks that no variant trains on.
        "eval_prompts": root / "prompts/held_out",
        "held_out": settings.held_out,
        "eval_every": settings.iterations,
    }
    overrides = (f"--config.{key}={value}" for key, value in own.items())
    return (
        *before,
        Stage("rl", folder / "rl", "experiments.train_rl", (f"--config=configs/rl.py:{name}", *overrides)),
    )


def _supervised(settings: AblationSettings, root: Path, folder: Path, seed: int) -> Stage:
    """As many optimizer steps as RL has, each on as many samples as an RL step has replies."""
    limits: Any = rl.get_config(settings.size)
    samples = limits.mini_batch_groups * limits.num_samples
    steps = settings.iterations * limits.train_groups // limits.mini_batch_groups
    drawn = json.loads((root / "prompts/report.json").read_bytes())["drawn"]
    own = {
        "seed": seed,
        "model": root / "sft/export",
        "corpus": root / "prompts/samples",
        "trainable": "lora",
        "lora.rank": limits.lora.rank,
        "lora.alpha": limits.lora.alpha,
        "learning_rate": settings.sft_learning_rate,
        "batch_size": samples,
        "epochs": max(1, steps // -(-drawn // samples)),
    }
    overrides = (f"--config.{key}={value}" for key, value in own.items())
    config = f"--config=configs/sft.py:{settings.size}"
    return Stage("sft", folder / "sft", "experiments.train_sft", (config, *overrides))


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


def begin(settings: AblationSettings, corpus: Path, folder: Path) -> None:
    """Records what all results in `folder` share, or checks that it is unchanged.

    Raises:
      UserError: earlier results are from another run.
    """
    reports = {stage: RunFolder(corpus).report(stage) for stage in ("collect", "sft", "mine", "prompts")}
    inputs = {
        "sft/export": "model.safetensors",
        "prompts/prompts": "*.array_record",
        "sft_corpus": "*.array_record",
    }
    now = Settings(
        config={key: getattr(settings, key) for key in _FIXED},
        inputs={name: _digest(corpus / name, pattern) for name, pattern in inputs.items()},
        corpus=_corpus(reports),
    )
    before = load_settings(folder)
    if before is None:
        save(folder / "held_out.json", load_held_out(corpus / "prompts"))
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
    collect, prompts = reports["collect"], reports["prompts"]
    return {
        "teacher": collect["teacher"],
        "tasks": collect["tasks"],
        "trajectories": collect["trajectories"],
        "mined": prompts["mined"],
        "prompts": prompts["drawn"],
        "mined_prompts": prompts["drawn_mined"],
        "held_out": prompts["held_out"],
        "parameters": reports["sft"]["parameters"]["base"],
    }


def run_chains(
    chains: Sequence[Chain], settings: AblationSettings, workdir: Path, keep: Callable[[Chain], None]
) -> None:
    """Runs the chains, several at once, and calls `keep` with each as it ends.

    Raises:
      UserError: some failed; names the first failed stage and its log.
    """
    done, failed = 0, []
    with contextlib.closing(run_stages(chains, workdir / ".jax_cache", settings.jobs)) as ends:
        for end in ends:
            if end.last:
                done += 1
                print(f"[{done}/{len(chains)}] {end.chain.name}: {end.error or 'done'}", flush=True)
            if end.error:
                failed.append(end.error)
            elif end.last:
                keep(end.chain)
    if failed:
        others = f" ({len(failed)} of {len(chains)} failed)" if len(failed) > 1 else ""
        raise UserError(f"{failed[0]}{others}; run the same command again to go on")


def keep(chain: Chain, workdir: Path, folder: Path) -> None:
    """Writes the result file of a finished chain."""
    variant, seed, type_ = chain.key
    run = RunFolder(workdir / SFT if variant == SFT else workdir / variant / str(seed))
    if type_ is TrainingRun:
        record = read_training(run, variant, seed, load_held_out(folder))
    else:
        record = read_browser(run, SFT if variant == SFT else "rl", variant, seed)
    save(run_path(folder, variant, seed, type_), record)


def write_page(settings: AblationSettings, folder: Path, workdir: Path) -> None:
    """Writes `ablations.md` and `figures.json` from the result files in `folder` alone."""
    shared = load_settings(folder)
    assert shared is not None
    variants, seeds = settings.variants, settings.seeds
    runs = load_runs(folder, variants, seeds, TrainingRun)
    played = load_runs(folder, variants, seeds, BrowserRun)
    figures = build_figures(shared, load_held_out(folder), runs, played, settings.seed)
    figures["missing"] = sorted(f"{one[0]} {one[1]}" for one in missing(settings, folder))
    command = shlex.join(["python", "-m", "experiments.studies.ablations.run", *sys.argv[1:]])
    path = workdir / "ablations.md"
    write_atomic(workdir / "figures.json", to_json(figures))
    write_atomic(path, to_markdown(document(figures, command)).encode())
    left = len(figures["missing"])
    print(f"{path}: {len(runs)} trainings and {len(played)} evaluations are there, {left} missing")


if __name__ == "__main__":
    cli.run(main, "configs/studies/ablations.py:demo", AblationSettings)
