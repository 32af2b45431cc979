"""Rows of the base's training: one prompt, and as many replies to it as fit, each in a slot of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from flax import struct
from tokenizers import Tokenizer

from rmsweb_jax.base.tokenizer import CONTROL_TOKENS
from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs, VisionInputs, response_positions

IGNORED = -1
INDEX_WEIGHT = 3.0


class Question(Protocol):
    """What a row needs of a question; spans are characters of `reply`."""

    @property
    def kind(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def learned(self) -> Sequence[tuple[int, int]]: ...
    @property
    def index_span(self) -> tuple[int, int] | None: ...
    @property
    def choices(self) -> int: ...


@struct.dataclass
class Batch:
    """Rows of one phase, all of one shape.

    Attributes:
      inputs: what the model reads.
      source: [B, K] int32, positions whose next token is learned; padded with 0.
      target: [B, K] int32, that token; `IGNORED` is padding.
      weight: [B, K] float32.
      index: [B, K] int32, number of the question's kind from 1 where the target is an element's index.
      choices: [B, K] float32, elements that index could have been; 0 elsewhere.
    """

    inputs: ModelInputs
    source: Array
    target: Array
    weight: Array
    index: Array
    choices: Array


@dataclasses.dataclass
class Row:
    """One row before padding; lists grow by slot."""

    tokens: list[int]
    positions: np.ndarray
    image_index: np.ndarray
    slots: list[int] = dataclasses.field(default_factory=list)
    learned: list[tuple[int, int, float, int, float]] = dataclasses.field(default_factory=list)


class RowEncoder:
    """Text to rows with a tokenizer whose control tokens are never read from text."""

    def __init__(self, tokenizer: Tokenizer, kinds: Sequence[str]):
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        self.kinds = {kind: number for number, kind in enumerate(kinds, 1)}
        vocabulary = tokenizer.get_vocab()
        self.end_of_turn = [vocabulary["<|im_end|>"], vocabulary["\n"]]
        self.start_of_turn = vocabulary["<|im_start|>"]
        # The control tokens are the last ids.
        self.num_plain = min(vocabulary[token] for token in CONTROL_TOKENS)
        self.pad = vocabulary["<|endoftext|>"]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_reply(self, question: Question, begin: int = 0) -> tuple[list[int], list[float], list[int]]:
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
        questions: Iterable[tuple[Question, int]],
        length: int,
        positions: np.ndarray | None = None,
        image_index: np.ndarray | None = None,
    ) -> Row | None:
        """A prompt and the replies that fit into `length` tokens; None when not even one does.

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
        row = Row(list(prompt), positions, image_index, [0] * size)
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
        """A chat of (role, text) up to where the assistant answers."""
        ids = []
        for role, text in messages:
            ids += [self.start_of_turn, *self.encode(f"{role}\n"), *self.encode(text), *self.end_of_turn]
        return [*ids, self.start_of_turn, *self.encode("assistant\n")]

    def repetition(self, rng: np.random.Generator, length: int) -> Row:
        """Random tokens written twice, the second time learned: what copying is first learned from."""
        half = length // 2
        once = [int(token) for token in rng.integers(0, self.num_plain, half)]
        positions = np.broadcast_to(np.arange(2 * half, dtype=np.int32), (3, 2 * half))
        row = Row(once + once, positions, np.full(2 * half, IGNORED, np.int32), [0] * (2 * half))
        row.learned = [(half + at, once[at + 1], 1.0, 0, 0) for at in range(half - 1)]
        return row

    def batch(
        self, rows: Sequence[Row], length: int, num_learned: int, vision: VisionInputs | None = None
    ) -> Batch:
        """Pads rows to [B, length] and what is learned of them to [B, num_learned]."""
        shape = (len(rows), length)
        slot_ids = np.zeros(shape, np.int32)
        inputs = ModelInputs(
            tokens=np.full(shape, self.pad, np.int32),
            positions=np.zeros((3, *shape), np.int32),
            segment_ids=np.zeros(shape, np.int32),
            slot_ids=slot_ids,
            image_index=np.full(shape, IGNORED, np.int32),
            vision=vision,
        )
        table = np.zeros((len(rows), num_learned, 5), np.float32)
        table[..., 1] = IGNORED
        for at, row in enumerate(rows):
            size = len(row.tokens)
            inputs.tokens[at, :size] = row.tokens
            inputs.positions[:, at, :size] = row.positions
            inputs.segment_ids[at, :size] = 1
            slot_ids[at, :size] = row.slots
            inputs.image_index[at, : len(row.image_index)] = row.image_index
            kept = row.learned[:num_learned]
            table[at, : len(kept)] = kept
        whole = table[..., [0, 1, 3]].astype(np.int32)
        return Batch(inputs, whole[..., 0], whole[..., 1], table[..., 2], whole[..., 2], table[..., 4])
