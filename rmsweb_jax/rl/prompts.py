"""Prompts of a run: measured once, checked, and split into training and held-out prompts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from rmsweb_jax.actions.parse import ReplyError
from rmsweb_jax.actions.reward import EXACT, Target, score_response
from rmsweb_jax.data.encoding import Encoder, LazyExample, SampleSize, as_sample, dataset_sizes, spread
from rmsweb_jax.data.sources import RecordSource, is_held_out
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Message, RlPrompt, SftSample
from rmsweb_jax.storage import AnyPath


@dataclasses.dataclass(frozen=True)
class Prompt(LazyExample):
    """A mined decision.

    Attributes:
      target: the verified reply as text, against which responses are scored.
      messages: the prompt as recorded, for engines with a tokenizer of their own.
      category: failure mode for which it was mined; empty in the full corpus.
    """

    target: str
    messages: tuple[Message, ...] = ()
    category: str = ""

    @property
    def prompt_id(self) -> str:
        """Id of the record."""
        return self.size.sample_id


@dataclasses.dataclass(frozen=True)
class RlData:
    """Training and held-out prompts of a run.

    Attributes:
      records: the prompts (SFT samples for the full corpus).
      encoder: encodes them as examples.
      sizes: their sizes, by record number.
      train, held_out: record numbers.
      dropped: ids of prompts that are too long.
      numbers: record numbers by prompt id.
    """

    records: RecordSource[RlPrompt] | RecordSource[SftSample]
    encoder: Encoder
    sizes: dict[int, SampleSize]
    train: tuple[int, ...]
    held_out: tuple[int, ...]
    dropped: tuple[str, ...]
    numbers: dict[str, int]

    def prompt(self, number: int) -> Prompt:
        """Reads one record."""
        record = self.records[number]
        sample = as_sample(record)
        category = record.category if isinstance(record, RlPrompt) else ""
        encode = functools.partial(self.encoder.example, sample)
        target = Target(sample.response, sample.window) if sample.window else sample.response
        return Prompt(self.sizes[number], encode, target, sample.messages, category)

    def decode(self, tokens: Int32[np.ndarray, " tokens"]) -> str:
        """Decodes the text of a response."""
        return self.encoder.processor.decode_response(tokens)

    def summary(self) -> dict[str, object]:
        """Counts for the report."""
        return {
            "prompts": len(self.train),
            "held_out": len(self.held_out),
            "dropped_too_long": len(self.dropped),
            "dropped_ids": list(self.dropped),
        }


def open_rl_data(
    folder: AnyPath,
    encoder: Encoder,
    *,
    corpus: str,
    max_prompt_tokens: int,
    held_out: float,
    workdir: Path,
    least: int = 0,
    threads: int = 1,
    score: Callable[[str, str], float] | None = score_response,
) -> RlData:
    """Reads prompts, drops those over `max_prompt_tokens` (counted, never cut) and splits the rest.

    Args:
      corpus: "mined": RL prompts; "full": SFT samples, of which the actions are used.
      held_out: share of the tasks that is held out, by hash; all prompts of a task are on the same side.
      workdir: folder on disk that keeps the prompts' sizes.
      least: training prompts that one generation batch needs.
      threads: prompts that are measured at a time.
      score: the reward that is trained on; a target must score 1 by it and by the polarized reward. None:
        no reward is.

    Raises:
      UserError: the folder cannot be read, a target does not score 1.0 against itself, or too few prompts
        are left.
    """
    records = RecordSource(folder, RlPrompt) if corpus == "mined" else RecordSource(folder, SftSample)
    if score is not None:
        spread(len(records), lambda number: _check_target(as_sample(records[number]), folder, score))
    sizes, dropped, numbers = {}, [], {}
    train: list[int] = []
    held: list[int] = []
    for number, size in enumerate(dataset_sizes(records, encoder, workdir, threads)):
        # Other texts have no actions, which the reward compares.
        if size.kind != "action":
            continue
        if size.prompt_length > max_prompt_tokens:
            dropped.append(size.sample_id)
            continue
        sizes[number], numbers[size.sample_id] = size, number
        # By task, not by prompt: the prompts of one task are alike.
        (held if is_held_out(size.task_id, held_out) else train).append(number)
    if not train and score is None:
        raise UserError(
            f"{folder}: no action can be replayed: {len(held)} are held out, {len(dropped)} are over "
            f"{max_prompt_tokens} tokens"
        )
    if len(train) < least:
        raise UserError(
            f"{folder}: {len(train)} training prompts ({len(held)} are held out, {len(dropped)} are over "
            f"{max_prompt_tokens} tokens), one generation batch needs {least}: mine more tasks, or lower "
            "config.gen_batch_groups"
        )
    return RlData(records, encoder, sizes, tuple(train), tuple(held), tuple(dropped), numbers)


def _check_target(sample: SftSample, folder: AnyPath, score: Callable[[str, str], float]) -> None:
    if sample.kind != "action":
        return
    # A target that does not score 1 would make the best response look wrong, and the gates reject its group.
    try:
        worst = min(rule(sample.response, sample.response) for rule in (score_response, score))
    except ReplyError as error:
        raise UserError(
            f"{folder}: the target of prompt {sample.sample_id} is not a valid reply ({error}): "
            "mine the prompts again"
        ) from error
    if worst != EXACT:
        raise UserError(
            f"{folder}: the target of prompt {sample.sample_id} scores {worst:g} against itself, not 1: "
            "mine the prompts again"
        )
