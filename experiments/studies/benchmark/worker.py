"""A worker process: runs one side of the comparison, one request per line of standard input.

    python -m experiments.studies.benchmark.worker '{"side": "ours", ...}'

Requests and replies are lines of JSON; other output of libraries goes to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import Any, TextIO

from experiments.studies.benchmark.side import Job, Side, others_seconds
from rmsweb_jax.errors import UserError

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "not enough memory")


def make_side(job: Job) -> Side:
    # Imported here, so that no process loads the other side's library.
    if job.side == "ours":
        from experiments.studies.benchmark.ours import OurSide

        return OurSide(job)
    from experiments.studies.benchmark.reference import ReferenceSide

    return ReferenceSide(job)


def answer(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Carries out a request; `do` is "describe", "start", "step", "reset_peak" or "peak_bytes"."""
    match request["do"]:
        case "describe":
            return side.describe()
        case "start":
            side.start(request["program"])
        case "step":
            return timed_step(side)
        case "reset_peak":
            side.reset_peak()
        case "peak_bytes":
            return {"bytes": side.peak_bytes()}
        case unknown:
            raise ValueError(f"unknown request {unknown!r}")
    return {}


def timed_step(side: Side) -> dict[str, Any]:
    """Wall-clock seconds of a step, CPU seconds of other processes during it, and its values."""
    others_before, begin = others_seconds(), time.perf_counter()
    side.step()
    seconds = time.perf_counter() - begin
    others = max(0.0, others_seconds() - others_before)
    return {"seconds": seconds, "others": others, "values": dataclasses.asdict(side.values())}


def serve(job: Job, replies: TextIO) -> None:
    """Replies until standard input ends; an error that the user can fix is the last reply."""

    def reply(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    try:
        side = make_side(job)
        for line in sys.stdin:
            reply(answer(side, json.loads(line)))
    except UserError as error:
        reply({"error": str(error)})
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(mark in str(error) for mark in _OUT_OF_MEMORY):
            raise
        reply({"error": "out of memory; lower config.samples, config.length or config.decoder_layers"})


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    # Both libraries size their thread pools once, by the cores of the process.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(job, replies)


if __name__ == "__main__":
    main()
