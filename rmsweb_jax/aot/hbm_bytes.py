"""Bytes that one iteration of a program's loop moves to and from a device's main memory (HBM).

They are counted in the text of the optimized program, whose layouts contain the memory space of every array.
The compiler's own "bytes accessed" is no substitute: it also counts fast memory, both ends of a prefetch,
loops within loops, and the whole of an array from which a slice is read.
"""

from __future__ import annotations

import dataclasses
import math
import re

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
_FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "while", "after-all", "iota"}
# Instructions inside a fusion that change the shape only.
_VIEWS = {"bitcast", "reshape"}
# Instructions that read only a part of their first operand.
_SLICES = {"slice", "dynamic-slice", "gather"}


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
    if opcode in _FREE or opcode.endswith("-done"):
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
        results = results[len(operands) : len(operands) + 1]
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


def _with_loops(computations: dict[str, _Computation], name: str) -> int:
    """Counts an iteration of a loop with the loops in it; those of unknown trip count count once."""
    moved = _own_bytes(computations, name)
    for loop in computations[name].values():
        if loop.opcode == "while" and (body := loop.attribute("body")):
            known = _TRIP_COUNT.search(loop.rest)
            moved += (int(known[1]) if known else 1) * _with_loops(computations, body)
    return moved


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
    bodies = {
        body
        for computation in computations.values()
        for instruction in computation.values()
        if instruction.opcode == "while" and (body := instruction.attribute("body"))
    }
    if not bodies:
        return 0
    # The main loop is not marked. A loop over decoding steps may be nested in one over blocks, whose own
    # operations are few.
    return _with_loops(computations, max(bodies, key=lambda body: _own_bytes(computations, body)))
