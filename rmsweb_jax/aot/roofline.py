"""Lower bounds of a program's time on a slice: operations, memory traffic and interconnect traffic."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rmsweb_jax.aot.abstract import Chip
from rmsweb_jax.aot.hbm_bytes import Collective

_Position = tuple[int, ...]
# How often each device must receive its share of the other devices' parts: a reduction also sends it back.
_PASSES = {"all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "all-reduce": 2}


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Milliseconds that a call takes at least on each device, if everything else overlaps perfectly.

    Attributes:
      flop: its operations at the device's peak rate.
      hbm: the bytes that the compiled program moves, at the rate of the memory; None if it did not compile.
      ici: the bytes of its collectives at the rate of the links, see `ici_seconds`; None likewise.
    """

    flop: float
    hbm: float | None
    ici: float | None

    @property
    def binding(self) -> str:
        """Name of the longest."""
        return max(dataclasses.asdict(self).items(), key=lambda item: item[1] or 0.0)[0]

    @property
    def floor(self) -> float:
        """The longest, in milliseconds."""
        return getattr(self, self.binding)


def ici_seconds(collectives: Iterable[Collective], devices: Sequence[Any], chip: Chip) -> float:
    """Computes how long the links of the busiest mesh axis carry a device's collectives.

    A chip receives what the others of its group hold over the links that lead to them, all at once; of groups
    whose chips lie apart, several share each link. That is what the best ring or tree can reach, without
    latency. Collectives of one axis take turns; those of different axes overlap.

    Args:
      devices: those of the mesh, in its order; each has `coords`, the place of its chip.
    """
    if len(devices) == 1:
        return 0.0
    places = [tuple(device.coords) for device in devices]
    sizes = tuple(1 + max(axis) for axis in zip(*places, strict=True))
    rings = _rings(sizes, chip.torus)
    total: dict[Any, float] = defaultdict(float)
    # Seconds of a byte; a program repeats few forms.
    known: dict[Any, float] = {}
    for one in collectives:
        form = (one.kind, one.groups, one.pairs)
        if form not in known:
            known[form] = _byte_seconds(one, places, sizes, rings) / (chip.link_gb_per_s * 1e9)
        total[frozenset(map(frozenset, one.groups))] += one.times * one.size * known[form]
    return max(total.values(), default=0.0)


def _rings(sizes: _Position, torus: int) -> tuple[bool, ...]:
    """Axes whose ends are joined: all of a slice of whole cubes of 4, or the full 16 of a 2-D torus."""
    # docs.cloud.google.com/tpu/docs: v4, v5p and TPU7x join cubes optically, v5e and v6e are wired once.
    if torus == 3:
        return (all(size % 4 == 0 for size in sizes),) * len(sizes)
    return tuple(size == 16 for size in sizes)


def _byte_seconds(
    one: Collective, places: Sequence[_Position], sizes: _Position, rings: Sequence[bool]
) -> float:
    """Bytes that the busiest chip receives over each of its links, for a byte of `Collective.size`."""
    received: Counter[_Position] = Counter()
    cost: dict[_Position, float] = {}
    for source, target in one.pairs:
        received[places[target]] += places[source] != places[target]
    for group in one.groups:
        chips = Counter(places[device] for device in group)
        for place, own in chips.items():
            if not one.pairs:
                # Cores of a chip share what it receives.
                received[place] += _PASSES[one.kind] * (1 - own / len(group))  # pyright: ignore
            ways = _ways(place, chips, sizes, rings)
            cost[place] = max(cost.get(place, 0.0), min(ways) / len(ways) if ways else 1.0)
    return max((received[place] * cost[place] for place in received), default=0.0)


def _ways(
    place: _Position, members: Iterable[_Position], sizes: _Position, rings: Sequence[bool]
) -> list[int]:
    """Distances to the next members along each of a chip's links; links that lead to none are left out."""
    others, found = set(members) - {place}, []
    for axis, size in enumerate(sizes):
        for step in (1, -1):
            for hops in range(1, size):
                along = place[axis] + step * hops
                if not (rings[axis] or 0 <= along < size):
                    break
                if (*place[:axis], along % size, *place[axis + 1 :]) in others:
                    found.append(hops)
                    break
    return found
