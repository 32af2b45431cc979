"""Training steps from an SFT corpus: measures samples once, orders them, and encodes rows in threads.

The samples of a step are a function of its number, the corpus, the seed and the batch size. They do not
depend on the machines, so the position of a run is the number of the step, and a run may resume with another
number of threads, devices or hosts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from rmsweb_jax.data.batching import Batch, Branch, LazyTree, Tree, lay_out
from rmsweb_jax.data.encoding import Encoder, SampleSize, dataset_sizes
from rmsweb_jax.data.packing import Packer, Rows, choose_packer, useful_work
from rmsweb_jax.data.sources import BatchOrder, RecordSource, is_held_out, stable_hash, stream
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.flops import Work
from rmsweb_jax.qwen.sharding import choose_mesh
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.storage import AnyPath
from rmsweb_jax.training.config import MeshConfig
from rmsweb_jax.training.mesh import make_mesh, process_rows, row_shards

# Steps that are packed in advance, to choose the rows of a run and to estimate padding.
TRIALS = 32
# What the loss needs of each token, see `sft_tree`.
VALUES = ("weight", "action")


@dataclasses.dataclass(frozen=True)
class StepBatch:
    """The data of one optimizer step.

    Attributes:
      step: its number, from 0.
      sample_ids: samples of the whole batch in the order of the data; the same on every process.
      micro_batches: this process's rows.
      useful, executed: work of the rows of all processes, without and with padding.
    """

    step: int
    sample_ids: tuple[str, ...]
    micro_batches: list[Batch]
    useful: Work
    executed: Work


@dataclasses.dataclass(frozen=True)
class SftData:
    """A corpus prepared for training.

    Attributes:
      source: the records.
      encoder: encodes the records as examples.
      sizes: sizes of all records, by number.
      train, held_out: numbers of the records that are trained on, and of those that are evaluated.
      dropped: ids of the samples that are too long.
      packer: packs the samples of a step.
      mesh: sizes of the mesh of the batches.
      rows: numbers of the batch rows that this process makes, ascending.
      batch_size: samples of a step.
      order: number of a step -> indices into `train`.
    """

    source: RecordSource[SftSample]
    encoder: Encoder
    sizes: Sequence[SampleSize]
    train: Int[np.ndarray, " train"]
    held_out: Int[np.ndarray, " held_out"]
    dropped: tuple[str, ...]
    packer: Packer
    mesh: MeshConfig
    rows: Sequence[int]
    batch_size: int
    order: BatchOrder

    @property
    def num_samples(self) -> int:
        """Number of samples in an epoch."""
        return len(self.train)

    def steps(self, first: int, stop: int, threads: int) -> Generator[StepBatch]:
        """Yields the steps [first, stop), made ahead by threads, on whose number they do not depend."""
        return stream(self.step, first, stop, threads)

    def step(self, step: int) -> StepBatch:
        """Makes the data of one step."""
        numbers = self.train[self.order[step]]
        batches, executed = self._batches(numbers)
        return StepBatch(
            step=step,
            sample_ids=tuple(self.sizes[number].sample_id for number in numbers),
            micro_batches=batches,
            useful=useful_work([self.sizes[number].tree for number in numbers]),
            executed=executed,
        )

    def empty_batch(self) -> Batch:
        """Makes this process's rows of a micro-batch of padding, to compile programs with."""
        return self._rows_of((), ())

    def held_out_batches(self) -> Iterator[Batch]:
        """Yields the micro-batches of the samples that are evaluated, a few at a time, to limit memory."""

        def make(number: int) -> list[Batch]:
            start = number * self.batch_size
            return self._batches(self.held_out[start : start + self.batch_size])[0]

        for batches in stream(make, 0, -(-len(self.held_out) // self.batch_size), threads=1):
            yield from batches

    def _batches(self, numbers: np.ndarray) -> tuple[list[Batch], Work]:
        sizes = [self.sizes[number].tree for number in numbers]
        plan = self.packer.pack(sizes)
        batches = [self._rows_of(rows, numbers) for rows in plan]
        return batches, sum((self.packer.executed(rows, sizes) for rows in plan), start=Work(0, 0, 0))

    def _tree(self, number: int) -> LazyTree:
        return LazyTree(self.sizes[number].tree, lambda: sft_tree(self.encoder, self.source[number]))

    def _rows_of(self, rows: Rows, numbers: Sequence[int] | np.ndarray) -> Batch:
        # The plan is the same on all processes; each encodes only the rows of its own devices.
        return lay_out(
            lambda index: self._tree(int(numbers[index])).made(),
            rows,
            self.packer.shape,
            self.encoder.config,
            self.rows,
            VALUES,
        )

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
            "row_tokens": self.packer.shape.width,
            "padding": self.padding(),
        }

    def padding(self) -> float:
        """Computes the share of padding in the rows of the first epoch, or of its first `TRIALS` steps."""
        tokens = padded = 0
        for step in range(min(TRIALS, -(-self.num_samples // self.batch_size))):
            sizes = [self.sizes[number].tree for number in self.train[self.order[step]]]
            tokens += useful_work(sizes).tokens
            padded += len(self.packer.pack(sizes)) * self.packer.shape.rows * self.packer.shape.width
        return 1 - tokens / padded


def sft_tree(encoder: Encoder, sample: SftSample) -> Tree:
    """Encodes a sample, with the weight of each target token in the mean over the tokens of its target."""
    example = encoder.example(sample)
    values = {"weight": 1 / example.num_targets, "action": example.action_mask}
    return Tree(example, (Branch(example.target, values),))


def open_sft_data(
    corpus: AnyPath,
    encoder: Encoder,
    workdir: Path,
    mesh: Mesh | MeshConfig,
    *,
    max_length: int,
    batch_size: int,
    seed: int,
    held_out: float,
    held_out_tokens: int,
    row_tokens: int,
    row_multiple: int,
    threads: int = 1,
) -> SftData:
    """Opens a corpus, drops samples over `max_length` tokens (and counts them), and chooses the rows.

    Args:
      workdir: folder on disk that keeps the samples' sizes.
      mesh: mesh of the batches, each of whose shards has one row of a micro-batch; or its settings.
      batch_size, seed: determine the order of the samples.
      held_out: share of the tasks that is not trained on.
      held_out_tokens: most tokens of held-out samples that are evaluated, by a hash of their ids.
      row_tokens, row_multiple: largest width of a row, and what it is a multiple of.
      threads: samples that are measured at a time.

    Raises:
      UserError: the corpus cannot be read or has nothing to train on, or a sample is longer than a row.
    """
    source = RecordSource(corpus, SftSample)
    sizes = dataset_sizes(source, encoder, workdir, threads)
    kept = [number for number, size in enumerate(sizes) if size.length <= max_length]
    train = [number for number in kept if not is_held_out(sizes[number].task_id, held_out, seed)]
    if not train:
        raise UserError(
            f"{corpus}: nothing to train on: of {len(sizes)} samples {len(sizes) - len(kept)} exceed "
            f"{max_length} tokens and {len(kept)} are held out: collect more, raise config.max_length, or "
            "lower config.eval.share"
        )
    order = BatchOrder(np.asarray([sizes[number].length for number in train]), batch_size, seed)
    used = [sizes[number] for number in kept]
    trials = [[sizes[train[index]].tree for index in order[step]] for step in range(TRIALS)]

    @functools.cache
    def make_packer(rows: int) -> Packer:
        return choose_packer(
            trials,
            encoder.config,
            rows=rows,
            least=max(size.length for size in used),
            most=row_tokens,
            multiple=row_multiple,
            images=max(len(size.patches) for size in used),
            window=max((count for size in used for count in size.patches), default=0),
        )

    if isinstance(mesh, MeshConfig):
        chosen = choose_mesh(mesh, encoder.config, lambda rows: make_packer(rows).expected_fill)
        mesh = make_mesh(**dict(chosen))
    packer = make_packer(row_shards(mesh))
    packer.report()
    return SftData(
        source=source,
        encoder=encoder,
        sizes=sizes,
        train=np.asarray(train),
        held_out=np.asarray(_evaluated(sorted(set(kept) - set(train)), sizes, held_out_tokens), int),
        dropped=tuple(size.sample_id for size in sizes if size.length > max_length),
        packer=packer,
        mesh=MeshConfig(**mesh.shape),
        rows=process_rows(mesh, packer.shape.rows),
        batch_size=batch_size,
        order=order,
    )


def _evaluated(numbers: Sequence[int], sizes: Sequence[SampleSize], tokens: int) -> list[int]:
    """Chooses held-out samples by a hash of their ids: at most `tokens` tokens, but at least one sample."""
    hashed = sorted(numbers, key=lambda number: stable_hash(sizes[number].sample_id))
    totals = np.cumsum([sizes[number].length for number in hashed])
    return sorted(hashed[: max(1, int((totals <= tokens).sum()))])
