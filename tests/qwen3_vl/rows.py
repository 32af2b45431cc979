"""Rows of text for the model's tests."""

import numpy as np

from rmsweb_jax.qwen3_vl.inputs import ModelInputs


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
