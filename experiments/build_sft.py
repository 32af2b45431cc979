"""Turns successful trajectories, and conversations of your own, into supervised samples.

    python -m experiments.build_sft --config=configs/build_sft.py:demo \
        --config.trajectories=runs/demo/collect --workdir=runs/demo/sft_corpus
    python -m experiments.build_sft --config.chats=chats.jsonl --workdir=data/chats

The workdir becomes the data set folder: shards, screenshots, `report.json` with what was kept and
dropped and why, and `drops.jsonl` with the name of everything that was dropped. The same command again
continues where a killed run stopped and ends with the same data set.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collection.config import BuildSftSettings, QualityConfig
from collection.corpus.filter import (
    PAPER_MIN_EFFECTIVE_STEPS,
    Drop,
    FilterCounts,
    make_samples,
    quality_filter,
)
from collection.corpus.guidance import read_guidance
from collection.corpus.screenshots import with_screenshot_prompts
from experiments import cli
from rmsweb_jax.data.chats import chats_digest, read_chats
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.bucket import address, freeze
from rmsweb_jax.records.dataset import dataset_size, read_dataset, write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample, Trajectory
from rmsweb_jax.storage import AnyPath, local_path, parse_path


def main(settings: BuildSftSettings, workdir: Path) -> None:
    """Writes the data set and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    start = time.monotonic()
    quality = settings.quality
    sources = [freeze(source, workdir) for source in source_folders(settings)]
    chats = chat_files(settings)
    provenance = _provenance(sources, chats, settings)
    progress = Progress(workdir, "build_sft", sum(dataset_size(source) for source in sources))
    with _drop_file(workdir / "drops.jsonl") as on_drop:
        counts = FilterCounts(on_drop)
        samples = itertools.chain(
            _stream(sources, settings, counts, progress), _chat_samples(chats, ImageStore(workdir), counts)
        )
        first = next(samples, None)
        if first is None:
            raise UserError(_nothing_left(settings.trajectories, counts, workdir))
        samples = itertools.chain([first], samples)
        write_dataset(workdir, samples, "sft_samples", provenance, images=ImageStore(workdir, *sources))
        # A set that was whole before a crash is not written again, but what was dropped is counted again.
        collections.deque(samples, maxlen=0)
    progress.close()
    report = {
        "stage": "build_sft",
        "seconds": time.monotonic() - start,
        **counts.report(),
        "notes": _notes(quality),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def source_folders(settings: BuildSftSettings) -> list[AnyPath]:
    """The folders of `config.trajectories`, which are separated by commas."""
    names = [name.strip() for name in settings.trajectories.split(",") if name.strip()]
    if not names and not settings.chats.strip():
        raise UserError(
            "config.trajectories is empty: give --config.trajectories=DIR (made by experiments.collect), or "
            "--config.chats=FILE with conversations"
        )
    return [parse_path(name, "config.trajectories") for name in names]


def chat_files(settings: BuildSftSettings) -> list[Path]:
    """The files of `config.chats`, which are separated by commas."""
    files = [local_path(name.strip(), "config.chats") for name in settings.chats.split(",") if name.strip()]
    if len({path.stem for path in files}) < len(files):
        raise UserError("config.chats: two files have the same name, of which ids are made: rename one")
    return files


def _stream(
    sources: list[AnyPath], settings: BuildSftSettings, counts: FilterCounts, progress: Progress
) -> Iterator[SftSample]:
    """All samples of trajectories, in an order that the sources and the settings alone decide."""
    stores = [ImageStore(source) for source in sources]
    trajectories = itertools.chain.from_iterable(read_dataset(source, Trajectory) for source in sources)
    trajectories = _watched(trajectories, progress)
    remade = settings.prompts == "screenshot"
    if remade:
        images = ImageStore(*sources)
        trajectories = (with_screenshot_prompts(run, images) for run in trajectories)
    runs = quality_filter(trajectories, settings.quality, counts, incomplete=remade)
    return make_samples(runs, read_guidance(sources), stores, counts)


def _chat_samples(files: list[Path], images: ImageStore, counts: FilterCounts) -> Iterator[SftSample]:
    for sample in itertools.chain.from_iterable(read_chats(path, images) for path in files):
        counts.keep_sample(sample)
        yield sample


def _watched(trajectories: Iterator[Trajectory], progress: Progress) -> Iterator[Trajectory]:
    for number, trajectory in enumerate(trajectories, start=1):
        yield trajectory
        progress.update(number)


def _provenance(sources: list[AnyPath], chats: list[Path], settings: BuildSftSettings) -> dict[str, object]:
    """Inputs of the data set: the settings, and the digests of the sources' manifests and of the files."""
    manifests = [hashlib.sha256((source / "manifest.json").read_bytes()).hexdigest() for source in sources]
    given: dict[str, object] = {
        "trajectories": [address(source) for source in sources],
        "manifests_sha256": manifests,
        "quality": settings.quality.model_dump(),
    }
    if settings.prompts != "recorded":
        given["prompts"] = settings.prompts
    if chats:
        given["chats"] = {str(path): chats_digest(path) for path in chats}
    return given


@contextlib.contextmanager
def _drop_file(path: Path) -> Iterator[Callable[[Drop], None]]:
    with open(path, "w", encoding="utf-8") as file:

        def write(drop: Drop) -> None:
            file.write(json.dumps(dataclasses.asdict(drop)) + "\n")

        yield write
        file.flush()
        os.fsync(file.fileno())


def _nothing_left(trajectories: str, counts: FilterCounts, workdir: Path) -> str:
    reasons = counts.dropped + counts.samples_dropped
    dropped = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return (
        f"{trajectories}: no trajectory passed the quality filter ({dropped}; {workdir / 'drops.jsonl'} "
        "has the names): collect more, or loosen config.quality"
    )


def _notes(quality: QualityConfig) -> list[str]:
    if quality.min_effective_steps >= PAPER_MIN_EFFECTIVE_STEPS:
        return []
    return [
        f"minimum of effective steps lowered from the paper's {PAPER_MIN_EFFECTIVE_STEPS} "
        f"to {quality.min_effective_steps}"
    ]


if __name__ == "__main__":
    cli.run(main, "configs/build_sft.py:demo", BuildSftSettings)
