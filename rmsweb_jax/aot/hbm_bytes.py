"""Bytes that a program moves to and from a device's main memory (HBM), and its collectives.

They are counted in the text of the optimized program, whose layouts contain the memory space of every array.
The compiler's own "bytes accessed" is no substitute: it also counts fast memory, both ends of a prefetch,
loops within loops, and the whole of an array from which a slice is read.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np

# dtype[sizes]{layout}, such as bf16[8,128]{1,0:T(8,128)(2,1)S(1)}: the order of axes from minor to major,
# tiles, and the memory space.
_TYPE = re.compile(r"([a-z]+\d*[a-z\d]*)\[([\d,]*)\](?:\{([^}]*)\})?")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_OPERAND = re.compile(r"%([\w.\-]+)")
# Memory spaces other than 0 are fast memory, or the host's.
_ELSEWHERE = re.compile(r"S\([1-9]")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
# Instructions that move nothing, or whose bytes are counted at their users.
_FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all", "iota"}
_FREE |= {"while", "conditional", "call"}
_ALLOCATION = 'custom_call_target="AllocateBuffer"'
# Instructions inside a fusion that change the shape only.
_VIEWS = {"bitcast", "reshape"}
# Instructions that read only a part of their first operand.
_SLICES = {"slice", "dynamic-slice", "gather"}
_COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute"}


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    type: str
    opcode: str
    rest: str
    root: bool

    @property
    def operands(self) -> list[str]:
        """Names of the operands, without those of called computations."""
        depth, end = 1, len(self.rest)
        for place, mark in enumerate(self.rest):
            depth += (mark == "(") - (mark == ")")
            if not depth:
                end = place
                break
        return _OPERAND.findall(self.rest[:end])

    def attribute(self, name: str) -> str | None:
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.rest)
        return None if found is None else found[1]


_Computation = dict[str, _Instruction]


def _arrays(type_: str) -> list[tuple[int, bool]]:
    """Returns the bytes of each array of a type, and True if it is in main memory."""
    return [
        (
            _item_bits(kind) * math.prod(int(size) for size in sizes.split(",") if size) // 8,
            not _ELSEWHERE.search(layout),
        )
        for kind, sizes, layout in _TYPE.findall(type_)
    ]


def _item_bits(kind: str) -> int:
    # pred takes a byte; types without a number, such as token, take no memory.
    if kind == "pred":
        return 8
    found = re.search(r"\d+", kind)
    return int(found[0]) if found else 0


def _size(type_: str) -> int:
    return sum(size for size, _ in _arrays(type_))


def _main(type_: str) -> int:
    return sum(size for size, main in _arrays(type_) if main)


def _update_bytes(array: str, update: str) -> int:
    """Counts the bytes of an update in place; tiles that it covers partly are read and written."""
    ((kind, _, layout),) = _TYPE.findall(array)
    sizes = [int(size) for size in _TYPE.findall(update)[0][1].split(",") if size]
    order, _, tiling = layout.partition(":")
    tile = re.match(r"T\(([\d,]+)\)", tiling)
    # Sizes rounded up to whole tiles on the minor axes.
    whole = list(sizes)
    if tile:
        minor = [int(axis) for axis in order.split(",")]
        for axis, size in zip(minor, reversed(tile[1].split(",")), strict=False):
            whole[axis] = -(-sizes[axis] // int(size)) * int(size)
    moved = 1 if whole == sizes else 2
    return moved * math.prod(whole) * _item_bits(kind) // 8


def _computations(text: str) -> dict[str, _Computation]:
    found: dict[str, _Computation] = {}
    current: _Computation | None = None
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = found.setdefault(head[1], {})
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            root, name, type_, opcode, rest = match.groups()
            current[name] = _Instruction(name, type_, opcode, rest, bool(root))
    return found


def _users(body: _Computation, name: str) -> list[tuple[_Instruction, str]]:
    """Finds the users of an array inside a fusion, also of views of it, each with the name that it uses."""
    users = []
    for other in body.values():
        if name in other.operands:
            users += _users(body, other.name) if other.opcode in _VIEWS else [(other, name)]
    return users


def _read_by_fusion(body: _Computation, parameter: str, whole: int) -> int:
    """Counts the bytes that a fusion reads of a parameter in main memory."""
    read = 0
    for user, name in _users(body, parameter):
        place = user.operands.index(name)
        if user.opcode in _SLICES and place == 0:
            read += _size(user.type)
        elif user.opcode != "dynamic-update-slice" or place:
            # What is updated in place is not read.
            return whole
    return min(read, whole)


def _written(body: _Computation, result: str) -> int:
    """Counts the bytes that a fusion writes for a result in main memory."""
    made = body[result]
    if made.opcode in _VIEWS:
        return _written(body, made.operands[0])
    if made.opcode == "dynamic-update-slice":
        return _update_bytes(made.type, body[made.operands[1]].type)
    return _size(made.type)


def _fusion_bytes(types: dict[str, str], fusion: _Instruction, body: _Computation) -> int:
    moved = 0
    # By number, which is the position among the fusion's operands: parameter(NUMBER), ...
    parameters = {
        int(each.rest.partition(")")[0]): each.name for each in body.values() if each.opcode == "parameter"
    }
    for place, operand in enumerate(fusion.operands):
        if whole := _main(types.get(operand, "")):
            moved += _read_by_fusion(body, parameters[place], whole)
    (root,) = (each for each in body.values() if each.root)
    results = root.operands if root.opcode == "tuple" else [root.name]
    outputs = _arrays(fusion.type)
    if len(results) != len(outputs):
        # One operation with several results.
        return moved + _main(fusion.type)
    return moved + sum(
        _written(body, result) for result, (_, main) in zip(results, outputs, strict=True) if main
    )


def _instruction_bytes(
    computations: dict[str, _Computation], types: dict[str, str], instruction: _Instruction
) -> int:
    """Counts the bytes that an instruction of a loop's body moves."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in _FREE or opcode.endswith("-done") or _ALLOCATION in instruction.rest:
        return 0
    called = instruction.attribute("calls")
    if opcode == "fusion" and called:
        return _fusion_bytes(types, instruction, computations[called])
    read = [_main(types.get(operand, "")) for operand in operands]
    results = _arrays(instruction.type)
    if opcode == "async-start" and called:
        # One wrapped slice or collective. The type is (operands, result, ...).
        (inner,) = (each for each in computations[called].values() if each.root)
        if inner.opcode in _SLICES:
            read = [min(size, _size(inner.type)) for size in read]
        results = results[len(operands) : len(operands) + 1] if operands else []
    elif opcode == "async-update":
        # The operands of a start that has none. The type is that of the start.
        read, results = read[1:], results[len(operands) - 1 : len(operands)]
    elif opcode == "copy-start":
        results = results[:1]
    elif opcode in ("all-gather-start", "collective-permute-start"):
        # The type is (operands, results, ...).
        results = results[len(operands) : 2 * len(operands)]
    elif opcode == "dynamic-update-slice":
        update = _update_bytes(instruction.type, types[operands[1]])
        return read[1] + (update if _main(instruction.type) else 0)
    elif opcode in _SLICES:
        # Of the array only the slice is read.
        read[0] = _size(instruction.type) if read[0] else 0
    return sum(read) + sum(size for size, main in results if main)


