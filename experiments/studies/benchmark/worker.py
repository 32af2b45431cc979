"""A worker process: one side of the comparison, a step for every line on its standard input.

    python -m experiments.studies.benchmark.worker '{"side": "ours", ...}'

Every request is a line of JSON, and so is every answer; whatever libraries print goes to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import Any, TextIO

from experiments.studies.benchmark import host
from experiments.studies.benchmark.job import Job, Side
from rmsweb_jax.errors import UserError

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "not enough memory")


def make_side(job: Job) -> Side:
    # Imported late: neither process loads the other's library.
    if job.side == "ours":
        from experiments.studies.benchmark.ours import OurSide

        return OurSide(job)
    from experiments.studies.benchmark.reference import ReferenceSide

    return ReferenceSide(job)


def answer(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Does what a request asks for: `do` is "describe", "start", "step", "reset_peak" or "peak_bytes"."""
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
    """A step's wall-clock seconds, the CPU seconds that other processes took meanwhile, and its values."""
    others, begin = host.others_seconds(), time.perf_counter()
    side.step()
    seconds = time.perf_counter() - begin
    others = max(0.0, host.others_seconds() - others)
    return {"seconds": seconds, "others": others, "values": dataclasses.asdict(side.values())}


def serve(job: Job, replies: TextIO) -> None:
    """Answers until standard input ends; a mistake that a user can mend is an answer, and the last one."""

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
        reply({"error": "out of memory; lower config.rows, config.length or config.decoder_layers"})


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    # Both libraries size their pools by the cores they may use, once.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(job, replies)


if __name__ == "__main__":
    main()
