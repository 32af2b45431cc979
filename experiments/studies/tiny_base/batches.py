"""Batches for the tiny base: rows of one prompt with as many replies as fit, made from seeds alone."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from flax import struct
from PIL import Image
from tokenizers import Tokenizer

from experiments.studies.tiny_base.corpus import stream
from experiments.studies.tiny_base.corpus.questions import GroundingQuestion, find_targets
from experiments.studies.tiny_base.corpus.recorded import pages_of, read_episodes
from experiments.studies.tiny_base.settings import BaseConfig, Sizes
from experiments.studies.tiny_base.tokenizer import CONTROL_TOKENS
from rmsweb_jax.qwen.inputs import (
    Array,
    Grid,
    ModelInputs,
    VisionInputs,
    image_rows,
    image_starts,
    mrope_positions,
    response_positions,
    tree_tables,
    vision_inputs,
)
from rmsweb_jax.qwen.processor import Processor, open_image, target_size
from rmsweb_jax.records.images import ImageStore

IGNORED = -1
INDEX_WEIGHT = 3.0


@struct.dataclass
class GroundingBatch:
    """Rows of one phase, all of one shape.

    Attributes:
      inputs: of the model.
      source: [B, K] int32, positions whose next token is learned; padded with 0.
      target: [B, K] int32, that token; padded with `IGNORED`.
      weight: [B, K] float32.
      index: [B, K] int32, number of the question's kind from 1 where the target is an element's index.
      choices: [B, K] float32, number of elements that the index could name; 0 elsewhere.
    """

    inputs: ModelInputs
    source: Array
    target: Array
    weight: Array
    index: Array
    choices: Array


@dataclasses.dataclass
class GroundingRow:
    """One row before padding; lists grow by slot."""

    tokens: list[int]
    positions: np.ndarray
    image_index: np.ndarray
    slots: list[int] = dataclasses.field(default_factory=list)
    learned: list[tuple[int, int, float, int, float]] = dataclasses.field(default_factory=list)


class RowEncoder:
    """Encodes text as rows; control tokens in the text are encoded as plain text.

    Args:
      recurrent: for Qwen3.5, whose replies follow an empty thought.
    """

    def __init__(self, tokenizer: Tokenizer, kinds: Sequence[str], recurrent: bool = False):
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        self.kinds = {kind: number for number, kind in enumerate(kinds, 1)}
        vocabulary = tokenizer.get_vocab()
        self.end_of_turn = [vocabulary["<|im_end|>"], vocabulary["\n"]]
        self.start_of_turn = vocabulary["<|im_start|>"]
        # The control tokens are the last ids.
        self.num_plain = min(vocabulary[token] for token in CONTROL_TOKENS)
        self.pad = vocabulary["<|endoftext|>"]
        self.recurrent = recurrent
        self.thought: list[int] = []
        if recurrent:
            # As the processor writes it.
            blank = self.encode("\n\n")
            self.thought = [vocabulary["<think>"], *blank, vocabulary["</think>"], *blank]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_reply(
        self, question: GroundingQuestion, begin: int = 0
    ) -> tuple[list[int], list[float], list[int]]:
        """Tokens of a reply with its end of turn, the weight of each, and 1 at the index token.

        Args:
          begin: first character of the reply to keep.
        """
        text = question.reply[begin:]
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        weights, marks = [], []
        for start, _ in encoding.offsets:
            at = start + begin
            marked = question.index_span is not None and question.index_span[0] <= at < question.index_span[1]
            learned = any(first <= at < last for first, last in question.learned)
            weights.append(0.0 if not learned else INDEX_WEIGHT if marked else 1.0)
            marks.append(int(marked))
        extra = len(self.end_of_turn)
        return encoding.ids + self.end_of_turn, weights + [1.0] * extra, marks + [0] * extra

    def row(
        self,
        prompt: Sequence[int],
        questions: Iterable[tuple[GroundingQuestion, int]],
        length: int,
        positions: np.ndarray | None = None,
        image_index: np.ndarray | None = None,
    ) -> GroundingRow | None:
        """A prompt and the replies that fit into `length` tokens; None when none does.

        Args:
          questions: questions with the first character of their replies to keep.
          positions: [3, P] of a prompt with an image; counted up otherwise.
          image_index: [P], see `ModelInputs`.
        """
        size = len(prompt)
        if positions is None:
            positions = np.broadcast_to(np.arange(size, dtype=np.int32), (3, size))
        if image_index is None:
            image_index = np.full(size, IGNORED, np.int32)
        row = GroundingRow(list(prompt), positions, image_index, [0] * size)
        parts = [positions]
        for slot, (question, begin) in enumerate(questions, 1):
            ids, weights, marks = self.encode_reply(question, begin)
            start = len(row.tokens)
            if start + len(ids) > length:
                break
            for offset, (token, weight, mark) in enumerate(zip(ids, weights, marks, strict=True)):
                if weight and (offset or not begin):
                    source = start + offset - 1 if offset else size - 1
                    kind = self.kinds[question.kind] if mark else 0
                    row.learned.append((source, token, weight, kind, question.choices if mark else 0))
            row.tokens += ids
            row.slots += [slot] * len(ids)
            parts.append(response_positions(positions, len(ids)))
        if len(parts) == 1:
            return None
        row.positions = np.concatenate(parts, axis=1)
        return row

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """A chat of (role, text) up to the start of the assistant's turn."""
        ids = []
        for role, text in messages:
            ids += [self.start_of_turn, *self.encode(f"{role}\n"), *self.encode(text), *self.end_of_turn]
        return [*ids, self.start_of_turn, *self.encode("assistant\n"), *self.thought]

    def repetition(self, rng: np.random.Generator, length: int) -> GroundingRow:
        """Random tokens written twice, the second copy learned: the first lesson in copying."""
        half = length // 2
        once = [int(token) for token in rng.integers(0, self.num_plain, half)]
        positions = np.broadcast_to(np.arange(2 * half, dtype=np.int32), (3, 2 * half))
        row = GroundingRow(once + once, positions, np.full(2 * half, IGNORED, np.int32), [0] * (2 * half))
        row.learned = [(half + at, once[at + 1], 1.0, 0, 0) for at in range(half - 1)]
        return row

    def batch(
        self, rows: Sequence[GroundingRow], length: int, num_learned: int, vision: VisionInputs | None = None
    ) -> GroundingBatch:
        """Pads rows to [B, length] and their learned tokens to [B, num_learned]."""
        shape = (len(rows), length)
        inputs = ModelInputs(
            tokens=np.full(shape, self.pad, np.int32),
            positions=np.zeros((3, *shape), np.int32),
            until=np.tile(np.arange(1, length + 1, dtype=np.int32), (len(rows), 1)),
            image_index=np.full(shape, IGNORED, np.int32),
            vision=vision,
        )
        table = np.zeros((len(rows), num_learned, 5), np.float32)
        table[..., 1] = IGNORED
        for at, row in enumerate(rows):
            size = len(row.tokens)
            inputs.tokens[at, :size] = row.tokens
            inputs.positions[:, at, :size] = row.positions
            inputs.until[at, :size] = branch_ends(row.slots)
            inputs.image_index[at, : len(row.image_index)] = row.image_index
            kept = row.learned[:num_learned]
            table[at, : len(kept)] = kept
        if self.recurrent:
            inputs = dataclasses.replace(inputs, tables=tree_tables(np.asarray(inputs.until)))
        whole = table[..., [0, 1, 3]].astype(np.int32)
        return GroundingBatch(
            inputs, whole[..., 0], whole[..., 1], table[..., 2], whole[..., 2], table[..., 4]
        )


