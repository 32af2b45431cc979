"""Training data: one global order, independent of worker processes and of the layout on disk."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rmsweb_jax.data.batching import Batch, Example
from rmsweb_jax.data.encoding import Encoder, dataset_sizes
from rmsweb_jax.data.sources import RecordSource, stable_hash
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore, image_names, record_images
from rmsweb_jax.records.schema import ImagePart, Message, SftSample
from rmsweb_jax.sft.data import SftData, open_sft_data
from rmsweb_jax.training.mesh import make_mesh
from tests.policies import write_corpus

REPEATS = [1 + 5 * number % 17 for number in range(23)]
TOO_LONG = {7: 120, 15: 150}
SETTINGS = {
    "max_length": 256,
    "batch_size": 5,
    "seed": 3,
    "held_out": 0.2,
    "held_out_tokens": 1_000_000,
    "row_tokens": 512,
    "row_multiple": 32,
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
    workdir = tmp_path_factory.mktemp("workdir")

    def open_(**changes) -> SftData:
        return open_sft_data(corpus, encoder, workdir, make_mesh(), **{**SETTINGS, **changes})

    return open_


def ids(data: SftData, steps: int, first: int = 0, threads: int = 1) -> list[tuple[str, ...]]:
    return [step.sample_ids for step in data.steps(first, steps, threads)]


def samples_of(batch: Batch) -> list[bytes]:
    """The tokens of every sample in a micro-batch."""
    return [
        batch.inputs.tokens[row, start:stop].tobytes()
        for row in range(len(batch.inputs.tokens))
        for start, stop in bounds(batch, row)
    ]


def bounds(batch: Batch, row: int) -> list[tuple[int, int]]:
    """First and last place of each sample of a row."""
    found, at, until = [], 0, batch.inputs.until[row]
    while at < len(until) and until[at] > at + 1:  # Padding ends at its own next place.
        found.append((at, int(until[at])))
        at = int(until[at])
    assert len(found) == batch.scored.branch[row].max()
    return found


def all_examples(data: SftData) -> list[Example]:
    return [data.encoder.example(data.source[number]) for number in range(len(data.source))]


def with_rows(data: SftData, rows: int) -> SftData:
    """The data of a mesh with so many shards, all in this process."""
    shape = dataclasses.replace(data.packer.shape, rows=rows)
    packer = dataclasses.replace(data.packer, shape=shape)
    return dataclasses.replace(data, packer=packer, rows=range(rows))


def test_layout_threads_and_devices_leave_the_order_alone(open_data):
    data = open_data()
    expected = ids(data, 8)  # Two epochs.
    others = (open_data(row_tokens=256), open_data(row_multiple=256, threads=3), with_rows(data, 4))
    assert len({other.packer.shape for other in (data, *others)}) > 2
    for other in others:
        assert ids(other, 8) == expected
    assert ids(data, 8, first=5, threads=3) == expected[5:]


def test_every_thread_makes_the_same_arrays_for_a_step(open_data):
    data = open_data()
    here = list(data.steps(0, 3, threads=1))
    there = list(data.steps(0, 3, threads=3))
    for one, other in zip(here, there, strict=True):
        assert dataclasses.replace(one, micro_batches=[]) == dataclasses.replace(other, micro_batches=[])
        for ours, theirs in zip(one.micro_batches, other.micro_batches, strict=True):
            np.testing.assert_array_equal(ours.inputs.tokens, theirs.inputs.tokens)
            np.testing.assert_array_equal(ours.inputs.vision.patches, theirs.inputs.vision.patches)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_hold_every_sample_of_the_batch_whole(open_data, rows):
    data = with_rows(open_data(), rows)
    by_id = {example.sample_id: example for example in all_examples(data)}
    for step in (data.step(number) for number in range(3)):
        examples = [by_id[name] for name in step.sample_ids]
        parts = [sample for batch in step.micro_batches for sample in samples_of(batch)]
        assert sorted(parts) == sorted(example.tokens.tobytes() for example in examples)
        assert step.useful.tokens == sum(example.length for example in examples)
        assert step.executed.tokens == sum(batch.inputs.tokens.size for batch in step.micro_batches)
    assert max(len(bounds(batch, 0)) for batch in data.step(0).micro_batches) > 1


def test_padding_is_that_of_the_first_epoch(open_data):
    data = open_data()
    steps = [data.step(step) for step in range(-(-data.num_samples // 5))]
    useful, executed = (
        sum(step.useful.tokens for step in steps),
        sum(step.executed.tokens for step in steps),
    )
    assert data.padding() == data.summary()["padding"] == pytest.approx(1 - useful / executed)
    assert data.summary()["row_tokens"] == data.packer.shape.width <= 512


def test_positions_restart_with_each_sample(open_data):
    batch = open_data().step(0).micro_batches[0]
    starts = [start for start, _ in bounds(batch, 0)]
    assert len(starts) > 1
    assert not batch.inputs.positions[:, 0, starts].any()


def test_targets_are_scored_with_equal_weights_and_their_actions(open_data):
    data = open_data()
    examples = {example.tokens.tobytes(): example for example in all_examples(data)}
    for batch in data.step(0).micro_batches:
        for row in range(len(batch.inputs.tokens)):
            for branch, sample in enumerate(samples_of(batch)[: len(bounds(batch, row))], 1):
                example, places = examples[sample], batch.scored.branch[row] == branch
                np.testing.assert_array_equal(batch.scored.tokens[row, places], example.target)
                np.testing.assert_allclose(
                    batch.scored.values["weight"][row, places], 1 / example.num_targets
                )
                np.testing.assert_array_equal(batch.scored.values["action"][row, places], example.action_mask)
                assert example.action_mask.any()


def test_a_row_that_cannot_hold_the_longest_sample_is_refused(open_data):
    with pytest.raises(UserError, match=r"config.row_tokens is 64: raise it to \d+"):
        open_data(row_tokens=64)


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


def test_the_evaluated_samples_have_no_more_tokens_than_asked_for(open_data):
    """The split and the order of training stay, and fewer tokens leave some of the same samples."""
    data = open_data(held_out=0.5)
    lengths = {number: data.sizes[number].length for number in data.held_out.tolist()}
    total, hashed = sum(lengths.values()), sorted(lengths, key=lambda n: stable_hash(data.sizes[n].sample_id))
    assert len(lengths) > 2
    for tokens in (total, total - 1, total // 2, max(lengths.values()), 1):
        fewer = open_data(held_out=0.5, held_out_tokens=tokens)
        chosen = fewer.held_out.tolist()
        assert chosen == sorted(hashed[: len(chosen)])
        assert sum(lengths[number] for number in chosen) <= tokens or len(chosen) == 1
        assert (len(chosen) == len(lengths)) == (tokens == total)
        assert sum(len(samples_of(batch)) for batch in fewer.held_out_batches()) == len(chosen) > 0
        assert fewer.train.tolist() == data.train.tolist()


def test_an_epoch_sees_every_training_sample_once(open_data):
    data = open_data()
    count = data.num_samples
    seen = [name for step in ids(data, -(-2 * count // 5)) for name in step]
    for epoch in range(2):
        assert len(set(seen[epoch * count : (epoch + 1) * count])) == count


def test_a_run_keeps_the_sizes_of_its_encoder(corpus, encoder, tmp_path, random_policy, monkeypatch):
    source = RecordSource(corpus, SftSample)
    sizes = dataset_sizes(source, encoder, tmp_path)
    (path,) = tmp_path.glob("sizes-*.json")
    other = Encoder.load(random_policy, ImageStore(corpus), max_pixels=2048)
    assert [size.length for size in dataset_sizes(source, other, tmp_path)] != [size.length for size in sizes]
    assert len(list(tmp_path.glob("sizes-*.json"))) == 2
    monkeypatch.setattr(encoder, "size", lambda _: pytest.fail("measured again"))
    assert dataset_sizes(source, encoder, tmp_path) == sizes
    rows = [[name, length + 7, *rest] for name, length, *rest in json.loads(path.read_bytes())]
    path.write_text(json.dumps(rows))
    stale = open_sft_data(corpus, encoder, tmp_path, make_mesh(), **SETTINGS)
    with pytest.raises(UserError, match=r"not those of its records .*: delete sizes-\*\.json"):
        next(stale.steps(0, 1, threads=1))


def test_a_target_longer_than_the_context_is_dropped_by_name(tmp_path, random_policy):
    write_corpus(tmp_path, [1, 1, 40])
    encoder = Encoder.load(random_policy, ImageStore(tmp_path), max_pixels=4096)
    settings = {**SETTINGS, "held_out": 0.0, "max_length": 100}
    data = open_sft_data(tmp_path, encoder, tmp_path, make_mesh(), **settings)
    assert data.dropped == ("s2",)
    with pytest.raises(UserError, match="of 3 samples 3 exceed 20 tokens"):
        open_sft_data(tmp_path, encoder, tmp_path, make_mesh(), **{**settings, "max_length": 20})


@pytest.mark.parametrize("stored", [False, True])
def test_missing_screenshots_are_counted_and_named_at_the_start(tmp_path, random_policy, stored):
    """Also where the sizes are stored, which need no screenshot."""
    write_corpus(tmp_path, [1, 1, 1, 1])
    images = ImageStore(tmp_path)
    encoder = Encoder.load(random_policy, images, max_pixels=4096)
    source = RecordSource(tmp_path, SftSample)
    if stored:
        dataset_sizes(source, encoder, tmp_path)
    # The folder loses the screenshots of two samples: its shard of them is another one's.
    records = list(read_dataset(tmp_path, SftSample))
    gone = [record_images(records[number])[0] for number in (1, 3)]
    left = ImageStore(tmp_path / "left")
    for name in {name for record in records for name in record_images(record)} - set(gone):
        left.put(images.get(name))
    encoder = Encoder(encoder.processor, left)
    with pytest.raises(UserError) as raised:
        dataset_sizes(source, encoder, tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}: 2 of its 4 screenshots are missing, the first one is {tmp_path}/left: "
        f"{gone[0]}: put them back, or make this data set again"
    )


def test_an_unreadable_screenshot_is_one_line(tmp_path, random_policy):
    write_corpus(tmp_path, [1, 1])
    (image,) = tmp_path.glob("images-*.array_record")
    image.write_bytes(image.read_bytes()[:100])
    encoder = Encoder.load(random_policy, ImageStore(tmp_path), max_pixels=4096)
    with pytest.raises(UserError, match="make this data set again") as raised:
        open_sft_data(tmp_path, encoder, tmp_path, make_mesh(), **SETTINGS)
    assert str(image) in str(raised.value)


@pytest.mark.parametrize("size", [(9600, 32), (9000, 9000)])
def test_a_screenshot_that_training_refuses_is_refused_when_sizes_are_counted(size, tmp_path, random_policy):
    images, file = ImageStore(tmp_path), io.BytesIO()
    Image.new("L", size).save(file, "PNG")
    messages = (Message(role="user", content=(ImagePart(sha256=images.put(file.getvalue())),)),)
    write_corpus(tmp_path / "corpus", [1])
    sample = next(read_dataset(tmp_path / "corpus", SftSample)).model_copy(update={"messages": messages})
    encoder = Encoder.load(random_policy, images, max_pixels=4096)
    for read in (encoder.size, encoder.example):
        with pytest.raises(UserError, match="sample s0: an image of"):
            read(sample)


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
    assert len(encoder.size(broken).patches) == 1
    with pytest.raises(UserError, match="sample s0: an image of 200 bytes cannot be read"):
        encoder.example(broken)
