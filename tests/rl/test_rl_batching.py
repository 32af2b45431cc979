import numpy as np
import pytest

from rmsweb_jax.data.encoding import Measure
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.inputs import RowLayout, mrope_positions
from rmsweb_jax.qwen3_vl.logprobs import predecessors
from rmsweb_jax.rl.batching import micro_batches
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.rows import make_rows, slots_of
from rmsweb_jax.rl.shapes import RowShape, RowShapes, choose_row_shapes


def row_shapes(*shapes: RowShape) -> RowShapes:
    return RowShapes(shapes, micro_batch_tokens=160, devices=1, images=1, window=8)


TIGHT = row_shapes(RowShape(48, 40), RowShape(80, 72))
FIXED = row_shapes(
    RowShape(56, 32, RowLayout(24, 8)),
    RowShape(64, 32, RowLayout(32, 8)),
    RowShape(88, 56, RowLayout(32, 8)),
)
both_layouts = pytest.mark.parametrize("shapes", [TIGHT, FIXED], ids=["tight", "fixed"])


@pytest.fixture
def batch(make_group):
    """Three accepted groups and two salvaged ones; every third prompt has no image."""
    groups = [make_group(n, accepted=n < 3, length=10 + 3 * n, image=n % 3 != 2) for n in range(5)]
    return MiniBatch(tuple(groups[:3]), tuple(groups[3:]))


@both_layouts
def test_rows_hold_what_the_groups_hold(batch, config, shapes):
    seen = {}
    groups = (*batch.accepted, *batch.salvaged)
    for micro in micro_batches(batch, shapes, config, salvage=True):
        source = np.asarray(predecessors(micro.inputs.segment_ids, micro.inputs.slot_ids))
        for place in micro.places:
            scored = slice(place.start, place.stop)
            tokens = micro.targets.tokens[place.row, scored]
            example = groups[place.slot.group].prompt.example
            seen[place.slot.group, place.slot.sample] = tokens
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


@both_layouts
def test_weights_are_means_of_sequence_means(batch, config, shapes):
    total = {"pg_weight": 0.0, "kl_weight": 0.0, "salvage_weight": 0.0}
    for micro in micro_batches(batch, shapes, config, salvage=True):
        for name in total:
            total[name] += getattr(micro.targets, name).sum()
        for place in micro.places:
            part = place.row, slice(place.start, place.stop)
            length = place.stop - place.start
            pg, kl = micro.targets.pg_weight[part], micro.targets.kl_weight[part]
            np.testing.assert_allclose(pg, 1 / length / 24 if place.slot.group < 3 else 0, rtol=1e-5)
            np.testing.assert_allclose(kl, 1 / length / 40 if place.slot.sample >= 0 else 0, rtol=1e-5)
    assert all(value == pytest.approx(1, rel=1e-5) for value in total.values())


@both_layouts
def test_anchor_reads_the_action_span_only(batch, config, shapes):
    for micro in micro_batches(batch, shapes, config, salvage=True):
        for place in micro.places:
            weights = micro.targets.salvage_weight[place.row, place.start : place.stop]
            if place.slot.sample >= 0:
                assert not weights.any()
            else:
                assert (weights > 0).tolist() == [False, True, True, False]
    without = micro_batches(batch, shapes, config, salvage=False)
    assert not any(micro.targets.salvage_weight.any() for micro in without)
    assert all(place.slot.sample >= 0 for micro in without for place in micro.places)


@both_layouts
def test_shapes_are_those_declared(batch, config, shapes):
    for micro in micro_batches(batch, shapes, config, salvage=True):
        rows, width = micro.inputs.tokens.shape
        (shape,) = [
            known for known in shapes.shapes if (known.width, known.layout) == (width, micro.inputs.layout)
        ]
        assert rows in shapes.row_counts(shape)
        assert micro.targets.tokens.shape == (rows, shape.scored)


def test_fixed_slots_keep_the_promise_of_their_layout(batch, config):
    for micro in micro_batches(batch, FIXED, config, salvage=True):
        layout = micro.inputs.layout
        place = np.arange(micro.inputs.tokens.shape[1])
        slot = np.where(place < layout.prompt, 0, 1 + (place - layout.prompt) // layout.slot)
        held = np.asarray(micro.inputs.segment_ids) > 0
        assert (np.where(held, micro.inputs.slot_ids, slot) == slot).all()


@pytest.mark.parametrize("longest", [14, 15, 23, 40, 80])
def test_long_groups_are_cut_into_rows(make_group, longest):
    groups = [make_group(n, length=8) for n in range(3)]
    batch = MiniBatch(tuple(groups), ())
    slots = slots_of(batch, salvage=True)
    shapes = row_shapes(RowShape(longest, longest))
    rows = make_rows([group.prompt.example for group in groups], slots, shapes)
    assert all(row.length <= longest for row in rows)
    assert [slot for row in rows for slot in row.slots] == [slot for own in slots for slot in own]


def test_chosen_shapes_fit_every_single_response():
    measures = [Measure(f"p{n}", 14 + 5 * n, 4, 1, 8) for n in range(8)]
    settings = {"num_samples": 8, "micro_batch_tokens": 128, "devices": 2, "multiple": 8, "count": 2}
    shapes = choose_row_shapes(measures, max_response_tokens=32, **settings)
    assert 1 <= len(shapes.shapes) <= 2
    assert 45 + 32 <= shapes.shapes[-1].width <= 128
    assert all(count % 2 == 0 for shape in shapes.shapes for count in shapes.row_counts(shape))
    with pytest.raises(UserError, match="micro_batch_tokens"):
        choose_row_shapes(measures, max_response_tokens=100, **settings)


def test_chosen_fixed_shapes_fit_every_single_response():
    measures = [Measure(f"p{n}", 14 + 5 * n, 4, 1, 8) for n in range(8)]
    settings = {"num_samples": 8, "devices": 2, "multiple": 8, "count": 2, "fixed_slots": True}
    shapes = choose_row_shapes(measures, max_response_tokens=30, micro_batch_tokens=128, **settings)
    for measure in measures:
        for response in range(1, 31):
            assert shapes.choose(measure.length - measure.num_targets, [response]) is not None
    for shape in shapes.shapes:
        assert shape.width <= 128 and shape.width % 8 == 0
        assert (shape.width - shape.layout.prompt) % shape.layout.slot == 0
    assert {shape.layout.slot for shape in shapes.shapes} == {8, 16, 32}
    with pytest.raises(UserError, match="micro_batch_tokens"):
        choose_row_shapes(measures, max_response_tokens=30, micro_batch_tokens=72, **settings)
