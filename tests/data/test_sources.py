import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.sources import BatchOrder, RecordSource, is_held_out, stable_hash, stream
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.schema import Message, RlPrompt, SftSample, TextPart
from rmsweb_jax.records.shards import read_manifest


def sample(number: int) -> SftSample:
    messages = (Message(role="user", content=(TextPart(text="x" * number),)),)
    return SftSample(
        sample_id=str(number), task_id="t", site="s", kind="action", messages=messages, response="{}"
    )


@pytest.fixture
def corpus(tmp_path):
    write_dataset(tmp_path, (sample(number) for number in range(10)), "sft_samples", shard_size=4)
    return tmp_path


def test_reads_records_by_number_over_shards(corpus):
    source = RecordSource(corpus, SftSample)
    assert len(source) == 10
    assert [source[number].sample_id for number in (9, 0, 4, 3)] == ["9", "0", "4", "3"]


def test_a_damaged_shard_is_one_clear_line(corpus):
    shard = corpus / read_manifest(corpus).shards[1].data
    data = bytearray(shard.read_bytes())
    data[200:260] = bytes(60)
    shard.write_bytes(data)
    with pytest.raises(UserError, match="make this data set again") as raised:
        source = RecordSource(corpus, SftSample)
        for number in range(len(source)):
            source[number]
    assert "\n" not in str(raised.value) and str(corpus) in str(raised.value)


def test_a_damaged_record_ends_an_iterator_with_the_same_line(corpus):
    shard = corpus / read_manifest(corpus).shards[0].data
    source = RecordSource(corpus, SftSample)
    data = bytearray(shard.read_bytes())
    data[200:260] = bytes(60)
    shard.write_bytes(data)
    steps = stream(lambda step: source[step], 0, len(source), 1)
    with pytest.raises(UserError, match="make this data set again"):
        list(steps)


def test_a_truncated_shard_is_refused_at_once(corpus):
    shard = corpus / read_manifest(corpus).shards[0].data
    shard.write_bytes(shard.read_bytes()[:-1000])
    with pytest.raises(UserError, match="make this data set again"):
        RecordSource(corpus, SftSample)


def test_another_kind_of_data_set_is_refused(corpus):
    with pytest.raises(UserError, match="sft_samples"):
        RecordSource(corpus, RlPrompt)


def order(seed: int, batch_size: int, count: int, num_samples: int = 7) -> list[int]:
    steps = BatchOrder(np.arange(num_samples), batch_size, seed)
    return [int(number) for step in range(count) for number in steps[step]]


def test_order_depends_on_the_seed_alone():
    assert order(1, 3, 6) == order(1, 3, 6)
    assert order(1, 3, 6) != order(2, 3, 6)


def test_every_epoch_holds_every_sample_in_an_order_of_its_own():
    numbers = order(3, 5, 7)  # 35 numbers: five epochs of seven, with batches over their borders
    epochs = [numbers[start : start + 7] for start in range(0, 35, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


@given(st.lists(st.integers(1, 99), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 3))
def test_a_batch_has_one_sample_of_each_stratum(lengths, batch_size, seed):
    batches = BatchOrder(np.asarray(lengths), batch_size, seed)
    strata = np.array_split(np.argsort(lengths, kind="stable"), batch_size)
    stratum = {int(number): place for place, numbers in enumerate(strata) for number in numbers}
    # Of the first epoch only: a batch over its border has the strata of both sides.
    for step in range(len(lengths) // batch_size):
        assert sorted(stratum[int(number)] for number in batches[step]) == list(range(batch_size))


def test_a_sample_is_equally_likely_in_any_batch_of_an_epoch():
    firsts = [set(map(int, BatchOrder(np.arange(12), 3, seed)[0])) for seed in range(2_000)]
    counts = [sum(number in first for first in firsts) for number in range(12)]
    # 500 expected, with a standard deviation of 19.
    assert all(400 < count < 600 for count in counts)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_stream_is_independent_of_threads(threads):
    assert list(stream(lambda step: step**2, 3, 17, threads)) == [step**2 for step in range(3, 17)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_users_error_comes_out_of_a_stream_as_it_is(threads):
    def make(step: int) -> int:
        if step == 2:
            raise UserError("step 2 is bad")
        return step**2

    steps = stream(make, 0, 9, threads)
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(UserError, match="step 2 is bad"):
        next(steps)


def test_a_stream_can_be_left_before_its_end():
    steps = stream(lambda step: step, 0, 10**6, 2)
    assert next(steps) == 0
    steps.close()


def test_the_split_is_by_name_and_never_moves():
    names = [f"miniwob/click-link/{number}" for number in range(2000)]
    held = [name for name in names if is_held_out(name, 0.1, seed=3)]
    assert 140 < len(held) < 260
    assert set(held) <= {name for name in names if is_held_out(name, 0.2, seed=3)}
    assert set(held) != {name for name in names if is_held_out(name, 0.1, seed=4)}
    assert not any(is_held_out(name, 0.0) for name in names) and all(is_held_out(name, 1.0) for name in names)
    # Fixed for good: a resumed run on another machine must split alike.
    assert [number for number in range(30) if is_held_out(f"p{number}", 0.1)] == [6, 11]
    assert stable_hash("held_out", "p0") == 2_087_628_162
