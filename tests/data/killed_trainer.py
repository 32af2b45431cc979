"""Prints the ids of its data workers, then waits to be killed."""

import os
import signal

from rmsweb_jax.data.sources import stream
from rmsweb_jax.training.config import Workers


def worker(step: int) -> int:
    return os.getpid()


if __name__ == "__main__":
    steps = stream(worker, 0, 100, Workers(processes=2))
    print(*(next(steps) for _ in range(2)), flush=True)
    signal.pause()
