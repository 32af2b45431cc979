import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.batching import Example
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.flops import Work, decoder_flops, head_flops
from rmsweb_jax.qwen3_vl.inputs import RowLayout, mrope_positions
from rmsweb_jax.rl.batching import (
    Row,
    RowShape,
    RowShapes,
    Slot,
    choose_row_shapes,
    make_rows,
    micro_batches,
    plan_micro_batches,
    slots_of,
)
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.losses import TokenBatch
from tests.qwen3_vl.rows import predecessors


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


def picture(micro, unit):
    """The patches that each place of each row shows: [B, W, unit, patch_dim], zeros where there is text."""
    index = micro.inputs.image_index
    patches = micro.inputs.vision.patches.reshape(-1, unit, micro.inputs.vision.patches.shape[-1])
    return np.where(index[..., None, None] >= 0, patches[index], 0)


def placed(micro):
    return [
        (place.row, place.start, place.stop, place.slot.group, place.slot.sample) for place in micro.places
    ]


@both_layouts
def test_each_process_makes_its_own_rows_of_the_same_batch(batch, config, shapes):
    """Joined, the rows of two processes with two devices each are those that one process makes."""
    shapes = dataclasses.replace(shapes, devices=4)
    whole = micro_batches(batch, shapes, config, salvage=True)
    owned = [lambda count, own=own: [n for n in range(count) if n % 4 // 2 == own] for own in (0, 1)]
    parts = [micro_batches(batch, shapes, config, salvage=True, held=held) for held in owned]
    for all_rows, *halves in zip(whole, *parts, strict=True):
        count = len(all_rows.inputs.tokens)
        order = np.argsort(np.concatenate([held(count) for held in owned]))

        def joined(read, axis=0, halves=halves, order=order):
            return np.take(np.concatenate([read(half) for half in halves], axis), order, axis)

        for name in ("tokens", "segment_ids", "slot_ids", "image_index"):
            found = joined(lambda micro, name=name: getattr(micro.inputs, name))
            known = getattr(all_rows.inputs, name)
            # Images may lie elsewhere in the batch, so of references only the places are the same.
            assert ((found >= 0) == (known >= 0) if name == "image_index" else found == known).all(), name
        assert (joined(lambda micro: micro.inputs.positions, 1) == all_rows.inputs.positions).all()
        for name in TokenBatch.__dataclass_fields__:
            found = joined(lambda micro, name=name: getattr(micro.targets, name))
            assert (found == getattr(all_rows.targets, name)).all(), name
        # On the mesh, each row's block of patches is where the row is.
        vision = all_rows.inputs.vision
        per_row, patches = len(vision.patches) // count, np.zeros_like(vision.patches)
        for held, half in zip(owned, halves, strict=True):
            blocks = half.inputs.vision.patches.reshape(-1, per_row, vision.patches.shape[-1])
            patches.reshape(count, per_row, -1)[held(count)] = blocks
        index = joined(lambda micro: micro.inputs.image_index)
        inputs = all_rows.inputs.replace(image_index=index, vision=vision.replace(patches=patches))
        unit = config.vision.merge_unit
        assert (picture(dataclasses.replace(all_rows, inputs=inputs), unit) == picture(all_rows, unit)).all()
        assert placed(all_rows) == placed(halves[0]) == placed(halves[1])


@both_layouts
def test_work_is_what_the_attention_rule_lets_through(batch, config, shapes):
    for micro in micro_batches(batch, shapes, config, salvage=True):
        ids, slots = micro.inputs.segment_ids, micro.inputs.slot_ids
        place = np.arange(ids.shape[1])
        seen = (ids[:, :, None] == ids[:, None, :]) & (ids[:, :, None] > 0) & (place[:, None] >= place)
        seen &= (slots[:, None, :] == 0) | (slots[:, None, :] == slots[:, :, None])
        images = np.bincount(micro.inputs.vision.segment_ids)[1:]
        scored = sum(place.stop - place.start for place in micro.places)
        assert micro.work == Work(
            (ids > 0).sum(), seen.sum(), scored, images.sum(), (images.astype(int) ** 2).sum()
        )
        assert micro.size == ids.size


def partitions(items):
    """All ways to put items into groups."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for number, part in enumerate(rest):
            yield [*rest[:number], [items[0], *part], *rest[number + 1 :]]


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=5)


@given(lengths)
def test_no_other_plan_is_cheaper(config, own_lengths):
    example = Example("e", np.zeros(24, np.int32), 20, np.ones(4, bool))
    none = np.zeros(0, np.float32)
    rows = [
        Row(example, (Slot(np.zeros(length, np.int32), 0.0, none, none, none, number, 0),))
        for number, length in enumerate(own_lengths)
    ]
    # 4 or 1, 3 or 1, and 2 or 1 rows.
    shapes = row_shapes(RowShape(40, 32), RowShape(52, 48), RowShape(80, 64))
    plans = plan_micro_batches(rows, shapes, config)
    assert sorted(slot.group for plan in plans for row in plan.rows for slot in row.slots) == [
        *range(len(rows))
    ]
    for plan in plans:
        assert len(plan.rows) <= plan.count and plan.count in shapes.row_counts(plan.shape)
        assert all(plan.shape.holds(*row.lengths) for row in plan.rows)

    def cost(shape, count):
        return count * decoder_flops(config, shape.width, shape.width**2) + head_flops(
            config, count * shape.scored
        )

    def cheapest(part):
        return min(
            (
                cost(shape, count)
                for shape in shapes.shapes
                for count in shapes.row_counts(shape)
                if count >= len(part) and all(shape.holds(*row.lengths) for row in part)
            ),
            default=float("inf"),
        )

    best = min(sum(map(cheapest, parts)) for parts in partitions(rows))
    assert sum(cost(plan.shape, plan.count) for plan in plans) == best


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
    measures = [SampleSize(f"p{n}", 14 + 5 * n, 4, 1, 8) for n in range(8)]
    settings = {"num_samples": 8, "micro_batch_tokens": 128, "devices": 2, "multiple": 8, "count": 2}
    shapes = choose_row_shapes(measures, max_response_tokens=32, **settings)
    assert 1 <= len(shapes.shapes) <= 2
    assert 45 + 32 <= shapes.shapes[-1].width <= 128
    assert all(count % 2 == 0 for shape in shapes.shapes for count in shapes.row_counts(shape))
    with pytest.raises(UserError, match="micro_batch_tokens"):
        choose_row_shapes(measures, max_response_tokens=100, **settings)


def test_chosen_fixed_shapes_fit_every_single_response():
    measures = [SampleSize(f"p{n}", 14 + 5 * n, 4, 1, 8) for n in range(8)]
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