def branch_ends(slots: Sequence[int]) -> np.ndarray:
    """`until` of a row's tokens: a slot ends where the next begins, the prompt where the row ends."""
    count = len(slots)
    changes = np.append(np.flatnonzero(np.diff(slots)) + 1, count)
    ends = changes[np.searchsorted(changes, np.arange(count), side="right")]
    return np.where(np.equal(slots, 0), count, ends).astype(np.int32)


KINDS = ("click", "type", "select", "scroll", "finish")
# The largest share of a row's tokens that is learned.
_LEARNED_SHARE = 0.6


class RecordedPages:
    """Recorded pages with elements to ask about, and their screenshots at the model's size."""

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
    """Makes batches that depend on seeds alone.

    Args:
      processor: of the model to be trained.
      recorded: pages for the style `recorded`.
    """

    def __init__(self, config: BaseConfig, processor: Processor, recorded: RecordedPages):
        self._config = config
        self._processor = processor
        self._recorded = recorded
        self.encoder = RowEncoder(processor.tokenizer, KINDS, processor.config.text.delta is not None)
        vision = processor.config.vision
        most = config.recorded.max_pixels // vision.patch_size**2
        self._window = most - most % vision.merge_unit

    def __call__(self, phase: int, step: int) -> GroundingBatch:
        """The batch of a phase at a step."""
        settings = self._config.phases[phase]
        rng = random.Random(f"{self._config.seed}/{settings.name}/{step}")
        style = rng.choices(list(settings.mix.keys()), list(settings.mix.values()))[0]
        return self.make(rng, style, settings)

    def make(self, rng: random.Random, style: str, settings: Sizes) -> GroundingBatch:
        """A batch of one style; the sizes of `recorded` come from its own settings."""
        if style == "recorded":
            return self.recorded(rng)
        rows: list[GroundingRow] = []
        while len(rows) < settings.rows:
            if rng.random() < settings.repetition:
                seeded = np.random.default_rng(rng.getrandbits(32))
                rows.append(self.encoder.repetition(seeded, settings.length))
            elif row := self._generated_row(rng, style, settings):
                rows.append(row)
        return self.encoder.batch(rows, settings.length, int(settings.length * _LEARNED_SHARE))

    def _generated_row(self, rng: random.Random, style: str, settings: Sizes) -> GroundingRow | None:
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

    def recorded(self, rng: random.Random) -> GroundingBatch:
        """A batch of recorded pages with their screenshots."""
        settings, config = self._config.recorded, self._processor.config
        rows: list[GroundingRow] = []
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
        self, rows: Sequence[GroundingRow], prompts: Sequence[np.ndarray], grids: Sequence[Grid]
    ) -> None:
        """Sets the indices of each row's image tokens into the image features."""
        starts = image_starts(grids, self._window)
        for row, tokens, grid, start in zip(rows, prompts, grids, starts, strict=True):
            row.image_index = image_rows(tokens, [grid], [start], self._processor.config)
