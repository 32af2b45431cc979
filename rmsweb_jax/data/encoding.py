"""Encodes SFT samples as tokens and patches, and measures them without decoding their images."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from rmsweb_jax.actions.parse import ReplyError, action_span
from rmsweb_jax.data.batching import Example
from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.processor import EncodedPrompt, ImageResolver, Processor, target_size, upright_size
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample


@dataclasses.dataclass(frozen=True)
class SampleSize:
    """The sizes of a sample, from which the rows of batches are chosen.

    Attributes:
      length: tokens of prompt and target.
      num_targets: tokens of the target.
      patches: patches of each screenshot in the prompt.
      task_id: task that the sample belongs to.
    """

    sample_id: str
    length: int
    num_targets: int
    patches: tuple[int, ...]
    task_id: str = ""

    @property
    def prompt_length(self) -> int:
        return self.length - self.num_targets

    @property
    def tree(self) -> TreeSize:
        """The sample as a tree with one branch."""
        return TreeSize(self.prompt_length, (self.num_targets,), self.patches)


class Encoder:
    """Encodes SFT samples as examples.

    Args:
      processor: that of the model to train.
      images: that of the data set.
      fingerprint: differs between encoders that may give the same sample different sizes.
    """

    def __init__(self, processor: Processor, images: ImageStore, fingerprint: bytes = b""):
        self._processor, self._images = processor, images
        self.fingerprint = fingerprint

    @classmethod
    def load(cls, model: Path, images: ImageStore, max_pixels: int) -> Encoder:
        """Loads the encoder of a model folder."""
        processor = Processor.from_pretrained(model, max_pixels)
        # Sizes depend on the tokenizer, and through the image size on the vision config.
        tokenizer = hashlib.sha256((model / "tokenizer.json").read_bytes()).digest()
        return cls(processor, images, tokenizer + f"{max_pixels} {processor.config.vision}".encode())

    @property
    def processor(self) -> Processor:
        return self._processor

    @property
    def config(self) -> Qwen3VLConfig:
        return self._processor.config

    def example(self, sample: SftSample) -> Example:
        """Encodes a sample; the target is the reply, its `<|im_end|>` and the newline after it.

        Raises:
          UserError: a screenshot is missing or cannot be read.
        """
        return self._example(sample, self._prompt(sample, self._images.get))

    def measure(self, sample: SftSample) -> SampleSize:
        """Measures a sample; reads only the headers of its screenshots."""
        example = self._example(sample, self._prompt(sample, self._blank))
        patches = tuple(int(np.prod(grid)) for grid in example.grids)
        return SampleSize(sample.sample_id, example.length, example.num_targets, patches, sample.task_id)

    def _prompt(self, sample: SftSample, images: ImageResolver) -> EncodedPrompt:
        try:
            return self._processor.encode_prompt(sample.messages, images)
        except UserError as error:
            raise UserError(f"sample {sample.sample_id}: {error}") from error

    def _example(self, sample: SftSample, prompt: EncodedPrompt) -> Example:
        response = self._processor.encode_response(sample.response, newline=True)
        # Extractions have no action span; their mask stays empty, and action metrics leave them out.
        action_mask = np.zeros(len(response.tokens), bool)
        if sample.kind == "action":
            first, last = response.token_span(*_span(sample))
            action_mask[first:last] = True
        return Example(
            sample_id=sample.sample_id,
            tokens=np.concatenate([prompt.tokens, response.tokens]),
            prompt_length=len(prompt.tokens),
            action_mask=action_mask,
            patches=prompt.patches,
            grids=prompt.grids,
        )

    # The number of an image's tokens depends on its size alone, so a blank one measures it without decoding.
    def _blank(self, sha256: str) -> Image.Image:
        """Makes an empty image of the size to which this one would be resized."""
        path = self._images.path(sha256)
        try:
            with Image.open(path) as image:
                size = upright_size(image)
        except FileNotFoundError as error:
            raise UserError(f"{path}: missing screenshot: make this data set again") from error
        except UnidentifiedImageError as error:
            raise UserError(f"{path}: damaged screenshot: make this data set again") from error
        vision = self.config.vision
        unit = vision.patch_size * vision.spatial_merge_size
        return Image.new("RGB", target_size(*size, self._processor.max_pixels, unit))


def measure_all(
    source: RecordSource[SftSample], encoder: Encoder, cache: Path, threads: int = 1
) -> Sequence[SampleSize]:
    """Measures all samples, or reads their sizes from `cache` if corpus and encoder are the same.

    Args:
      cache: file to read or write.
      threads: number of samples measured at a time.

    Raises:
      UserError: a record or a screenshot cannot be read.
    """
    # Measuring a large corpus takes long, and every start needs all sizes: they decide about the shapes.
    key = hashlib.sha256(source.digest.encode() + encoder.fingerprint).hexdigest()
    if cache.exists():
        stored = json.loads(cache.read_text())
        if stored["key"] == key:
            return [
                SampleSize(name, length, targets, tuple(patches), task)
                for name, length, targets, patches, task in stored["measures"]
            ]
    with ThreadPoolExecutor(threads) as pool:
        measures = list(pool.map(lambda number: encoder.measure(source[number]), range(len(source))))
    rows = [dataclasses.astuple(measure) for measure in measures]
    write_atomic(cache, json.dumps({"key": key, "measures": rows}).encode())
    return measures


def _span(sample: SftSample) -> tuple[int, int]:
    try:
        return action_span(sample.response)
    except ReplyError as error:
        raise UserError(
            f"sample {sample.sample_id}: {error}: build the SFT corpus again from valid trajectories"
        ) from error
