"""Compiles programs for a slice, and reports their memory and operations."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence

import jax

from rmsweb_jax.aot.programs import Program
from rmsweb_jax.training.mesh import device_bytes, out_of_memory, program_bytes, uneven_split

_GIB = 2**30


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
      compile_seconds: wall-clock time.
      useful_tflops, executed_tflops: of a call.
      mfu_ceiling: useful over executed operations.
      error: the compiler's reason if it does not fit.
    """

    name: str
    fits: bool
    peak_gib: float | None
    host_gib: float
    parts_gib: dict[str, float]
    state_split: float | None
    compile_seconds: float
    useful_tflops: float
    executed_tflops: float
    mfu_ceiling: float | None
    error: str = ""


def compile_program(program: Program, hbm_gib: float, devices: int) -> Compiled:
    """Runs the compiler; a program that does not fit gives a result with its error, not an exception.

    Args:
      hbm_gib: memory of a device.
      devices: their number in the program's mesh.
    """
    start = time.monotonic()
    parts = {name: device_bytes(tree) / _GIB for name, tree in program.arguments.items()}
    resident = {name: device_bytes(tree) / _GIB for name, tree in program.resident.items()}
    known = {**program.arguments, **program.resident}
    state = [known[name] for name in ("adapters", "optimizer") if name in known]
    peak, host, error = None, 0.0, ""
    try:
        compiled = program.lower().compile()
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
        if not error and peak > hbm_gib:
            others = ", ".join(resident)
            error = f"{peak:.2f} GiB of HBM with {others}, which stay on the device, of {hbm_gib}"
    return Compiled(
        name=program.name,
        fits=not error,
        peak_gib=peak,
        host_gib=host,
        parts_gib=parts | resident,
        state_split=uneven_split(state, devices) if len(state) == 2 else None,
        compile_seconds=time.monotonic() - start,
        useful_tflops=program.useful_flops / devices / 1e12,
        executed_tflops=program.executed_flops / devices / 1e12,
        mfu_ceiling=program.useful_flops / program.executed_flops if program.executed_flops else None,
        error=error,
    )


def _reason(message: str) -> str:
    return next(line.strip() for line in message.splitlines() if "hbm" in line.lower())[:300]


def table(results: Sequence[Compiled], hbm_gib: float) -> str:
    """Formats the results as a Markdown table."""
    parts = sorted({part for result in results for part in result.parts_gib})
    head = ["program", f"peak GiB of {hbm_gib}", "of the host", *parts, "state / even split"]
    head += ["useful TFLOP", "executed", "MFU ceiling", "compile s"]
    rows = [head, ["---"] * len(head)]
    for result in results:
        peak = "?" if result.peak_gib is None else f"{result.peak_gib:.2f}"
        share = "" if result.peak_gib is None else f" ({result.peak_gib / hbm_gib:.0%})"
        rows.append(
            [
                result.name,
                f"{peak}{share}" if result.fits else f"**does not fit: {peak}**",
                f"{result.host_gib:.2f}",
                *(f"{result.parts_gib[part]:.2f}" if part in result.parts_gib else "" for part in parts),
                "" if result.state_split is None else f"{result.state_split:.2f}",
                f"{result.useful_tflops:.1f}",
                f"{result.executed_tflops:.1f}",
                "" if result.mfu_ceiling is None else f"{result.mfu_ceiling:.2f}",
                f"{result.compile_seconds:.0f}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
