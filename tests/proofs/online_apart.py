"""`experiments.train_rl`: the training on one core; browsers and workers on the other."""

from __future__ import annotations

import os

_LEARNER, _PLAYERS = {0}, {1}

if __name__ == "__main__":
    # Before JAX starts its threads.
    os.sched_setaffinity(0, _LEARNER)

    import functools

    from experiments import online, train_rl
    from rmsweb_jax.processes import ChildProcess

    online.ChildProcess = functools.partial(ChildProcess, cores=_PLAYERS)  # pyright: ignore
    train_rl.run()
