"""The optimizer steps of one iteration by several processes.

test_update.py runs this as `python -m tests.rl.update_together COORDINATOR COUNT NUMBER FOLDER`; metrics are
printed as JSON, arrays are written to FOLDER/NUMBER.npz.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.rollout import MiniBatch
from rmsweb_jax.rl.step import Updated, rl_steps, update_policy
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Steps, TrainState, adamw
from tests.qwen import sharded_steps
from tests.qwen.sharded_steps import WINDOW, make_turn

# A large KL weight, so that every term shows.
OBJECTIVE = Objective(kl_coef=0.1)
# One layer: it is compiled by several processes at once.
CONFIG = dataclasses.replace(
    sharded_steps.CONFIG, text=dataclasses.replace(sharded_steps.CONFIG.text, num_hidden_layers=1)
)
# A row for each of the four shards of two processes.
PACKER = Packer(RowShape(64, 4, images=2, window=WINDOW), CONFIG)


class Policy(NamedTuple):
    """A policy, which is its own reference as long as `moved` is not asked for, and its programs."""

    mesh: Mesh
    params: Any
    frozen: Any
    steps: Steps
    optimizer: Any

    def state(self, *, moved: bool = False) -> TrainState:
        """Before the first step. An update donates it, so each call makes another."""
        rng = np.random.default_rng(2)
        params = jax.tree.map(
            lambda x: 0.1 * rng.standard_normal(x.shape, np.float32) if moved else jnp.copy(x), self.params
        )
        return init_state(params, self.optimizer, self.mesh)

    def update(
        self,
        state: TrainState,
        batches: list[MiniBatch],
        version: int = 0,
        packer: Packer = PACKER,
        epochs: int = 1,
    ) -> Updated:
        return update_policy(
            self.steps,
            state,
            self.frozen,
            batches,
            packer,
            CONFIG,
            self.mesh,
            salvage=True,
            version=version,
            epochs=epochs,
        )


def make_policy(mesh: Mesh, objective: Objective = OBJECTIVE) -> Policy:
    """With fresh adapters."""

    def build() -> Qwen3VL:
        model = Qwen3VL(CONFIG, rngs=nnx.Rngs(0), embedding_std=0.5)
        add_lora(model, LoRAConfig(rank=4, alpha=8.0, targets="attention"), nnx.Rngs(1))
        return model

    model = nnx.jit(build)()
    model.attention = choose_attention(CONFIG.text.head_dim, model.dtype, mesh)
    graphdef, params, frozen = split_model(model, "lora")
    params, frozen = (jax.device_put(part, param_shardings(part, mesh)) for part in (params, frozen))
    optimizer = adamw(1e-3, weight_decay=0.01, clip_norm=1.0)
    state = init_state(params, optimizer, mesh)
    return Policy(mesh, params, frozen, rl_steps(graphdef, state, optimizer, objective, mesh), optimizer)


def update(policy: Policy, packer: Packer = PACKER) -> Updated:
    """Two steps of a policy that has moved over eight groups, one of them drawn by an earlier one."""
    groups = [dataclasses.replace(make_turn(number, number < 4), version=1) for number in range(8)]
    groups[1] = dataclasses.replace(groups[1], version=0)
    batches = [MiniBatch(tuple(groups[at : at + 2]), tuple(groups[at + 4 : at + 6])) for at in (0, 2)]
    return policy.update(policy.state(moved=True), batches, version=1, packer=packer)


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
    jax.distributed.initialize(coordinator, int(count), int(number), initialization_timeout=1200)
    updated = update(make_policy(make_mesh(data=2, fsdp=2, tensor=2)))
    np.savez(Path(folder) / f"{number}.npz", **arrays_of(updated))  # pyright: ignore[reportArgumentType]
    print(json.dumps(updated.metrics))
