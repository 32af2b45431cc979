"""Bytes that one turn of a program's loop moves to and from a device's main memory (HBM).

They are counted in the text of the optimized program, where every array's layout says where it lies. The
compiler's own figure ("bytes accessed") is no measure of that: it counts fast memory as well, both ends of
a prefetch, loops within loops, and the whole of an array of which a slice is read.
"""

from __future__ import annotations

import dataclasses
import math
import re

_TYPE = re.compile(r"([a-z]+\d*[a-z\d]*)\[([\d,]*)\](?:\{([^}]*)\})?")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_OPERAND = re.compile(r"%([\w.\-]+)")
# A memory space other than 0 is fast memory (or a host's).
_ELSEWHERE = re.compile(r"S\([1-9]")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
# They move nothing, or what they move is counted where it starts.
_FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "while", "after-all", "iota"}
_VIEWS = {"bitcast", "reshape"}
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
        """Names; those of called computations are not among them."""
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
    """Bytes of each array of a type, and whether it lies in main memory."""
    return [
        (
            _item_bits(kind) * math.prod(int(size) for size in sizes.split(",") if size) // 8,
            not _ELSEWHERE.search(layout),
        )
        for kind, sizes, layout in _TYPE.findall(type_)
    ]


def _item_bits(kind: str) -> int:
    if kind == "pred":
        return 8
    found = re.search(r"\d+", kind)
    return int(found[0]) if found else 0


def _size(type_: str) -> int:
    return sum(size for size, _ in _arrays(type_))


def _main(type_: str) -> int:
    return sum(size for size, main in _arrays(type_) if main)


def _update_bytes(array: str, update: str) -> int:
    """Bytes moved to put an update into an array in place: partly covered tiles are read and written."""
    ((kind, _, layout),) = _TYPE.findall(array)
    sizes = [int(size) for size in _TYPE.findall(update)[0][1].split(",") if size]
    order, _, tiling = layout.partition(":")
    tile = re.match(r"T\(([\d,]+)\)", tiling)
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
    """What uses an array inside a fusion, also by another view, each with the name it uses it by."""
    users = []
    for other in body.values():
        if name in other.operands:
            users += _users(body, other.name) if other.opcode in _VIEWS else [(other, name)]
    return users


def _read_by_fusion(body: _Computation, parameter: str, whole: int) -> int:
    """Bytes read of a parameter that lies in main memory."""
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
    """Bytes that a fusion's result, which lies in main memory, is written with."""
    made = body[result]
    if made.opcode in _VIEWS:
        return _written(body, made.operands[0])
    if made.opcode == "dynamic-update-slice":
        return _update_bytes(made.type, body[made.operands[1]].type)
    return _size(made.type)


def _fusion_bytes(types: dict[str, str], fusion: _Instruction, body: _Computation) -> int:
    moved = 0
    # parameter(NUMBER), ...
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
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in _FREE or opcode.endswith("-done"):
        return 0
    called = instruction.attribute("calls")
    if opcode == "fusion" and called:
        return _fusion_bytes(types, instruction, computations[called])
    read = [_main(types.get(operand, "")) for operand in operands]
    if opcode == "async-start" and called:
        # One slice or collective, wrapped; its operands are the wrapper's, its result the second part.
        (inner,) = (each for each in computations[called].values() if each.root)
        results = _arrays(instruction.type)[len(operands) :][:1]
        read = [min(size, _size(inner.type)) if inner.opcode in _SLICES else size for size in read]
        return sum(read) + sum(size for size, main in results if main)
    if opcode == "copy-start":
        size, main = _arrays(instruction.type)[0]
        return read[0] + size * main
    if opcode in ("all-gather-start", "collective-permute-start"):
        # (operands, results, ...)
        results = _arrays(instruction.type)[len(operands) : 2 * len(operands)]
        return sum(read) + sum(size for size, main in results if main)
    if opcode == "dynamic-update-slice":
        update = _update_bytes(instruction.type, types[operands[1]])
        return read[1] + (update if _main(instruction.type) else 0)
    if opcode in _SLICES:
        return (_size(instruction.type) if read[0] else 0) + sum(read[1:]) + _main(instruction.type)
    return sum(read) + _main(instruction.type)


def _own_bytes(computations: dict[str, _Computation], name: str) -> int:
    body = computations[name]
    types = {each.name: each.type for each in body.values()}
    return sum(_instruction_bytes(computations, types, each) for each in body.values())


def _with_loops(computations: dict[str, _Computation], name: str) -> int:
    """Bytes of a loop's turn and of the loops in it, one turn of those whose turns are not known."""
    moved = _own_bytes(computations, name)
    for loop in computations[name].values():
        if loop.opcode == "while" and (body := loop.attribute("body")):
            known = _TURNS.search(loop.rest)
            moved += (int(known[1]) if known else 1) * _with_loops(computations, body)
    return moved


def turn_bytes(text: str) -> int:
    """Bytes read and written by a turn of the loop whose own operations move most.

    Counted once each: what an operation reads of main memory and what it writes there; of slices and gathers
    only what they take, of updates in place the tiles they touch; both ends of copies and collectives that
    lie there. A kernel counts as its whole operands and results. Padding of layouts is not counted.

    Args:
      text: an optimized program, as XLA dumps it.

    Returns:
      0 when there is no loop.
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
    return _with_loops(computations, max(bodies, key=lambda body: _own_bytes(computations, body)))
