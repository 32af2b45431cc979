"""Turns successful trajectories into supervised samples.

    python -m experiments.build_sft --config=configs/build_sft.py:demo \
        --config.trajectories=runs/demo/collect --workdir=runs/demo/sft_corpus

The workdir becomes the data set folder: shards, screenshots, and `report.json` with what was
dropped and why.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from collection.corpus import (
    DROP_REASONS,
    PAPER_MIN_EFFECTIVE_STEPS,
    QualityConfig,
    flatten,
    quality_filter,
)
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import SftSample, Trajectory
from rmsweb_jax.records.shards import dataset_size, read_dataset, write_dataset


def main(config: ConfigDict, workdir: Path) -> None:
    """Writes the data set and then the report, whose presence means that the stage is done."""
    if (workdir / "report.json").exists():
        return
    if not config.trajectories:
        raise UserError(
            "config.trajectories is empty: give --config.trajectories=DIR (made by experiments.collect)"
        )
    start = time.monotonic()
    source = Path(str(config.trajectories))
    quality = QualityConfig(**config.to_dict()["quality"])
    progress = Progress(workdir, "build_sft", dataset_size(source))
    counts: Counter[str] = Counter()
    samples = _samples(source, workdir, quality, counts, progress)
    first = next(samples, None)
    if first is None:
        dropped = ", ".join(f"{reason} {counts[reason]}" for reason in DROP_REASONS if counts[reason])
        raise UserError(
            f"{source}: no trajectory passed the quality filter ({dropped}): "
            "collect more, or loosen config.quality"
        )
    kinds: Counter[str] = Counter()
    sites: Counter[str] = Counter()
    provenance = {"trajectories": str(source), "quality": dataclasses.asdict(quality)}
    stream = _counted(itertools.chain([first], samples), kinds, sites)
    write_dataset(workdir, stream, "sft_samples", provenance)
    progress.close()
    report = {
        "stage": "build_sft",
        "seconds": time.monotonic() - start,
        "trajectories": counts.total(),
        "kept": counts["kept"],
        "dropped": {reason: counts[reason] for reason in DROP_REASONS},
        "samples": {"action": kinds["action"], "extraction": kinds["extraction"]},
        "sites": dict(sorted(sites.items())),
        "notes": _notes(quality),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def _samples(
    source: Path, workdir: Path, quality: QualityConfig, counts: Counter[str], progress: Progress
) -> Iterator[SftSample]:
    """Samples whose screenshots lie in the workdir already."""
    images, target = ImageStore(source), ImageStore(workdir)
    for trajectory, steps in quality_filter(read_dataset(source, Trajectory), quality, counts):
        for sample in flatten(trajectory, steps):
            for name in image_names(sample.messages):
                target.link_from(images, name)
            yield sample
        progress.update(counts.total())


def _counted(samples: Iterator[SftSample], kinds: Counter[str], sites: Counter[str]) -> Iterator[SftSample]:
    for sample in samples:
        kinds[sample.kind] += 1
        sites[sample.site] += 1
        yield sample


def _notes(quality: QualityConfig) -> list[str]:
    if quality.min_effective_steps >= PAPER_MIN_EFFECTIVE_STEPS:
        return []
    return [
        f"minimum of effective steps lowered from the paper's {PAPER_MIN_EFFECTIVE_STEPS} "
        f"to {quality.min_effective_steps}"
    ]


if __name__ == "__main__":
    cli.run(main, "configs/build_sft.py:demo")
