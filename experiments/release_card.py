"""Fills the model card of `experiments.export` from a run and from the runs that it came through."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from huggingface_hub import ModelCard

from collection.report.card import Card, CardStage
from collection.report.evaluations import Evaluation, benchmark_title
from rmsweb_jax.errors import UserError
from rmsweb_jax.export.config import ExportSettings
from rmsweb_jax.export.lineage import RL, SFT, DataSet, TrainingRun, describe, lineage, trained_tasks
from rmsweb_jax.qwen.checkpoint import resolve_model

_TITLES = {SFT: "supervised fine-tuning", RL: "Salvage-DS reinforcement learning"}
# Settings that name local paths, hosts or services.
_PLACES = (
    "corpus",
    "prompts",
    "eval_prompts",
    "replay",
    "model",
    "endpoint",
    "workers",
    "tasks_file",
    "play",
)
_METRICS = (
    "loss/train",
    "eval/",
    "reward/mean",
    "reward/best_of_k",
    "gates/accepted",
    "kl_ref",
    "salvage_loss",
)


def make_card(
    run: TrainingRun, settings: ExportSettings, evaluations: Sequence[Evaluation], files: Sequence[str]
) -> Card:
    """The card of a run.

    Args:
      files: names of the other files in the folder.

    Raises:
      UserError: the license of the base model is unknown.
    """
    runs = lineage(run)
    root = _base_name(runs)
    described = {one.folder: [describe(folder) for folder in one.data] for one in runs}
    data = {folder: list(filter(None, sets)) for folder, sets in described.items()}
    every = list(itertools.chain(*data.values()))
    license_, license_source = _license(runs, root, settings.license)
    base = root
    if settings.format == "adapter" and len(runs) > 1:
        base = f"the merged model of {_TITLES[runs[1].stage]} of {root}"
    return Card(
        name=settings.name or f"{root}-rmsweb-{'rl' if run.stage == RL else 'sft'}",
        license=license_,
        license_source=license_source,
        base_model=settings.base_model,
        base=settings.base_model or base,
        format=settings.format,
        rank=run.config["lora"]["rank"],
        stages=[_stage(one, data[one.folder]) for one in reversed(runs)],
        evaluations=evaluations,
        contamination=_contamination(runs, every, evaluations),
        teachers=_teachers(every),
        files=files,
    )


def _base_name(runs: Sequence[TrainingRun]) -> str:
    """The initial model of the first training."""
    model = PurePosixPath(runs[-1].config["model"])
    return model.parent.name if model.name == "export" else model.name


def _license(runs: Sequence[TrainingRun], root: str, given: str) -> tuple[str, str]:
    if given:
        return given, "as given to the export"
    with contextlib.suppress(UserError, OSError, ValueError):  # No card, or one that is not valid.
        card = ModelCard.load(
            resolve_model(runs[-1].config["model"]) / "README.md", ignore_metadata_errors=True
        )
        if license_ := card.data.to_dict().get("license"):
            return str(license_), f"that of {root}, as its card says"
    raise UserError(
        f"the card of {root} names no licence, or is gone: give --config.license=NAME, such as apache-2.0, "
        "after reading the terms of the base model"
    )


def _stage(run: TrainingRun, data: Sequence[DataSet]) -> CardStage:
    report = run.report
    parameters = report["parameters"]
    if run.stage == SFT:
        facts = [
            f"{report['samples']:,} samples, {run.config['epochs']} epochs, {report['steps']:,} steps",
            f"exported: step {report['exported_step']:,}",
            f"trained: {'adapters' if run.config['trainable'] == 'lora' else 'every parameter'}",
        ]
    else:
        facts = [
            f"{report['prompts']:,} prompts ({run.config['corpus']}), {report['held_out']:,} held out; "
            f"{report['iterations']:,} iterations, {report['optimizer_steps']:,} optimizer steps",
            "trained: adapters",
        ]
    facts.append(f"{parameters['base']:,} parameters, {parameters['adapters']:,} in adapters")
    facts.append(f"{report['seconds']:,.0f} s")
    settings = dict(_flat({key: value for key, value in run.config.items() if key not in _PLACES}))
    metrics = {
        name: value
        for name, value in report["final"].items()
        if name.startswith(_METRICS) and name.count("/") < 2 and isinstance(value, int | float)
    }
    lines = [line for one in data for line in _data_lines(one)]
    return CardStage(_TITLES[run.stage], facts, lines, settings, metrics)


def _data_lines(data: DataSet, depth: int = 0) -> Iterator[str]:
    facts = "".join(f", {key} {value}" for key, value in data.facts.items())
    yield (
        f"{'  ' * depth}- `{data.name}`: {data.records:,} {data.kind.replace('_', ' ')}{facts} "
        f"(manifest `{data.manifest_sha256[:12]}`)"
    )
    for source in data.sources:
        yield from _data_lines(source, depth + 1)


def _contamination(
    runs: Sequence[TrainingRun], data: Sequence[DataSet], evaluations: Sequence[Evaluation]
) -> list[str]:
    lines = [_check_line(check) for check in _unique(check for one in data for check in one.checks())]
    lines += [line for one in evaluations if (line := _evaluation_line(one))]
    if not lines:
        lines.append("No comparison of the training tasks with benchmarks' questions is on record.")
    trained = [trained_tasks(folder) for run in runs for folder in run.data]
    if any(tasks is None for tasks in trained):
        return [*lines, "Not all training data was at hand to look for evaluated tasks in it."]
    known = set().union(*filter(None, trained))
    for one in evaluations:
        title, played = benchmark_title(one.benchmark), one.results.tasks
        seen = sum(task_id in known for task_id in played)
        lines.append(f"{seen} of {len(played)} tasks of {title} ({one.label}) were trained on, by their ids.")
    return lines


def _check_line(check: Mapping[str, Any]) -> str:
    if not check["contamination_checked"]:
        return f"{check.get('tasks', 0):,} training tasks were not compared with any benchmark's questions."
    by = ", ".join(f"{name} {count}" for name, count in check.get("contaminated_by", {}).items())
    return (
        f"{check.get('tasks', 0):,} training tasks passed a comparison with {check.get('questions', 0):,} "
        "questions of benchmarks (equal texts, one within the other, shared 3-grams); dropped before: "
        f"{by or 'none'}."
    )


def _evaluation_line(one: Evaluation) -> str:
    """Describes an evaluation's own check of the tasks given as training data."""
    check = one.report.get("contamination") or {}
    if not check.get("checked"):
        return ""
    by = ", ".join(f"{name} {count}" for name, count in check["by_test"].items())
    return (
        f"{benchmark_title(one.benchmark)} ({one.label}): {check['overlapping']:,} of "
        f"{check['training_tasks']:,} training tasks repeat one of its {check['questions']:,} questions or "
        f"have the id of a task{f' ({by})' if by else ''}."
    )


def _teachers(data: Sequence[DataSet]) -> list[str]:
    """Kinds of actors whose replies were learned from, but for our own program and policy."""
    kinds = {kind for one in data for kind in _kinds(one)}
    return sorted(kinds - {"scripted", "policy"})


def _kinds(data: DataSet) -> Iterator[str]:
    if "kind" in data.facts:
        yield str(data.facts["kind"])
    for source in data.sources:
        yield from _kinds(source)


def _unique(checks: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({repr(check): check for check in checks}.values())


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
