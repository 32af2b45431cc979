"""The shapes in annotations, checked from scored groups to the gradient of the objective."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import dataclasses, jax, numpy as np, pytest
from flax import nnx
from jaxtyping import TypeCheckError, install_import_hook
import tests.typechecker

modules = "batching gates losses metrics prompts rollout step".split()
packages = [f"rmsweb_jax.rl.{name}" for name in modules]
packages += ["rmsweb_jax.qwen.model", "rmsweb_jax.data.batching"]
with install_import_hook(packages, "tests.typechecker.check"):
    from rmsweb_jax.decoding.requests import Responses
    from rmsweb_jax.rl.step import micro_batches, rl_packer, trees_of
    from rmsweb_jax.rl.config import RlConfig
    from rmsweb_jax.rl.rollout import MiniBatch
    from rmsweb_jax.rl import gates
    from rmsweb_jax.rl.losses import Objective, TokenBatch, salvage_ds, token_weights
    from rmsweb_jax.rl.metrics import ScoredResponse, log_prob_metrics, readable_groups, rollout_metrics
    from rmsweb_jax.rl.rollout import make_group
    from rmsweb_jax.rl.step import scored_log_probs
    from rmsweb_jax.data.encoding import SampleSize
    from rmsweb_jax.sft.step import split_model
    from rmsweb_jax.qwen.lora import LoRAConfig, add_lora
    from rmsweb_jax.qwen.model import Qwen3VL
    from tests.actions.replies import reply
    from tests.rl.conftest import CONFIG, _prompt

target = reply({'go_back': {}})
prompts = [dataclasses.replace(_prompt(number), target=target) for number in range(2)]
rng = np.random.default_rng(0)
tokens = [tuple(rng.integers(0, 50, 5).astype(np.int32) for _ in range(4)) for _ in prompts]
drawn = [
    Responses(
        own,
        tuple(np.full(5, -1, np.float32) for _ in own),
        np.zeros(4, bool),
        tuple(np.zeros(5, np.int32) for _ in own),
    )
    for own in tokens
]
rewards = iter([0.0, 1.0, 0.3, 1.0, *[0.0] * 4])
groups = [
    make_group(prompt, one, [next(rewards) for _ in range(4)])
    for prompt, one in zip(prompts, drawn, strict=True)
]
gated = gates.salvage_ds(np.stack([group.rewards for group in groups]))
assert gated.fates.tolist() == [group.fate for group in groups] == ["accepted", "unsolved"]
assert len(list(readable_groups(groups, lambda tokens: "", 1))) == 2
rollout_metrics(groups)
scored = [ScoredResponse(1.0, True, part, part) for part in groups[0].turns[0].log_probs]
log_prob_metrics(scored)

size = SampleSize('prompt', length=16, num_targets=4, patches=(8,))
config = RlConfig(
    prompts="p", model="m", num_samples=4, max_response_tokens=6, row_tokens=256, row_multiple=8
)
packer = rl_packer([size], config, CONFIG, shards=1)
trees = trees_of(MiniBatch(groups[0].turns, groups[1].turns), salvage=True)
micro, *_ = micro_batches(trees, packer, CONFIG)
batch = micro.batch
values = batch.scored.values
assert values["behaviour_log_probs"].any()


def gradient(params, frozen):
    def loss(params):
        model = nnx.merge(graphdef, params, frozen)
        log_probs = scored_log_probs(model, batch)
        tokens = TokenBatch.of(batch.scored.branch, values, off_policy=True)
        assert tokens.length.shape == log_probs.shape
        return salvage_ds(log_probs, tokens, Objective())[0]

    return jax.grad(loss)(params)


model = Qwen3VL(CONFIG, rngs=nnx.Rngs(0))
add_lora(model, LoRAConfig(rank=2, alpha=4.0, targets="attention"), nnx.Rngs(1))
graphdef, params, frozen = split_model(model, "lora")
jax.eval_shape(gradient, params, frozen)
with pytest.raises(TypeCheckError):
    token_weights(np.ones((2, 3), bool), 1)
"""


@pytest.mark.slow
def test_annotated_shapes_are_those_of_rollouts_and_their_objective():
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=ROOT, check=True)
