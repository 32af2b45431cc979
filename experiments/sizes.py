"""Counts the tokens and patches of a new data set, so that training need not when it starts."""

from __future__ import annotations

from pathlib import Path

from rmsweb_jax.records.dataset import dataset_size
from rmsweb_jax.records.schema import RlPrompt, SftSample

_THREADS = 4


def store_sizes(folder: Path, record: type[SftSample] | type[RlPrompt], model: str, max_pixels: int) -> None:
    """Stores the sizes that the samples have for a model, unless they are there; see `data.sizes`.

    Args:
      model: folder or name of the model; with "" nothing is done.
      max_pixels: limit for resized screenshots.

    Raises:
      UserError: the model cannot be found, or a sample cannot be read.
    """
    if not model or not dataset_size(folder):
        return
    # Machines that only collect lack the packages of training.
    from rmsweb_jax.data.encoding import Encoder, dataset_sizes
    from rmsweb_jax.data.sources import RecordSource
    from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
    from rmsweb_jax.records.images import ImageStore

    encoder = Encoder.load(resolve_model(model), ImageStore(folder), max_pixels)
    dataset_sizes(RecordSource(folder, record), encoder, threads=_THREADS)
