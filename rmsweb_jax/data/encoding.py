"""Encodes SFT samples as tokens and patches, and counts these without decoding images."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool
from PIL import Image

from rmsweb_jax.actions.parse import ReplyError, action_span
from rmsweb_jax.data.batching import Example
from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import Grid
from rmsweb_jax.qwen.processor import (
    BAD_IMAGE,
    EncodedResponse,
    Processor,
    check_image,
    image_grid,
    upright_size,
)
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import Message, RlPrompt, SftSample
from rmsweb_jax.training.mesh import any_process, from_all_processes

# Counts changes of the prompt's template and of the sizes of images, after which stored sizes are wrong.
_LAYOUT = 1


class Encoder:
    """Encodes SFT samples as examples.

    Args:
      processor: that of the model to train.
      images: that of the data set.
    """

    def __init__(self, processor: Processor, images: ImageStore):
        self.processor, self.images = processor, images

    @classmethod
    def load(cls, model: Path, images: ImageStore, max_pixels: int) -> Encoder:
        """Makes the encoder of a model folder."""
        return cls(Processor.from_pretrained(model, max_pixels), images)

    @property
    def config(self) -> Qwen3VLConfig:
        return self.processor.config

    def example(self, sample: SftSample) -> Example:
        """Encodes a sample; the target is the reply, its `<|im_end|>` and the newline after it.

        Raises:
          UserError: a screenshot is missing or cannot be read.
        """
        with _named(sample.sample_id):
            prompt = self.processor.encode_prompt(sample.messages, self.images.get)
            response = self.processor.encode_response(sample.response, newline=True)
            return Example(
                sample_id=sample.sample_id,
                tokens=np.concatenate([prompt.tokens, response.tokens]),
                prompt_length=len(prompt.tokens),
                action_mask=_action_mask(sample, response),
                patches=prompt.patches,
                grids=prompt.grids,
            )

    def size(self, sample: SftSample) -> SampleSize:
        """Counts a sample's tokens and patches; reads only the headers of its screenshots.

        Raises:
          UserError: a screenshot is missing or damaged, or an action is not a valid reply.
        """
        with _named(sample.sample_id):
            tokens, grids = self.processor.prompt_tokens(sample.messages, self._grid)
            response = self.processor.encode_response(sample.response, newline=True)
            _action_mask(sample, response)  # For its error.
        return SampleSize(
            sample_id=sample.sample_id,
            length=len(tokens) + len(response.tokens),
            num_targets=len(response.tokens),
            patches=tuple(math.prod(grid) for grid in grids),
            task_id=sample.task_id,
            kind=sample.kind,
        )

    def prompt(self, name: str, messages: Sequence[Message]) -> Example:
        """Encodes a prompt as an example without a target.

        Raises:
          UserError: a screenshot is missing or cannot be read.
        """
        with _named(name):
            prompt = self.processor.encode_prompt(messages, self.images.get)
        return Example(
            name, prompt.tokens, len(prompt.tokens), np.zeros(0, bool), prompt.patches, prompt.grids
        )

    def prompt_size(self, name: str, task_id: str, messages: Sequence[Message]) -> SampleSize:
        """Counts tokens and patches of a prompt; raises as `size`."""
        with _named(name):
            tokens, grids = self.processor.prompt_tokens(messages, self._grid)
        return SampleSize(name, len(tokens), 0, tuple(math.prod(grid) for grid in grids), task_id)

    def _grid(self, sha256: str) -> Grid:
        try:
            with self.images.open(sha256) as file, Image.open(file) as image:
                check_image(image)
                return image_grid(*upright_size(image), self.config.vision, self.processor.max_pixels)
        except BAD_IMAGE as error:
            raise UserError(
                f"{self.images.where(sha256)}: damaged screenshot: make this data set again"
            ) from error


@dataclasses.dataclass(frozen=True)
class LazyExample:
    """An example of known size that is encoded when it is first needed, see `data.batching.Encodable`.

    Attributes:
      size: number of its tokens, and the id of its record.
      encode: encodes prompt, target and images.
    """

    size: SampleSize
    encode: Callable[[], Example]
    _lock: Any = dataclasses.field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _made: list[Example] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def sample_id(self) -> str:
        return self.size.sample_id

    @property
    def prompt_length(self) -> int:
        return self.size.prompt_length

    def encoded(self) -> Example:
        # A lock for each example: that of a cached property is shared by all (before Python 3.12).
        with self._lock:
            if not self._made:
                self._made.append(self.encode())
            return self._made[0]

    def release(self) -> None:
        """Frees the encoded example; when it is needed again, it is encoded again."""
        with self._lock:
            self._made.clear()


def dataset_sizes(
    source: RecordSource[SftSample | RlPrompt], encoder: Encoder, workdir: Path, threads: int = 1
) -> list[SampleSize]:
    """Returns the sizes of all samples of a data set, which a file of `workdir` keeps.

    Looks first for the screenshots of all samples, since stored sizes need none of them. With several
    processes all of them must call this; each counts its share of what is not stored.

    Args:
      threads: samples that a process counts at a time.

    Raises:
      UserError: screenshots are missing, or a record or a screenshot cannot be read.
    """
    _check_screenshots(source, encoder.images, threads)
    # All that sizes depend on: records, layout, tokenizer, and limits of images.
    processor, vision = encoder.processor, encoder.config.vision
    parts = (source.digest, _LAYOUT, processor.tokenizer.to_str(), processor.max_pixels, vision)
    path = workdir / f"sizes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.json"
    return stored_sizes(path, len(source), lambda number: encoder.size(as_sample(source[number])), threads)


def _check_screenshots(source: RecordSource[SftSample | RlPrompt], images: ImageStore, threads: int) -> None:
    names = spread(len(source), lambda number: record_images(source[number]), threads)
    every = list(dict.fromkeys(itertools.chain.from_iterable(names)))
    if missing := images.missing(every):
        raise UserError(
            f"{source.folder}: {len(missing)} of its {len(every)} screenshots are missing, the first one is "
            f"{images.where(missing[0])}: put them back, or make this data set again"
        )


def as_sample(record: RlPrompt | SftSample) -> SftSample:
    """Converts a mined prompt to a supervised sample; returns a supervised sample unchanged."""
    if isinstance(record, SftSample):
        return record
    return SftSample(
        sample_id=record.prompt_id,
        task_id=record.task_id,
        site=record.site,
        kind="action",
        messages=record.messages,
        response=record.target,
        window=record.window,
    )


@contextlib.contextmanager
def _named(sample_id: str) -> Iterator[None]:
    """Errors begin with the name of the sample."""
    try:
        yield
    except UserError as error:
        raise UserError(f"sample {sample_id}: {error}") from error


def _action_mask(sample: SftSample, response: EncodedResponse) -> Bool[np.ndarray, " tokens"]:
    """True at the tokens of the action; other texts have none, so action metrics leave them out."""
    mask = np.zeros(len(response.tokens), bool)
    if sample.kind == "action":
        try:
            first, last = response.token_span(*action_span(sample.response))
        except ReplyError as error:
            raise UserError(f"{error}: build the SFT corpus again from valid trajectories") from error
        mask[first:last] = True
    return mask


# Seconds between two lines of progress.
_REPORT_S = 10.0


@dataclasses.dataclass(frozen=True)
class SampleSize:
    """The sizes of a sample, from which the rows of batches are chosen.

    Attributes:
      length: tokens of prompt and target.
      num_targets: tokens of the target.
      patches: patches of each screenshot in the prompt.
      task_id: task that the sample belongs to.
      kind: that of the sample, "action" or "text".
    """

    sample_id: str
    length: int
    num_targets: int
    patches: tuple[int, ...]
    task_id: str = ""
    kind: str = "action"

    @property
    def prompt_length(self) -> int:
        return self.length - self.num_targets

    @property
    def tree(self) -> TreeSize:
        """The sample as a tree with one branch."""
        return TreeSize(self.prompt_length, (self.num_targets,), self.patches)


def stored_sizes(
    path: Path, count: int, measure: Callable[[int], SampleSize], threads: int = 1
) -> list[SampleSize]:
    """Returns the sizes of the samples 0 to `count` - 1: those of a file, or measured ones, which it keeps.

    They are measured by `spread`. All processes must call this, with the same file or one for each.

    Raises:
      UserError: that of `measure`, in all processes alike.
    """
    rows = json.loads(path.read_bytes()) if path.exists() else None
    # Asked of all, since processes that see different files would wait for one another.
    if any_process(rows is None) or rows is None:
        rows = spread(count, lambda number: dataclasses.astuple(measure(number)), threads)
        write_atomic(path, json.dumps(rows).encode())
    return [
        SampleSize(name, length, targets, tuple(patches), task, kind)
        for name, length, targets, patches, task, kind in rows
    ]


def spread(count: int, make: Callable[[int], Any], threads: int = 1) -> list[Any]:
    """Returns `make` of the numbers 0 to `count` - 1, as JSON keeps it; each process makes its share.

    With several processes all of them must call this.

    Args:
      make: may raise UserError or OSError.
      threads: numbers at a time in a process.

    Raises:
      UserError: that of `make`, in all processes alike.
    """
    mine = range(jax.process_index(), count, jax.process_count())
    made, printed = {}, time.monotonic()
    try:
        with ThreadPoolExecutor(threads) as pool:
            for number, value in zip(mine, pool.map(make, mine), strict=True):
                made[number] = value
                if time.monotonic() > printed + _REPORT_S:
                    logging.info("read %d of %d samples", len(made), len(mine))
                    printed = time.monotonic()
        share = {"made": list(made.items())}
    except (UserError, OSError) as error:
        share = {"error": str(error)}
    shares = [json.loads(part) for part in from_all_processes(json.dumps(share).encode())]
    if errors := [part["error"] for part in shares if "error" in part]:
        raise UserError(errors[0])
    every = {number: value for part in shares for number, value in part["made"]}
    return [every[number] for number in range(count)]
