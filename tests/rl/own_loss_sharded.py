"""Updates by the losses of docs/examples/my_own_loss.py on one device and on all, run by test_own_loss.py.

Prints, for each loss, the largest difference of a parameter between both, the largest change of one by the
update, and the largest difference of a metric.
"""

import json

import jax
import numpy as np
from jax.sharding import Mesh

from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.rollout import MiniBatch
from rmsweb_jax.training.mesh import AXES, make_mesh
from tests.qwen.sharded_steps import make_turn
from tests.rl.update_together import make_policy


def largest(one: object, other: object) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def compare(name: str) -> tuple[float, float, float]:
    objective = Objective(loss=f"docs.examples.my_own_loss:{name}", clip_low=0.1, clip_high=0.15)
    groups = [make_turn(number, number < 4) for number in range(6)]
    batches = [MiniBatch(tuple(groups[at : at + 2]), (groups[4 + at // 2],)) for at in (0, 2)]
    found = []
    for mesh in (Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), AXES), make_mesh(data=2, fsdp=2)):
        policy = make_policy(mesh, objective)
        before = jax.device_get(policy.state(moved=True).params)
        updated = policy.update(policy.state(moved=True), batches, epochs=2)
        metrics = [updated.metrics[name] for name in ("loss", "norm/gradient", "norm/update")]
        found.append((before, jax.device_get(updated.state.params), metrics))
    (before, one, few), (_, many, more) = found
    return largest(one, many), largest(before, one), largest(few, more)


if __name__ == "__main__":
    print(json.dumps({name: compare(name) for name in ("dr_grpo", "gspo")}))