def _own_bytes(computations: dict[str, _Computation], name: str) -> int:
    body = computations[name]
    types = {each.name: each.type for each in body.values()}
    return sum(_instruction_bytes(computations, types, each) for each in body.values())


def _constant(body: _Computation, name: str) -> int | None:
    """Reads an integer constant, also through copies."""
    one = body.get(name)
    if one is not None and one.opcode == "copy":
        return _constant(body, one.operands[0])
    found = re.match(r"(\d+)\)", one.rest) if one is not None and one.opcode == "constant" else None
    return int(found[1]) if found else None


def _trip_count(computations: dict[str, _Computation], loop: _Instruction) -> int:
    """Counts a loop's iterations; unknown counts are taken as one."""
    if known := _TRIP_COUNT.search(loop.rest):
        return int(known[1])
    # The TPU compiler leaves the count out, but its counters go from 0 to a constant: counter < constant.
    condition = computations[str(loop.attribute("condition"))]
    body = computations[str(loop.attribute("body"))]
    (test,) = (each for each in condition.values() if each.root)
    if test.opcode != "compare" or "direction=LT" not in test.rest:
        return 1
    counter, limit = test.operands
    place, most = condition[counter].attribute("index"), _constant(condition, limit)
    if place is None or most is None:
        return 1
    (root,) = (each for each in body.values() if each.root)
    step = body[root.operands[int(place)]]
    steps = [_constant(body, each) for each in step.operands] if step.opcode == "add" else []
    return -(-most // next((each for each in steps if each), 1))


def _inner(computations: dict[str, _Computation], instruction: _Instruction) -> list[tuple[str, int]]:
    """Finds the computations that an instruction runs, and how often."""
    if instruction.opcode == "while":
        return [(str(instruction.attribute("body")), _trip_count(computations, instruction))]
    if instruction.opcode == "call":
        return [(str(instruction.attribute("to_apply")), 1)]
    if instruction.opcode == "conditional":
        listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.rest)
        pair = (instruction.attribute("true_computation"), instruction.attribute("false_computation"))
        branches = _OPERAND.findall(listed[1]) if listed else [str(name) for name in pair]
        # The one that moves most.
        return [(max(branches, key=lambda name: _with_loops(computations, name)), 1)]
    return []


