"""Training steps from an SFT corpus: measures samples once, shuffles them, and encodes rows in workers.

The samples of a step are a function of its number, the corpus, the seed and the batch size. They do not
depend on the machines, so the position of a run is the number of the step, and a run may resume with another
number of workers, devices or hosts, with or without packing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from rmsweb_jax.data.batching import BatchShapes, SftBatch, choose_widths, collate, round_up
from rmsweb_jax.data.encoding import Encoder, SampleSize, measure_all
from rmsweb_jax.data.packing import RowPlan, padded_tokens, plan_batch, row_caps
from rmsweb_jax.data.sources import RecordSource, Workers, is_held_out, sample_order, stream
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.training.mesh import check_rows, process_rows

_TARGET_MULTIPLE = 16
# Batches that are planned in advance, to choose the widths of a run and to estimate padding.
_TRIALS = 64


@dataclasses.dataclass(frozen=True)
class StepBatch:
    """The data of one optimizer step.

    Attributes:
      step: its number, from 0.
      sample_ids: samples of the whole batch in the order of the data; the same on every process.
      micro_batches: this process's rows.
      tokens, padded_tokens: tokens of all rows of all processes, without and with padding.
    """

    step: int
    sample_ids: tuple[str, ...]
    micro_batches: list[SftBatch]
    tokens: int
    padded_tokens: int


@dataclasses.dataclass(frozen=True)
class SftData:
    """A corpus prepared for training.

    Attributes:
      source: the records.
      encoder: encodes the records as examples.
      sizes: sizes of all records, by number.
      train, held_out: numbers of the records that are trained on, and of those that are evaluated.
      dropped: ids of the samples that are too long.
      shapes: shapes of the micro-batches.
      rows: numbers of the batch rows that this process makes, ascending.
      batch_size: samples of a step.
      order: number of a step -> indices into `train`.
      fingerprint: hash of all that the order depends on; equal fingerprints mean equal batches.
    """

    source: RecordSource[SftSample]
    encoder: Encoder
    sizes: Sequence[SampleSize]
    train: Int[np.ndarray, " train"]
    held_out: Int[np.ndarray, " held_out"]
    dropped: tuple[str, ...]
    shapes: BatchShapes
    rows: Sequence[int]
    batch_size: int
    order: grain.MapDataset
    fingerprint: str

    @property
    def num_samples(self) -> int:
        """Number of samples in an epoch."""
        return len(self.train)

    def steps(self, first: int, stop: int, workers: Workers) -> Generator[StepBatch]:
        """Yields the steps [first, stop), prefetched by workers; the data does not depend on the workers."""
        return stream(self.step, first, stop, workers)

    def step(self, step: int) -> StepBatch:
        """Makes the data of one step."""
        numbers = self.train[self.order[step]]
        plans, batches = self._batches(numbers)
        return StepBatch(
            step=step,
            sample_ids=tuple(self.sizes[number].sample_id for number in numbers),
            micro_batches=batches,
            tokens=sum(self.sizes[number].length for number in numbers),
            padded_tokens=padded_tokens(plans, self.shapes),
        )

    def held_out_batches(self) -> Iterator[SftBatch]:
        """Yields the micro-batches of all held-out samples, a few at a time, to limit memory."""

        def make(number: int) -> list[SftBatch]:
            start = number * self.batch_size
            return self._batches(self.held_out[start : start + self.batch_size])[1]

        for batches in stream(make, 0, -(-len(self.held_out) // self.batch_size), Workers()):
            yield from batches

    def _batches(self, numbers: np.ndarray) -> tuple[list[RowPlan], list[SftBatch]]:
        sizes = [self.sizes[number] for number in numbers]
        plans = plan_batch(sizes, self.shapes)
        batches = []
        for plan in plans:
            # The plan is the same on all processes; each encodes only the rows of its own devices.
            mine = [plan.rows[row] if row < len(plan.rows) else () for row in self.rows]
            rows = [[self._example(numbers[index]) for index in row] for row in mine]
            batches.append(collate(rows, self.shapes, plan.width, self.encoder.config, self.rows))
        return plans, batches

    def _example(self, number: int) -> Any:
        return self.encoder.example(self.source[int(number)])

    def summary(self) -> dict[str, Any]:
        """Returns counts and token statistics for the report."""
        used = [self.sizes[number] for number in self.train]
        lengths = [size.length for size in used]
        quantiles = np.quantile(lengths, [0.0, 0.5, 0.9, 0.99, 1.0]).tolist()
        return {
            "samples": self.num_samples,
            "held_out": len(self.held_out),
            "dropped_too_long": len(self.dropped),
            "dropped_ids": list(self.dropped),
            "tokens": sum(lengths),
            "target_tokens": sum(size.num_targets for size in used),
            "length_quantiles": dict(zip(("min", "p50", "p90", "p99", "max"), quantiles, strict=True)),
            "widths": list(self.shapes.widths),
            "padding": self.padding(),
            "padding_unpacked": self.padding(packed=False),
        }

    def padding(self, packed: bool | None = None) -> float:
        """Computes the share of padding in the rows of the first epoch, or of its first `_TRIALS` steps.

        Args:
          packed: with or without packing; by default as `shapes` says.
        """
        packed = self.shapes.packed if packed is None else packed
        shapes = self.shapes
        if packed != shapes.packed:
            used = [self.sizes[number].length for number in self.train]
            # Widths as these would be chosen for the other layout.
            multiple = int(np.gcd.reduce(shapes.widths))
            widths = choose_widths(used, multiple, len(shapes.widths))
            shapes = dataclasses.replace(shapes, packed=packed, widths=widths)
        tokens = padded = 0
        for step in range(min(_TRIALS, -(-self.num_samples // self.batch_size))):
            sizes = [self.sizes[number] for number in self.train[self.order[step]]]
            tokens += sum(size.length for size in sizes)
            padded += padded_tokens(plan_batch(sizes, shapes), shapes)
        return 1 - tokens / padded


def open_sft_data(
    corpus: Path,
    encoder: Encoder,
    cache: Path,
    mesh: Mesh,
    *,
    max_length: int,
    batch_size: int,
    seed: int,
    held_out: float,
    rows: int,
    multiple: int,
    widths: int,
    pack: bool,
    threads: int = 1,
) -> SftData:
    """Opens a corpus, drops samples over `max_length` tokens (and counts them), and chooses batch shapes.

    Args:
      cache: file that keeps the samples' sizes for the next start.
      mesh: mesh of the batches.
      batch_size, seed: determine the order of the samples.
      held_out: share of the tasks that is evaluated and not trained on.
      rows: rows of a micro-batch over all processes.
      multiple, widths: rows are padded to at most `widths` lengths, multiples of `multiple`.
      pack: True puts several samples in a row of up to `max_length` tokens.
      threads: number of samples that are measured at a time, if the cache does not hold their sizes.

    Raises:
      UserError: the corpus cannot be read or has nothing to train on, or the mesh does not divide the rows.
    """
    check_rows(mesh, rows, "micro_batch_size")
    source = RecordSource(corpus, SftSample)
    sizes = measure_all(source, encoder, cache, threads)
    kept = [number for number, size in enumerate(sizes) if size.length <= max_length]
    train = [number for number in kept if not is_held_out(sizes[number].task_id, held_out, seed)]
    if not train:
        raise UserError(
            f"{corpus}: nothing to train on: of {len(sizes)} samples {len(sizes) - len(kept)} exceed "
            f"{max_length} tokens and {len(kept)} are held out: collect more, raise config.max_length, or "
            "lower config.eval.share"
        )
    order = sample_order(len(train), batch_size, seed)
    # Held-out samples need shapes as well: they are evaluated in the same ones.
    used = [sizes[number] for number in kept]
    if pack:
        trials = [[sizes[train[index]] for index in np.asarray(order[step])] for step in range(_TRIALS)]
        shapes = _packed_shapes(used, trials, rows, max_length, multiple, widths)
    else:
        shapes = BatchShapes(
            rows=rows,
            widths=choose_widths([size.length for size in used], multiple, widths),
            num_targets=round_up(max(size.num_targets for size in used), _TARGET_MULTIPLE),
            images=max(size.images for size in used),
            window=max(size.window for size in used),
        )
    # Without shapes, rows and packing, with which a run may resume differently: they change the layout only.
    decisive = [source.digest, encoder.fingerprint.hex(), max_length, batch_size, seed, held_out]
    return SftData(
        source=source,
        encoder=encoder,
        sizes=sizes,
        train=np.asarray(train),
        held_out=np.asarray(sorted(set(kept) - set(train)), int),
        dropped=tuple(size.sample_id for size in sizes if size.length > max_length),
        shapes=shapes,
        rows=process_rows(mesh, rows),
        batch_size=batch_size,
        order=order,
        fingerprint=hashlib.sha256(json.dumps(decisive).encode()).hexdigest(),
    )


def _packed_shapes(
    used: Sequence[SampleSize],
    trials: Sequence[Sequence[SampleSize]],
    rows: int,
    max_length: int,
    multiple: int,
    count: int,
) -> BatchShapes:
    """Chooses the shapes of packed rows: the full context, and the narrower widths of the first batches."""
    longest = round_up(max_length, multiple)
    num_targets, images = row_caps(used, longest, _TARGET_MULTIPLE)
    every = BatchShapes(
        rows=rows,
        widths=tuple(range(multiple, longest + 1, multiple)),
        num_targets=num_targets,
        images=images,
        window=max(size.window for size in used),
        packed=True,
    )
    wanted = [plan.width for batch in trials for plan in plan_batch(batch, every)]
    return dataclasses.replace(every, widths=choose_widths([*wanted, longest], multiple, count))
