"""Batches for the tiny base: the corpus of `collection.base_corpus` as rows of `rmsweb_jax.base`."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from collection.base_corpus import stream
from collection.base_corpus.recorded import pages_of, read_episodes
from collection.base_corpus.targets import find_targets
from rmsweb_jax.base.rows import Batch, Row, RowEncoder
from rmsweb_jax.base.settings import BaseConfig, Sizes
from rmsweb_jax.qwen3_vl.images import open_image, target_size
from rmsweb_jax.qwen3_vl.inputs import Grid, image_rows, image_starts, mrope_positions, vision_inputs
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.images import ImageStore

KINDS = ("click", "type", "select", "scroll", "finish")
# Not more of a row's tokens are ever learned.
_LEARNED_SHARE = 0.6


class RecordedPages:
    """Recorded pages that can be asked about, and their screenshots as small as the model sees them."""

    def __init__(self, folder: Path, max_pixels: int, unit: int):
        self.pages = [
            page for page in pages_of(read_episodes(folder)) if page.screenshot and find_targets(page.nodes)
        ]
        self._images = ImageStore(folder)
        self._max_pixels, self._unit = max_pixels, unit
        self.image = functools.cache(self._load)

    def _load(self, sha256: str) -> Image.Image:
        image = open_image(self._images.get(sha256))
        size = target_size(*image.size, self._max_pixels, self._unit)
        return image.resize(size, Image.Resampling.BICUBIC)


class BatchMaker:
    """Batches from seeds alone.

    Args:
      processor: of the model to be trained.
      recorded: where batches of the style `recorded` come from.
    """

    def __init__(self, config: BaseConfig, processor: Processor, recorded: RecordedPages):
        self._config = config
        self._processor = processor
        self._recorded = recorded
        self.encoder = RowEncoder(processor.tokenizer.backend_tokenizer, KINDS)
        vision = processor.config.vision
        most = config.recorded.max_pixels // vision.patch_size**2
        self._window = most - most % vision.merge_unit

    def __call__(self, phase: int, step: int) -> Batch:
        """The batch of a phase of the curriculum at one of its steps."""
        settings = self._config.phases[phase]
        rng = random.Random(f"{self._config.seed}/{settings.name}/{step}")
        style = rng.choices(list(settings.mix.keys()), list(settings.mix.values()))[0]
        return self.make(rng, style, settings)

    def make(self, rng: random.Random, style: str, settings: Sizes) -> Batch:
        """A batch of one style; `recorded` has sizes of its own."""
        if style == "recorded":
            return self.recorded(rng)
        rows: list[Row] = []
        while len(rows) < settings.rows:
            if rng.random() < settings.repetition:
                seeded = np.random.default_rng(rng.getrandbits(32))
                rows.append(self.encoder.repetition(seeded, settings.length))
            elif row := self._generated_row(rng, style, settings):
                rows.append(row)
        return self.encoder.batch(rows, settings.length, int(settings.length * _LEARNED_SHARE))

    def _generated_row(self, rng: random.Random, style: str, settings: Sizes) -> Row | None:
        low, high = settings.low, settings.high
        if style == "state":
            prompt = stream.state_prompt(rng, stream.generated(rng, low, high))
        else:
            make = stream.plain if style in ("recalls", "plain") else stream.generated
            prompt = stream.bare_prompt(make(rng, low, high))
        if prompt is None:
            return None
        if prompt.messages is None:
            tokens = self.encoder.encode(prompt.text)
        else:
            tokens = self.encoder.encode_chat([(message.role, message.text) for message in prompt.messages])
        ask = stream.recalls if style == "recalls" else stream.questions
        return self.encoder.row(tokens, ask(rng, prompt), settings.length)

    def recorded(self, rng: random.Random) -> Batch:
        """A batch of recorded pages with their screenshots."""
        settings, config = self._config.recorded, self._processor.config
        rows: list[Row] = []
        prompts: list[np.ndarray] = []
        patches: list[np.ndarray] = []
        grids: list[Grid] = []
        while len(rows) < settings.rows:
            prompt = stream.state_prompt(rng, rng.choice(self._recorded.pages), 1)
            if prompt is None or prompt.messages is None:
                continue
            encoded = self._processor.encode_prompt(prompt.messages, self._recorded.image)
            positions = mrope_positions(encoded.tokens, encoded.grids, config)
            row = self.encoder.row(
                encoded.tokens.tolist(), stream.questions(rng, prompt), settings.length, positions
            )
            if row is not None:
                rows.append(row)
                prompts.append(encoded.tokens)
                patches += encoded.patches
                grids += encoded.grids
        vision = vision_inputs(patches, grids, config, self._window * settings.rows, self._window)
        self._place_images(rows, prompts, grids)
        return self.encoder.batch(rows, settings.length, int(settings.length * _LEARNED_SHARE), vision)

    def _place_images(
        self, rows: Sequence[Row], prompts: Sequence[np.ndarray], grids: Sequence[Grid]
    ) -> None:
        """Points each row's image tokens at its one image's features."""
        starts = image_starts(grids, self._window)
        for row, tokens, grid, start in zip(rows, prompts, grids, starts, strict=True):
            row.image_index = image_rows(tokens, [grid], [start], self._processor.config)
