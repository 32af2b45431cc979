"""`experiments.train_rl`: the training on one core; browsers, workers and policy server on the other."""

from __future__ import annotations

import os

_LEARNER, _PLAYERS = {0}, {1}

if __name__ == "__main__":
    # Before JAX starts its threads.
    os.sched_setaffinity(0, _LEARNER)

    import functools

    from collection.fleet import policy_server
    from experiments import online, train_rl
    from rmsweb_jax.processes import ChildProcess

    apart = functools.partial(ChildProcess, cores=_PLAYERS)
    online.ChildProcess = policy_server.ChildProcess = apart  # pyright: ignore
    train_rl.run()
