"""SFT samples to training steps: measured once, shuffled, tokenized, cut into micro-batches."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch, Shapes, choose_widths, collate, group_by_length, round_up
from rmsweb_jax.data.encoding import Encoder, Measure
from rmsweb_jax.data.sources import RecordSource, shuffled_steps
from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import process_rows
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import SftSample

_TARGET_MULTIPLE = 16


@dataclasses.dataclass(frozen=True)
class SftData:
    """A corpus that is ready to train on.

    Attributes:
      source: the records.
      encoder: makes examples of them.
      kept: [N] numbers of the records that are trained on.
      lengths: [N] their tokens.
      num_targets: [N] those that are trained on.
      dropped: ids of the samples that are too long.
      shapes: of the batches.
      rows: numbers of the rows that this process makes, ascending.
    """

    source: RecordSource[SftSample]
    encoder: Encoder
    kept: np.ndarray
    lengths: np.ndarray
    num_targets: np.ndarray
    dropped: tuple[str, ...]
    shapes: Shapes
    rows: Sequence[int]

    @property
    def num_samples(self) -> int:
        return len(self.kept)

    def iterator(self, batch_size: int, seed: int) -> grain.DatasetIterator:
        """Endless steps, each a list of micro-batches (this process's rows) of `batch_size` samples."""
        return shuffled_steps(self.num_samples, batch_size, seed, self.micro_batches)

    def micro_batches(self, numbers: np.ndarray) -> list[Batch]:
        """Cuts samples (positions in `kept`) into micro-batches of like length."""
        batches = []
        for group in group_by_length(self.lengths[numbers], self.shapes.rows):
            width = self.shapes.width(int(self.lengths[numbers[group[0]]]))
            places = [group[row] for row in self.rows if row < len(group)]
            mine = [self.source[int(self.kept[numbers[place]])] for place in places]
            examples = [self.encoder.example(sample) for sample in mine]
            config, count = self.encoder.config, len(self.rows)
            batches.append(collate(examples, self.shapes, width, config, count, self.rows))
        return batches

    def summary(self) -> dict[str, Any]:
        """Counts and token statistics for the report."""
        quantiles = np.quantile(self.lengths, [0.0, 0.5, 0.9, 0.99, 1.0]).tolist()
        return {
            "samples": self.num_samples,
            "dropped_too_long": len(self.dropped),
            "dropped_ids": list(self.dropped),
            "tokens": int(self.lengths.sum()),
            "target_tokens": int(self.num_targets.sum()),
            "length_quantiles": dict(zip(("min", "p50", "p90", "p99", "max"), quantiles, strict=True)),
            "widths": list(self.shapes.widths),
        }


def open_sft_data(
    corpus: Path,
    encoder: Encoder,
    cache: Path,
    mesh: Mesh,
    *,
    max_length: int,
    rows: int,
    multiple: int,
    widths: int,
) -> SftData:
    """Reads a corpus, drops samples over `max_length` tokens (counted, never cut) and chooses batch shapes.

    Args:
      cache: file that keeps the samples' lengths for the next start.
      mesh: that the batches will lie on.
      rows: of a micro-batch over all processes.
      multiple, widths: rows are padded to at most so many lengths, multiples of `multiple`.

    Raises:
      UserError: the corpus cannot be read, has nothing to train on, or the mesh does not divide the rows.
    """
    mine = process_rows(mesh, rows)
    source = RecordSource(corpus, SftSample)
    measures = _measure(source, encoder, cache)
    kept = [number for number, measure in enumerate(measures) if measure.length <= max_length]
    if not kept:
        raise UserError(
            f"{corpus}: nothing to train on: all {len(measures)} samples exceed {max_length} tokens: "
            "collect more, or raise config.max_length"
        )
    used = [measures[number] for number in kept]
    shapes = Shapes(
        rows=rows,
        widths=choose_widths([measure.length for measure in used], multiple, widths),
        num_targets=round_up(max(measure.num_targets for measure in used), _TARGET_MULTIPLE),
        images=max(measure.images for measure in used),
        window=max(measure.window for measure in used),
    )
    return SftData(
        source=source,
        encoder=encoder,
        kept=np.asarray(kept),
        lengths=np.asarray([measure.length for measure in used]),
        num_targets=np.asarray([measure.num_targets for measure in used]),
        dropped=tuple(measure.sample_id for measure in measures if measure.length > max_length),
        shapes=shapes,
        rows=mine,
    )


def _measure(source: RecordSource[SftSample], encoder: Encoder, cache: Path) -> Sequence[Measure]:
    """Lengths of all samples, from `cache` where that holds those of this very corpus and tokenizer."""
    manifest = (source.folder / "manifest.json").read_bytes()
    key = hashlib.sha256(manifest + encoder.fingerprint).hexdigest()
    if cache.exists():
        stored = json.loads(cache.read_text())
        if stored["key"] == key:
            return [Measure(*row) for row in stored["measures"]]
    measures = [encoder.measure(source[number]) for number in range(len(source))]
    rows = [dataclasses.astuple(measure) for measure in measures]
    write_atomic(cache, json.dumps({"key": key, "measures": rows}).encode())
    return measures
