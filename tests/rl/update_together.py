"""The optimizer steps of one iteration by several processes.

test_update.py runs this as `python -m tests.rl.update_together COORDINATOR COUNT NUMBER FOLDER`; metrics are
printed as JSON, arrays are written to FOLDER/NUMBER.npz.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rmsweb_jax.mesh import make_mesh, param_shardings
from rmsweb_jax.optimizers import adamw
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.rl.losses import Objective
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.shapes import RowShape, RowShapes
from rmsweb_jax.rl.step import make_steps
from rmsweb_jax.rl.update import Updated, update_policy
from rmsweb_jax.sft.step import init_state, split_model
from tests.qwen3_vl.sharded_steps import CONFIG, WINDOW, make_group, make_policy

SHAPES = RowShapes((RowShape(64, 32),), micro_batch_tokens=64, devices=4, images=1, window=WINDOW)


def update(mesh: Mesh) -> Updated:
    """Two steps over eight groups, one of them drawn by an earlier policy."""
    model = make_policy(LoRAConfig(rank=4, alpha=8.0, targets="attention"), mesh)
    graphdef, params, frozen = split_model(model, "lora")
    frozen = jax.device_put(frozen, param_shardings(frozen, mesh))
    optimizer = adamw(1e-3, weight_decay=0.01, clip_norm=1.0)
    state = init_state(params, optimizer, mesh)
    steps = make_steps(graphdef, state, optimizer, Objective(kl_coef=0.1), mesh)
    groups = [dataclasses.replace(make_group(number, number < 4), version=1) for number in range(8)]
    groups[1] = dataclasses.replace(groups[1], version=0)
    batches = [MiniBatch(tuple(groups[at : at + 2]), tuple(groups[at + 4 : at + 6])) for at in (0, 2)]
    return update_policy(steps, state, frozen, batches, SHAPES, CONFIG, mesh, salvage=True, version=1)


def arrays_of(updated: Updated) -> dict[str, np.ndarray]:
    """Parameters and Adam's moments afterwards, and log-probabilities before."""
    leaves: list[Any] = jax.tree.leaves(updated.state)
    if jax.process_count() > 1:
        leaves = multihost_utils.process_allgather(leaves, tiled=True)
    log_probs = np.concatenate([response.old for response in updated.responses])
    return {"log_probs": log_probs, **{str(number): np.asarray(leaf) for number, leaf in enumerate(leaves)}}


if __name__ == "__main__":
    coordinator, count, number, folder = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(count), int(number), initialization_timeout=60)
    updated = update(make_mesh(data=2, fsdp=2, tensor=2))
    np.savez(Path(folder) / f"{number}.npz", **arrays_of(updated))  # pyright: ignore[reportArgumentType]
    print(json.dumps({"skipped": updated.skipped, **updated.metrics}))
