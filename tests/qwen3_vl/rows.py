"""Rows of text for the model's tests."""

import jax
import numpy as np

from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.logprobs import token_log_probs
from rmsweb_jax.qwen3_vl.model import Qwen3VL


@jax.jit
def log_probs(model: Qwen3VL, inputs: ModelInputs, temperature: float = 1.0) -> jax.Array:
    return token_log_probs(model, inputs, temperature=temperature).log_probs


@jax.jit
def logits(model: Qwen3VL, inputs: ModelInputs) -> jax.Array:
    return model.logits(model(inputs))


def text_inputs(rows, *, length=None, left=0) -> ModelInputs:
    """One segment a row, padded to `length` with `left` padding tokens before it."""
    length = length or max(len(row) for row in rows) + left
    shape = (len(rows), length)
    inputs = ModelInputs(
        tokens=np.zeros(shape, np.int32),
        positions=np.zeros((3, *shape), np.int32),
        segment_ids=np.zeros(shape, np.int32),
        slot_ids=np.zeros(shape, np.int32),
        image_index=np.full(shape, -1, np.int32),
    )
    for number, row in enumerate(rows):
        place = slice(left, left + len(row))
        inputs.tokens[number, place] = row
        inputs.positions[:, number, place] = np.arange(len(row))
        inputs.segment_ids[number, place] = 1
    return inputs