def _with_loops(computations: dict[str, _Computation], name: str) -> int:
    """Counts the bytes of a computation with its loops and branches."""
    inner = [each for one in computations[name].values() for each in _inner(computations, one)]
    return _own_bytes(computations, name) + sum(
        times * _with_loops(computations, body) for body, times in inner
    )


def _entry(text: str) -> str:
    (name,) = re.findall(r"^ENTRY %?([\w.\-]+) ", text, re.MULTILINE)
    return name


def _main_loop(computations: dict[str, _Computation]) -> str | None:
    """Finds the body of the loop whose own operations move most."""
    bodies = {
        str(instruction.attribute("body"))
        for computation in computations.values()
        for instruction in computation.values()
        if instruction.opcode == "while"
    }
    # The main loop is not marked. A loop over decoding steps may be nested in one over blocks, whose own
    # operations are few.
    return max(bodies, key=lambda body: _own_bytes(computations, body), default=None)


def call_bytes(text: str) -> int:
    """Counts the bytes of a call, as `iteration_bytes` does; a loop of unknown trip count counts once."""
    return _with_loops(_computations(text), _entry(text))


def iteration_bytes(text: str) -> int:
    """Counts the bytes of an iteration of the loop whose own operations move most.

    Every operation counts its reads from main memory and its writes to it: slices and gathers the part that
    they take, updates in place the tiles that they touch, copies and collectives their ends in main memory,
    and kernels all of their operands and results. Padding of layouts is not counted.

    Args:
      text: an optimized program, as XLA dumps it.

    Returns:
      0 if there is no loop.
    """
    computations = _computations(text)
    body = _main_loop(computations)
    return 0 if body is None else _with_loops(computations, body)


# --- Collectives ---


@dataclasses.dataclass(frozen=True)
class Collective:
    """Collectives of one instruction.

    Attributes:
      kind: "all-gather", "all-reduce", "reduce-scatter", "all-to-all" or "collective-permute".
      size: bytes on a device of the gathered array, of one that is reduced, scattered or exchanged, or of
        what a device sends.
      groups: positions in the mesh of the devices that take part together.
      pairs: (source, target) of a permutation.
      times: in a call of the program, or in all iterations of its main loop.
    """

    kind: str
    size: int
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    times: int


