import numpy as np
import pytest

from rmsweb_jax.data.encoding import Measure
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.inputs import mrope_positions
from rmsweb_jax.qwen3_vl.logprobs import predecessors
from rmsweb_jax.rl.batching import RowShapes, choose_row_shapes, make_rows, micro_batches, slots_of
from rmsweb_jax.rl.refill import MiniBatch

SHAPES = RowShapes((48, 80), shortest_prompt=8, micro_batch_tokens=160, devices=1, images=1, window=8)


@pytest.fixture
def batch(make_group):
    """Three accepted groups and two salvaged ones; every third prompt has no image."""
    groups = [make_group(n, accepted=n < 3, length=10 + 3 * n, image=n % 3 != 2) for n in range(5)]
    return MiniBatch(tuple(groups[:3]), tuple(groups[3:]))


def test_rows_hold_what_the_groups_hold(batch, config):
    seen = {}
    groups = (*batch.accepted, *batch.salvaged)
    for micro in micro_batches(batch, SHAPES, config, salvage=True):
        source = np.asarray(predecessors(micro.inputs.segment_ids, micro.inputs.slot_ids))
        for place in micro.places:
            scored = slice(place.start, place.stop)
            tokens = micro.targets.tokens[place.row, scored]
            example = groups[place.group].prompt.example
            seen[place.group, place.sample] = tokens
            # The scored token stands somewhere in the row, and its predictor is the model's own rule.
            row_tokens, slots = micro.inputs.tokens[place.row], micro.inputs.slot_ids[place.row]
            index = micro.targets.index[place.row, scored]
            assert index[0] == example.prompt_length - 1
            if len(index) > 1:
                standing = np.flatnonzero(slots == slots[index[1]])
                assert row_tokens[standing].tolist() == tokens.tolist()
                assert source[place.row, standing].tolist() == index.tolist()
                whole = np.concatenate([example.tokens[: example.prompt_length], tokens])
                expected = mrope_positions(whole, example.grids, config)[:, example.prompt_length :]
                assert (micro.inputs.positions[:, place.row, standing] == expected).all()
    assert len(seen) == 5 * 8 + 2
    for number, group in enumerate(groups):
        for sample, response in enumerate(group.responses):
            assert seen[number, sample].tolist() == response.tolist()
    for number in (3, 4):
        example = groups[number].prompt.example
        assert seen[number, -1].tolist() == example.tokens[example.prompt_length :].tolist()


def test_weights_are_means_of_sequence_means(batch, config):
    total = {"pg_weight": 0.0, "kl_weight": 0.0, "salvage_weight": 0.0}
    for micro in micro_batches(batch, SHAPES, config, salvage=True):
        for name in total:
            total[name] += getattr(micro.targets, name).sum()
        for place in micro.places:
            part = place.row, slice(place.start, place.stop)
            length = place.stop - place.start
            pg, kl = micro.targets.pg_weight[part], micro.targets.kl_weight[part]
            np.testing.assert_allclose(pg, 1 / length / 24 if place.group < 3 else 0, rtol=1e-5)
            np.testing.assert_allclose(kl, 1 / length / 40 if place.sample >= 0 else 0, rtol=1e-5)
    assert all(value == pytest.approx(1, rel=1e-5) for value in total.values())


def test_anchor_reads_the_action_span_only(batch, config):
    for micro in micro_batches(batch, SHAPES, config, salvage=True):
        for place in micro.places:
            weights = micro.targets.salvage_weight[place.row, place.start : place.stop]
            if place.sample >= 0:
                assert not weights.any()
            else:
                assert (weights > 0).tolist() == [False, True, True, False]
    without = micro_batches(batch, SHAPES, config, salvage=False)
    assert not any(micro.targets.salvage_weight.any() for micro in without)
    assert all(place.sample >= 0 for micro in without for place in micro.places)


def test_shapes_are_those_declared(batch, config):
    for micro in micro_batches(batch, SHAPES, config, salvage=True):
        rows, width = micro.inputs.tokens.shape
        assert width in SHAPES.widths and rows == SHAPES.rows(width)
        assert micro.targets.tokens.shape == (rows, SHAPES.scored(width))


@pytest.mark.parametrize("longest", [14, 15, 23, 40, 80])
def test_long_groups_are_cut_into_rows(make_group, longest):
    groups = [make_group(n, length=8) for n in range(3)]
    batch = MiniBatch(tuple(groups), ())
    slots = slots_of(batch, salvage=True)
    rows = make_rows([group.prompt.example for group in groups], slots, longest)
    assert all(row.length <= longest for row in rows)
    assert [slot for row in rows for slot in row.slots] == [slot for own in slots for slot in own]


def test_chosen_shapes_fit_every_single_response():
    measures = [Measure(f"p{n}", 14 + 5 * n, 4, 1, 8) for n in range(8)]
    settings = {"num_samples": 8, "micro_batch_tokens": 128, "devices": 2, "multiple": 8, "count": 2}
    shapes = choose_row_shapes(measures, max_response_tokens=32, **settings)
    assert 1 <= len(shapes.widths) <= 2
    assert 45 + 32 <= shapes.widths[-1] <= 128
    assert shapes.rows(shapes.widths[-1]) % 2 == 0
    with pytest.raises(UserError, match="micro_batch_tokens"):
        choose_row_shapes(measures, max_response_tokens=100, **settings)
