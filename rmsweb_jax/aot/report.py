"""Compiles programs for a slice, and reports their memory, operations and traffic."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rmsweb_jax.aot.abstract import Chip
from rmsweb_jax.aot.hbm_bytes import call_bytes, collectives, iteration_bytes
from rmsweb_jax.aot.programs import Program
from rmsweb_jax.aot.roofline import Roofline, ici_seconds
from rmsweb_jax.training.memory import device_bytes, out_of_memory, program_bytes, uneven_split

_GIB = 2**30
_COLLECTIVE = re.compile(
    r"\b(all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Resources that one program needs of a device.

    Attributes:
      fits: True if the compiler placed it and the device holds its peak.
      peak_gib: memory that the program reserves, with arrays that stay on the device without being arguments.
        If the compiler cannot place it, these, the arguments and the temporaries that it reports, or None if
        it reports none.
      host_gib: memory of the host that a device's part of the program reserves.
      parts_gib: arguments and other resident arrays by part, and as "activations" all other memory.
      state_split: bytes of adapters and optimizer state on a device over those of an even split; None for a
        program without optimizer.
      collectives: number of each kind in the program, those of a scanned layer once; None if it does not fit.
      compile_seconds: wall-clock time.
      roofline: lower bounds of its time. Memory and interconnect traffic is that of the compiled program; of
        a program with a main loop, that of all its iterations.
      floor_ms: the longest of them.
      mfu_ceiling: useful over executed operations.
      turn_gib: memory traffic of an iteration of the program's main loop (see `hbm_bytes`); None without a
        loop.
      turn_needs_gib: the part of it that must be read.
      error: the compiler's reason if it does not fit.
    """

    name: str
    fits: bool
    peak_gib: float | None
    host_gib: float
    parts_gib: dict[str, float]
    state_split: float | None
    collectives: dict[str, int] | None
    compile_seconds: float
    useful_tflops: float
    executed_tflops: float
    roofline: Roofline
    floor_ms: float
    mfu_ceiling: float | None
    turn_gib: float | None = None
    turn_needs_gib: float | None = None
    error: str = ""


def compile_program(program: Program, chip: Chip, devices: Sequence[Any]) -> Compiled:
    """Runs the compiler; a program that does not fit gives a result with its error, not an exception.

    Args:
      devices: those of the program's mesh, in its order.
    """
    start = time.monotonic()
    parts = {name: device_bytes(tree) / _GIB for name, tree in program.arguments.items()}
    resident = {name: device_bytes(tree) / _GIB for name, tree in program.resident.items()}
    known = {**program.arguments, **program.resident}
    state = [known[name] for name in ("adapters", "optimizer") if name in known]
    peak, host, counts, turn, moved, linked, error = None, 0.0, None, None, None, None, ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            # The text comes from a dump, since some programs for v5p and v6e cannot be printed afterwards.
            options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
            compiled = program.lower().compile(compiler_options=options)
            # Modules are numbered; those after the first are separately compiled parts of the program.
            text = min(Path(folder).glob("*after_optimizations.txt")).read_text()
        counts = dict(sorted(Counter(_COLLECTIVE.findall(text)).items()))
        iterations = None
        if program.iteration_reads is not None:
            turn, iterations = iteration_bytes(text) / _GIB, program.iterations
        moved = call_bytes(text) if turn is None else program.iterations * turn * _GIB
        linked = 1e3 * ici_seconds(collectives(text, len(devices), iterations), devices, chip)
    except jax.errors.JaxRuntimeError as problem:
        if not out_of_memory(problem):
            raise
        # A result of the table, not a failure: the user asked if it fits.
        error = _reason(str(problem))
        needed = re.search(r"HLO temporaries \(([0-9.]+)G\)", str(problem))
        peak = float(needed[1]) + sum(parts.values()) if needed else None
    else:
        memory = compiled.memory_analysis()
        peak = program_bytes(compiled) / _GIB
        host = memory.host_temp_size_in_bytes / _GIB
        parts["activations"] = max(0.0, peak - memory.argument_size_in_bytes / _GIB)
    if peak is not None:
        peak += sum(resident.values())
        if not error and peak > chip.hbm_gib:
            others = ", ".join(resident)
            error = f"{peak:.2f} GiB of HBM with {others}, which stay on the device, of {chip.hbm_gib}"
    executed = program.executed_flops / len(devices) / 1e12
    needed = 0 if program.iteration_reads is None else device_bytes(program.iteration_reads)
    reading = None if moved is None else moved / chip.hbm_gb_per_s / 1e6
    roofline = Roofline(1e3 * executed / chip.peak_tflops, reading, linked)
    return Compiled(
        name=program.name,
        fits=not error,
        peak_gib=peak,
        host_gib=host,
        parts_gib=parts | resident,
        state_split=uneven_split(state, len(devices)) if len(state) == 2 else None,
        collectives=counts,
        compile_seconds=time.monotonic() - start,
        useful_tflops=program.useful_flops / len(devices) / 1e12,
        executed_tflops=executed,
        roofline=roofline,
        floor_ms=roofline.floor,
        mfu_ceiling=program.useful_flops / program.executed_flops if program.executed_flops else None,
        turn_gib=turn,
        turn_needs_gib=None if turn is None else needed / _GIB,
        error=error,
    )


def _reason(message: str) -> str:
    return next(line.strip() for line in message.splitlines() if "hbm" in line.lower())[:300]


def table(results: Sequence[Compiled], chip: Chip) -> str:
    """Formats the results as a Markdown table."""
    parts = sorted({part for result in results for part in result.parts_gib})
    head = ["program", f"peak GiB of {chip.hbm_gib}", "of the host", *parts, "state / even split"]
    head += ["useful TFLOP", "executed", "floor ms: FLOP / HBM / ICI", "MFU ceiling", "GiB a step / needed"]
    head += ["collectives", "compile s"]
    rows = [head, ["---"] * len(head)]
    for result in results:
        peak = "?" if result.peak_gib is None else f"{result.peak_gib:.2f}"
        share = "" if result.peak_gib is None else f" ({result.peak_gib / chip.hbm_gib:.0%})"
        rows.append(
            [
                result.name,
                f"{peak}{share}" if result.fits else f"**does not fit: {peak}**",
                f"{result.host_gib:.2f}",
                *(f"{result.parts_gib[part]:.2f}" if part in result.parts_gib else "" for part in parts),
                "" if result.state_split is None else f"{result.state_split:.2f}",
                f"{result.useful_tflops:.1f}",
                f"{result.executed_tflops:.1f}",
                floors(result.roofline),
                "" if result.mfu_ceiling is None else f"{result.mfu_ceiling:.2f}",
                _over(result.turn_gib, result.turn_needs_gib),
                _listed(result.collectives),
                f"{result.compile_seconds:.0f}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def floors(roofline: Roofline) -> str:
    """The three lower bounds in milliseconds, the binding one in bold."""
    parts = dataclasses.asdict(roofline).items()
    shown = {name: "?" if part is None else f"{part:,.0f}" for name, part in parts}
    shown[roofline.binding] = f"**{shown[roofline.binding]}**"
    return " / ".join(shown.values())


def _over(moved: float | None, needed: float | None) -> str:
    return "" if moved is None or not needed else f"{moved:.2f} / {needed:.2f} = {moved / needed:.2f}"


def _listed(collectives: dict[str, int] | None) -> str:
    if collectives is None:
        return ""
    return ", ".join(f"{count} {kind}" for kind, count in collectives.items())
