"""Prompts of a run: measured once, checked, and split into training and held-out prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from rmsweb_jax.actions.parse import ReplyError
from rmsweb_jax.actions.reward import EXACT, score_response
from rmsweb_jax.data.encoding import Encoder, Example, SampleSize
from rmsweb_jax.data.sources import RecordSource, is_held_out
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Message, RlPrompt, SftSample


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A mined decision, tokenized.

    Attributes:
      prompt_id: id of the record.
      example: prompt and target tokens, the target's action span, images.
      target: the verified reply as text, against which responses are scored.
      messages: the prompt as recorded, for engines with a tokenizer of their own.
      category: failure mode for which it was mined; empty in the full corpus.
    """

    prompt_id: str
    example: Example
    target: str
    messages: tuple[Message, ...] = ()
    category: str = ""


@dataclasses.dataclass(frozen=True)
class RlData:
    """Training and held-out prompts of a run.

    Attributes:
      records: the prompts (SFT samples for the full corpus).
      encoder: encodes them as examples.
      measures: their sizes, by record number.
      train, held_out: record numbers.
      dropped: ids of prompts that are too long.
      numbers: record numbers by prompt id.
    """

    records: RecordSource[RlPrompt] | RecordSource[SftSample]
    encoder: Encoder
    measures: dict[int, SampleSize]
    train: tuple[int, ...]
    held_out: tuple[int, ...]
    dropped: tuple[str, ...]
    numbers: dict[str, int]

    def prompt(self, number: int) -> Prompt:
        """Reads and encodes one record."""
        record = self.records[number]
        sample = as_sample(record)
        category = record.category if isinstance(record, RlPrompt) else ""
        example = self.encoder.example(sample)
        return Prompt(sample.sample_id, example, sample.response, sample.messages, category)

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
    )


def open_rl_data(
    folder: Path,
    encoder: Encoder,
    *,
    corpus: str,
    max_prompt_tokens: int,
    held_out: float,
    least: int = 0,
    score: Callable[[str, str], float] = score_response,
) -> RlData:
    """Reads prompts, drops those over `max_prompt_tokens` (counted, never cut) and splits the rest.

    Args:
      corpus: "mined": RL prompts; "full": SFT samples, of which the actions are used.
      held_out: share of the tasks that is held out, by hash; all prompts of a task are on the same side.
      least: training prompts that one generation batch needs.
      score: the reward that is trained on; a target must score 1 by it and by the polarized reward.

    Raises:
      UserError: the folder cannot be read, a target does not score 1.0 against itself, or too few prompts
        are left.
    """
    records = RecordSource(folder, RlPrompt) if corpus == "mined" else RecordSource(folder, SftSample)
    measures, dropped, numbers = {}, [], {}
    train: list[int] = []
    held: list[int] = []
    for number in range(len(records)):
        sample = as_sample(records[number])
        # Extractions have no actions, which the reward compares.
        if sample.kind != "action":
            continue
        _check_target(sample, folder, score)
        measure = encoder.measure(sample)
        if measure.prompt_length > max_prompt_tokens:
            dropped.append(sample.sample_id)
            continue
        measures[number], numbers[sample.sample_id] = measure, number
        # By task, not by prompt: the prompts of one task are alike.
        (held if is_held_out(sample.task_id, held_out) else train).append(number)
    if len(train) < least:
        raise UserError(
            f"{folder}: {len(train)} training prompts ({len(held)} are held out, {len(dropped)} are over "
            f"{max_prompt_tokens} tokens), one generation batch needs {least}: mine more tasks, or lower "
            "config.gen_batch_groups"
        )
    return RlData(records, encoder, measures, tuple(train), tuple(held), tuple(dropped), numbers)


def _check_target(sample: SftSample, folder: Path, score: Callable[[str, str], float]) -> None:
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
