"""Prompts of RL from examples that are encoded already."""

from rmsweb_jax.data.batching import Example
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.records.schema import Message
from rmsweb_jax.rl.prompts import Prompt


def size_of(example: Example) -> SampleSize:
    patches = tuple(len(patches) for patches in example.patches)
    return SampleSize(example.sample_id, example.length, example.num_targets, patches)


def as_prompt(example: Example, target: str = "verified", messages: tuple[Message, ...] = ()) -> Prompt:
    return Prompt(size_of(example), lambda: example, target, messages)
