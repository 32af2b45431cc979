import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.data.batching import BatchShapes
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import padded_tokens, plan_batch, row_caps

WIDTHS = (128, 192, 256)


def measure(length: int, num_targets: int = 1, images: int = 0) -> SampleSize:
    return SampleSize("s", length, num_targets, images, 8 if images else 0)


MEASURES = st.lists(
    st.builds(measure, st.integers(12, 256), st.integers(1, 12), st.integers(0, 2)), min_size=1, max_size=40
)


def shapes(sizes, rows: int, packed: bool = True) -> BatchShapes:
    num_targets, images = row_caps(sizes, WIDTHS[-1], 4)
    return BatchShapes(rows, WIDTHS, num_targets, images, window=8, packed=packed)


@given(MEASURES, st.integers(1, 5))
def test_rows_hold_every_sample_once_and_no_more_than_fits(sizes, rows):
    plan = shapes(sizes, rows)
    plans = plan_batch(sizes, plan)
    placed = [number for micro in plans for row in micro.rows for number in row]
    assert sorted(placed) == list(range(len(sizes)))
    for micro in plans:
        assert micro.width in WIDTHS and len(micro.rows) <= rows
        for row in micro.rows:
            own = [sizes[number] for number in row]
            assert sum(size.length for size in own) <= micro.width
            assert sum(size.num_targets for size in own) <= plan.num_targets
            assert sum(size.images for size in own) <= plan.images


@given(MEASURES, st.integers(1, 5))
def test_packing_never_takes_more_places_than_a_row_each(sizes, rows):
    packed, single = shapes(sizes, rows), shapes(sizes, rows, packed=False)
    assert padded_tokens(plan_batch(sizes, packed), packed) <= padded_tokens(
        plan_batch(sizes, single), single
    )


@given(MEASURES, st.integers(1, 5))
def test_without_packing_every_sample_has_a_row_of_its_own(sizes, rows):
    plans = plan_batch(sizes, shapes(sizes, rows, packed=False))
    placed = [row for micro in plans for row in micro.rows]
    assert sorted(placed) == [(number,) for number in range(len(sizes))]


def test_a_plan_depends_on_the_sizes_alone():
    sizes = [measure(20 + 7 * number % 200) for number in range(30)]
    renamed = [dataclasses.replace(size, sample_id=f"other {at}") for at, size in enumerate(sizes)]
    assert plan_batch(sizes, shapes(sizes, 3)) == plan_batch(renamed, shapes(renamed, 3))


def test_samples_that_fill_rows_exactly_leave_no_padding():
    lengths = [200, 150, 131, 128, 125, 106, 56, 128]  # Four pairs of 256.
    sizes = [measure(length) for length in lengths]
    plans = plan_batch(sizes, shapes(sizes, 2))
    assert padded_tokens(plans, shapes(sizes, 2)) == sum(lengths)
    assert [micro.width for micro in plans] == [256, 256]


@pytest.mark.parametrize("kind", ["targets", "images"])
def test_a_row_is_closed_when_it_has_no_place_for_targets_or_images(kind):
    sizes = [measure(20, 12 if kind == "targets" else 1, 2 if kind == "images" else 0) for _ in range(8)]
    tight = BatchShapes(1, WIDTHS, num_targets=24, images=4, window=8, packed=True)
    rows = [row for micro in plan_batch(sizes, tight) for row in micro.rows]
    assert sorted(map(len, rows)) == [2, 2, 2, 2]
