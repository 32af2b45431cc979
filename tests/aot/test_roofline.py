"""Lower bounds of time, counted by hand on small slices."""

import types

import pytest

from rmsweb_jax.aot.abstract import Chip
from rmsweb_jax.aot.hbm_bytes import Collective
from rmsweb_jax.aot.roofline import Roofline, ici_seconds

# Links of 1 GB/s in each direction.
FLAT = Chip(hbm_gib=1.0, peak_tflops=1.0, hbm_gb_per_s=1.0, link_gb_per_s=1.0, torus=2)
CUBES = Chip(hbm_gib=1.0, peak_tflops=1.0, hbm_gb_per_s=1.0, link_gb_per_s=1.0, torus=3)
GB = 10**9


def slice_of(x: int, y: int = 1, z: int = 1, cores: int = 1):
    places = [(a, b, c) for c in range(z) for b in range(y) for a in range(x)]
    return [types.SimpleNamespace(coords=place) for place in places for _ in range(cores)]


def over(kind: str, *groups: tuple[int, ...], size: int = GB, times: int = 1) -> Collective:
    return Collective(kind, size, groups, (), times)


def test_the_longest_bound_binds():
    assert Roofline(flop=3.0, hbm=2.0, ici=1.0).binding == "flop"
    assert Roofline(flop=0.0, hbm=2.0, ici=5.0).floor == 5.0
    assert Roofline(flop=3.0, hbm=None, ici=None).floor == 3.0


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("all-gather", 0.75), ("reduce-scatter", 0.75), ("all-to-all", 0.75), ("all-reduce", 1.5)],
)
def test_the_end_of_a_row_receives_all_others_over_one_link(kind, seconds):
    assert ici_seconds([over(kind, (0, 1, 2, 3))], slice_of(4), FLAT) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("devices", "chip", "links"),
    [
        (slice_of(2, 2), FLAT, 2),
        (slice_of(4, 4), FLAT, 2),
        (slice_of(16, 1), FLAT, 2),
        (slice_of(16, 16), FLAT, 4),
        (slice_of(2, 2, 2), CUBES, 3),
        # A ring is made of whole cubes only.
        (slice_of(2, 2, 4), CUBES, 3),
        (slice_of(4, 4, 4), CUBES, 6),
    ],
)
def test_links_of_the_chip_with_the_fewest(devices, chip, links):
    count = len(devices)
    one = over("all-gather", tuple(range(count)))
    assert ici_seconds([one], devices, chip) == pytest.approx((1 - 1 / count) / links)


def test_collectives_of_an_axis_take_turns_and_those_of_others_overlap():
    rows = over("all-gather", (0, 1), (2, 3), times=3)
    columns = over("all-gather", (0, 2), (1, 3), size=GB // 2)
    assert ici_seconds([rows, columns, columns], slice_of(2, 2), FLAT) == pytest.approx(3 * 0.5)


def test_groups_whose_chips_lie_apart_share_links():
    apart = over("all-gather", (0, 2), (1, 3))
    assert ici_seconds([apart], slice_of(4), FLAT) == pytest.approx(2 * 0.5)


def test_cores_of_a_chip_share_what_it_receives():
    """Of four cores on two chips each chip lacks half; of two groups it lacks half of each."""
    devices = slice_of(2, cores=2)
    assert ici_seconds([over("all-gather", (0, 1, 2, 3))], devices, FLAT) == pytest.approx(0.5)
    assert ici_seconds([over("all-gather", (0, 2), (1, 3))], devices, FLAT) == pytest.approx(0.5 + 0.5)
    # Neighbours on a chip need no link.
    assert ici_seconds([over("all-gather", (0, 1), (2, 3))], devices, FLAT) == 0


def test_a_ring_of_permutations_takes_as_long_as_a_gathering():
    ring = tuple((place, (place + 1) % 8) for place in range(8))
    steps = Collective("collective-permute", GB // 8, (tuple(range(8)),), ring, times=7)
    gathering = over("all-gather", tuple(range(8)))
    devices = slice_of(2, 2, 2)
    assert ici_seconds([steps], devices, CUBES) == pytest.approx(ici_seconds([gathering], devices, CUBES))


def test_one_device_has_no_links_to_wait_for():
    assert ici_seconds([over("all-gather", (0,))], [types.SimpleNamespace()], FLAT) == 0