def collectives(text: str, devices: int, iterations: int | None = None) -> list[Collective]:
    """Finds the collectives of a call of a program.

    Args:
      text: an optimized program, as XLA dumps it.
      iterations: of the main loop, whose trip count is not known; collectives outside of it are left out.

    Raises:
      ValueError: the text states the devices in a way that is not known here.
    """
    computations = _computations(text)
    start, times = (_entry(text), 1) if iterations is None else (_main_loop(computations), iterations)
    return [] if start is None else list(_collectives(computations, start, times, devices))


def _collectives(
    computations: dict[str, _Computation], name: str, times: int, devices: int
) -> Iterator[Collective]:
    for one in computations[name].values():
        kind = one.opcode.removesuffix("-start")
        if kind in _COLLECTIVES:
            yield _collective(kind, one, name, times, devices)
        inner = _inner(computations, one)
        # A collective may be wrapped, fused with what computes meanwhile, or given to SparseCores.
        called = re.search(r"\b(?:calls|called_computations)=\{?%?([\w.\-]+)", one.rest)
        if one.opcode in ("fusion", "async-start", "custom-call") and called:
            inner = [(called[1], 1)]
        for body, repeated in inner:
            yield from _collectives(computations, body, times * repeated, devices)


def _collective(kind: str, one: _Instruction, computation: str, times: int, devices: int) -> Collective:
    results, count = _arrays(one.type), len(one.operands)
    if one.opcode in ("all-gather-start", "collective-permute-start"):
        # The type is (operands, results, ...).
        results = results[count : 2 * count]
    size = sum(bytes_ for bytes_, _ in results)
    if kind == "collective-permute":
        pairs = _pairs(one.rest)
        return Collective(kind, size, _components(pairs), pairs, times)
    groups = _groups(one.rest, devices)
    if kind == "reduce-scatter":
        size *= len(groups[0])
    # The TPU compiler writes a reduction of which each device keeps a part as a fusion of this name.
    if computation.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    return Collective(kind, size, groups, (), times)


def _pairs(rest: str) -> tuple[tuple[int, int], ...]:
    found = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
    return tuple((int(a), int(b)) for a, b in re.findall(r"(\d+),(\d+)", found[1])) if found else ()


def _components(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """Groups the devices that a permutation connects."""
    group = {device: {device} for pair in pairs for device in pair}
    for source, target in pairs:
        if group[source] is not group[target]:
            group[source] |= group[target]
            for device in group[target]:
                group[device] = group[source]
    return tuple(sorted({tuple(sorted(each)) for each in group.values()}))


def _groups(rest: str, devices: int) -> tuple[tuple[int, ...], ...]:
    """Reads `replica_groups`: listed, a transposed range as [4,2]<=[2,4]T(1,0), or axes of a mesh."""
    if found := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", rest):
        listed = re.findall(r"\{([\d,]+)\}", found[1])
        return tuple(tuple(map(int, each.split(","))) for each in listed) or (tuple(range(devices)),)
    if found := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        places = np.arange(devices).reshape([int(size) for size in found[3].split(",")])
        places = places.transpose([int(axis) for axis in found[4].split(",")]) if found[4] else places
        return _tuples(places.reshape(int(found[1]), int(found[2])))
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found[1])}
        names, split = list(sizes), re.findall(r"'(\w+)'(?=[,}]|$)", found[2])
        if split and math.prod(sizes.values()) == devices and len(split) == found[2].count("'") // 2:
            kept = [names.index(name) for name in names if name not in split]
            places = np.arange(devices).reshape(list(sizes.values()))
            places = places.transpose(*kept, *(names.index(name) for name in split))
            return _tuples(places.reshape(-1, math.prod(sizes[name] for name in split)))
    raise ValueError(f"no known form of replica_groups: {rest[:300]}")


def _tuples(places: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group) for group in places.tolist())
