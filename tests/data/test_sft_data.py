"""Training data: one global order, independent of worker processes and of the layout on disk."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sft import SftData, open_sft_data
from rmsweb_jax.data.sources import Workers
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import ImagePart, Message, SftSample
from rmsweb_jax.training.mesh import make_mesh
from tests.policies import write_corpus

REPEATS = [1 + 5 * number % 17 for number in range(23)]
TOO_LONG = {7: 120, 15: 150}
SETTINGS = {
    "max_length": 256,
    "batch_size": 5,
    "seed": 3,
    "held_out": 0.2,
    "rows": 2,
    "multiple": 32,
    "widths": 3,
    "pack": True,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, [TOO_LONG.get(number, times) for number, times in enumerate(REPEATS)])
    return folder


@pytest.fixture(scope="module")
def encoder(corpus, random_policy) -> Encoder:
    return Encoder.load(random_policy, ImageStore(corpus), max_pixels=4096)


@pytest.fixture(scope="module")
def open_data(corpus, encoder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache") / "lengths.json"

    def open_(**changes) -> SftData:
        return open_sft_data(corpus, encoder, cache, make_mesh(), **{**SETTINGS, **changes})

    return open_


def ids(data: SftData, steps: int, first: int = 0, workers: Workers | None = None) -> list[tuple[str, ...]]:
    return [step.sample_ids for step in data.steps(first, steps, workers or Workers())]


def samples_of(batch) -> list[bytes]:
    """The tokens of every sample in a micro-batch."""
    tokens, segments = batch.inputs.tokens, batch.inputs.segment_ids
    return [
        tokens[row][segments[row] == segment].tobytes()
        for row in range(len(tokens))
        for segment in range(1, segments[row].max() + 1)
    ]


def test_layout_workers_and_devices_leave_the_order_alone(open_data):
    data = open_data()
    expected = ids(data, 8)  # Two epochs.
    for other in (open_data(pack=False), open_data(rows=4, multiple=64), open_data(widths=1, threads=3)):
        assert ids(other, 8) == expected
        assert other.fingerprint == data.fingerprint
    assert ids(data, 8, first=5, workers=Workers(threads=3)) == expected[5:]


def test_every_worker_makes_the_same_arrays_for_a_step(open_data):
    data = open_data()
    here = list(data.steps(0, 3, Workers()))
    there = list(data.steps(0, 3, Workers(processes=2)))  # As on resume with two more processes.
    for one, other in zip(here, there, strict=True):
        assert dataclasses.replace(one, micro_batches=[]) == dataclasses.replace(other, micro_batches=[])
        for ours, theirs in zip(one.micro_batches, other.micro_batches, strict=True):
            np.testing.assert_array_equal(ours.inputs.tokens, theirs.inputs.tokens)
            np.testing.assert_array_equal(ours.inputs.vision.patches, theirs.inputs.vision.patches)


def test_changed_targets_change_the_fingerprint(open_data):
    prints = {open_data(**change).fingerprint for change in ({}, {"seed": 4}, {"batch_size": 4})}
    prints |= {open_data(**change).fingerprint for change in ({"max_length": 200}, {"held_out": 0.3})}
    assert len(prints) == 5


def test_packed_rows_hold_every_sample_of_the_batch_whole(open_data):
    packed, single = open_data(), open_data(pack=False)
    for step in range(3):
        parts = [sample for batch in packed.step(step).micro_batches for sample in samples_of(batch)]
        whole = [sample for batch in single.step(step).micro_batches for sample in samples_of(batch)]
        assert sorted(parts) == sorted(whole)
        assert packed.step(step).padded_tokens < single.step(step).padded_tokens
        assert packed.step(step).tokens == single.step(step).tokens
    assert packed.padding() < single.padding() == packed.padding(packed=False)


def test_positions_restart_with_each_sample(open_data):
    batch = open_data().step(0).micro_batches[0]
    starts = batch.inputs.segment_ids[0] != np.roll(batch.inputs.segment_ids[0], 1)
    starts &= batch.inputs.segment_ids[0] > 0
    assert starts.sum() > 1
    assert not batch.inputs.positions[:, 0, starts].any()


def test_too_long_samples_are_named_and_never_cut(open_data):
    data = open_data()
    assert data.dropped == ("s7", "s15")
    assert data.summary()["dropped_ids"] == ["s7", "s15"]
    seen = {name for step in ids(data, 8) for name in step}
    assert not seen & {"s7", "s15"}
    lengths = {len(sample) // 4 for batch in data.step(0).micro_batches for sample in samples_of(batch)}
    known = {size.length for size in data.sizes}
    assert lengths <= known


def test_a_tasks_samples_are_all_held_out_or_all_trained_on(open_data, corpus):
    data = open_data()
    tasks = [sample.task_id for sample in read_dataset(corpus, SftSample)]
    held = {tasks[number] for number in data.held_out}
    trained = {tasks[number] for number in data.train}
    assert held and trained and not held & trained
    batches = list(data.held_out_batches())
    assert sum(len(samples_of(batch)) for batch in batches) == len(data.held_out)
    assert not len(open_data(held_out=0.0).held_out)


def test_an_epoch_sees_every_training_sample_once(open_data):
    data = open_data()
    count = data.num_samples
    seen = [name for step in ids(data, -(-2 * count // 5)) for name in step]
    for epoch in range(2):
        assert len(set(seen[epoch * count : (epoch + 1) * count])) == count


def test_lengths_are_measured_once_and_again_for_another_corpus(corpus, encoder, tmp_path):
    cache = tmp_path / "lengths.json"
    first = open_sft_data(corpus, encoder, cache, make_mesh(), **SETTINGS)
    stored = json.loads(cache.read_text())
    stored["measures"][0][1] = 77
    cache.write_text(json.dumps(stored))
    assert open_sft_data(corpus, encoder, cache, make_mesh(), **SETTINGS).sizes[0].length == 77
    cache.write_text(json.dumps({**stored, "key": "of another corpus"}))
    assert open_sft_data(corpus, encoder, cache, make_mesh(), **SETTINGS).sizes == first.sizes


def test_a_target_longer_than_the_context_is_dropped_by_name(tmp_path, random_policy):
    write_corpus(tmp_path, [1, 1, 40])
    encoder = Encoder.load(random_policy, ImageStore(tmp_path), max_pixels=4096)
    settings = {**SETTINGS, "held_out": 0.0, "max_length": 100}
    data = open_sft_data(tmp_path, encoder, tmp_path / "lengths.json", make_mesh(), **settings)
    assert data.dropped == ("s2",)
    with pytest.raises(UserError, match="of 3 samples 3 exceed 20 tokens"):
        open_sft_data(tmp_path, encoder, tmp_path / "l.json", make_mesh(), **{**settings, "max_length": 20})


def test_an_unreadable_screenshot_is_one_line(tmp_path, random_policy):
    write_corpus(tmp_path, [1, 1])
    image = next((tmp_path / "images").rglob("*.png"))
    image.write_bytes(b"no picture")
    encoder = Encoder.load(random_policy, ImageStore(tmp_path), max_pixels=4096)
    with pytest.raises(UserError, match="damaged screenshot") as raised:
        open_sft_data(tmp_path, encoder, tmp_path / "lengths.json", make_mesh(), **SETTINGS)
    assert str(image) in str(raised.value)


def test_an_invalid_screenshot_is_reported_with_its_sample(tmp_path, random_policy):
    """Its bytes are as they were stored, and its header is sound."""
    write_corpus(tmp_path, [1])
    images = ImageStore(tmp_path)
    sample = next(read_dataset(tmp_path, SftSample))
    name = images.put(images.get(image_names(sample.messages)[0])[:200])
    broken = sample.model_copy(
        update={"messages": (Message(role="user", content=(ImagePart(sha256=name),)),)}
    )
    encoder = Encoder.load(random_policy, images, max_pixels=4096)
    assert encoder.measure(broken).images == 1
    with pytest.raises(UserError, match="sample s0: an image of 200 bytes cannot be read"):
        encoder.example(broken)
