import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.batching import (
    BatchShapes,
    Example,
    SftBatch,
    Targets,
    batch_axes,
    batch_work,
    choose_widths,
    collate,
    single_rows,
)
from rmsweb_jax.qwen3_vl.attention import attention_mask
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work
from rmsweb_jax.qwen3_vl.inputs import ModelInputs, VisionInputs

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def padding(lengths, widths) -> int:
    return sum(min(width for width in widths if width >= length) - length for length in lengths)


@given(LENGTHS, st.integers(1, 5), st.sampled_from([1, 16, 64]))
def test_widths_hold_every_sample_and_more_of_them_pad_less(lengths, count, multiple):
    widths = choose_widths(lengths, multiple, count)
    assert len(widths) <= count
    assert list(widths) == sorted(set(widths))
    assert all(width % multiple == 0 for width in widths)
    assert widths[-1] >= max(lengths) > widths[-1] - multiple
    more = choose_widths(lengths, multiple, count + 1)
    assert padding(lengths, more) <= padding(lengths, widths)


@given(LENGTHS)
def test_two_widths_are_the_best_pair(lengths):
    sizes = sorted({-(-length // 16) * 16 for length in lengths})
    best = min(padding(lengths, {size, sizes[-1]}) for size in sizes)
    assert padding(lengths, choose_widths(lengths, 16, 2)) == best


@pytest.fixture
def config(tiny_config) -> Qwen3VLConfig:
    return tiny_config


def example(config: Qwen3VLConfig, number: int, prompt: int, targets: int, images: int) -> Example:
    tokens = np.arange(prompt + targets, dtype=np.int32) % 50
    for image in range(images):
        tokens[2 + 4 * image : 4 + 4 * image] = config.image_token_id
    patches = tuple(
        np.full((8, config.vision.patch_dim), 10 * number + image, np.float32) for image in range(images)
    )
    return Example(f"s{number}", tokens, prompt, np.arange(targets) >= 2, patches, ((1, 4, 2),) * images)


def test_targets_name_the_places_that_predict_them(config):
    shapes = BatchShapes(rows=3, widths=(32,), num_targets=6, images=1, window=8)
    examples = [example(config, 0, 12, 5, 1), example(config, 1, 9, 3, 0)]
    batch = collate(single_rows(examples, 3), shapes, 32, config)
    targets = batch.targets
    for row, sample in enumerate(examples):
        count = sample.num_targets
        assert targets.segment_ids[row].tolist() == [1] * count + [0] * (6 - count)
        predicted = batch.inputs.tokens[row][targets.index[row, :count] + 1]
        assert predicted.tolist() == targets.tokens[row, :count].tolist() == sample.tokens[-count:].tolist()
        assert targets.action_mask[row, :count].tolist() == sample.action_mask.tolist()
        assert batch.inputs.segment_ids[row].sum() == sample.length
    assert not targets.segment_ids[2].any() and not batch.inputs.segment_ids[2].any()


def test_image_tokens_find_their_own_patches(config):
    shapes = BatchShapes(rows=3, widths=(32,), num_targets=6, images=2, window=12)
    examples = [example(config, 1, 12, 4, 2), example(config, 2, 12, 4, 0), example(config, 3, 12, 4, 1)]
    batch = collate(single_rows(examples, 3), shapes, 32, config)
    assert batch.inputs.vision is not None
    assert len(batch.inputs.vision.patches) == 3 * 2 * 12
    for row, values in enumerate(([10, 10, 11, 11], [], [30, 30])):
        index = batch.inputs.image_index[row]
        places = np.asarray(batch.inputs.vision.patches)[index[index >= 0] * config.vision.merge_unit]
        assert places[:, 0].tolist() == values


def test_a_process_makes_its_own_rows_of_the_batch(config):
    """Replies need not be neighbours."""
    order = [0, 2, 1, 3]
    shapes = BatchShapes(rows=4, widths=(32,), num_targets=6, images=1, window=8)
    examples = [example(config, number, 12, 4, 1) for number in range(4)]
    whole = collate(single_rows(examples, 4), shapes, 32, config)
    parts = [
        collate([[examples[row]] for row in numbers], shapes, 32, config, row_numbers=numbers)
        for numbers in (order[:2], order[2:])
    ]
    assert whole.inputs.vision is not None
    for name, axis in vars(batch_axes(whole).inputs).items():
        if isinstance(axis, int):
            joined = np.concatenate([getattr(part.inputs, name) for part in parts], axis=axis)
            expected = np.take(getattr(whole.inputs, name), order, axis)
            np.testing.assert_array_equal(joined, expected, err_msg=name)
    joined = np.concatenate([part.inputs.vision.patches for part in parts]).reshape(4, 8, -1)
    np.testing.assert_array_equal(joined, whole.inputs.vision.patches.reshape(4, 8, -1)[order])


# Two samples of 3 and 2 tokens and padding; three samples of 1, 4 and 1.
SEGMENTS = np.asarray([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 2, 2, 3, 0]], np.int32)


def make_batch(vision: VisionInputs | None = None) -> SftBatch:
    samples = np.asarray([[1, 1, 2, 0], [2, 3, 0, 0]], np.int32)
    inputs = ModelInputs(SEGMENTS, SEGMENTS, SEGMENTS, None, SEGMENTS, vision)
    return SftBatch(inputs, Targets(samples, samples, samples, samples))


def test_work_of_packed_rows():
    expected = Work(tokens=11, pairs=6 + 3 + 1 + 10 + 1, scored=5)
    assert batch_work(make_batch()) == expected
    assert expected.pairs == int(attention_mask(SEGMENTS, None).sum())
    assert batch_work(make_batch()) + Work(1, 2, 3, 4, 5) == Work(12, 23, 8, 4, 5)


@pytest.mark.parametrize("window", [8, 0])
def test_work_of_images(window):
    ids = np.repeat([1, 2, 0, 3, 0], [4, 2, 2, 6, 2]).astype(np.int32)
    vision = VisionInputs(ids, ids, ids, ids, ids, window)
    work = batch_work(make_batch(vision))
    assert (work.patches, work.patch_pairs) == (12, 16 + 4 + 36)
