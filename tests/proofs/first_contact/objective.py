"""Log-probabilities at the sampling temperature, and settings of the objective that cannot be meant."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.rl import get_config
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.gates import salvage_ds
from rmsweb_jax.rl.rollout import MiniBatch, Rollouts
from rmsweb_jax.rl.step import rl_packer, rl_steps, update_policy
from rmsweb_jax.rl.train import make_sampler, open_prompts
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import adamw
from tests.experiments.test_wrong_settings import CASES, refusal
from tests.policies import REPLY, random_messages, save_random_policy
from tests.proofs.page import table
from tests.serve.conftest import random_adapters

TEMPERATURES = (0.3, 0.6, 1.0, 1.5)
PROMPTS, TOKENS = 8, 24


class Gap(NamedTuple):
    """Differences of the sampler's and the trainer's log-probabilities of drawn tokens, in nats.

    Attributes:
      mean, largest: where training scores at the sampling temperature.
      mean_at_1: where it scores at 1.
    """

    temperature: float
    tokens: int
    mean: float
    largest: float
    mean_at_1: float


def sampler_gaps(root: Path, temperatures: Sequence[float] = TEMPERATURES) -> list[Gap]:
    """Draws by the engine of training and scores by the update of RL, with random weights in float32."""
    save_random_policy(root / "policy")
    images = ImageStore(root / "prompts")
    prompts = [
        RlPrompt(
            prompt_id=f"p{number}",
            task_id=f"t{number}",
            site="s",
            category="ui_navigation",
            messages=random_messages(number, images, repeats=1 + number % 3),
            target=REPLY % (number + 1),
        )
        for number in range(PROMPTS)
    ]
    write_dataset(root / "prompts", prompts, "rl_prompts")
    settings = get_config("smoke")
    settings.model, settings.prompts, settings.held_out = str(root / "policy"), str(root / "prompts"), 0.0
    settings.max_prompt_tokens, settings.max_pixels = 256, 4096
    settings.max_response_tokens, settings.row_tokens = TOKENS, 768
    settings.update({"lora": {"rank": 4, "alpha": 8.0}})
    config = from_config(RlConfig, settings)
    source, mesh = resolve_model(config.model), make_mesh()
    processor = Processor.from_pretrained(source, config.max_pixels)
    data, _, _, _ = open_prompts(config, processor, source, root, root)
    sizes = list(data.sizes.values())
    packer = rl_packer(sizes, config, processor.config, 1)
    model = load_policy(config, source, mesh, config.lora, config.seed)
    random_adapters(model, scale=0.5)
    graphdef, params, frozen = split_model(model, "lora")
    optimizer = adamw(config.learning_rate, weight_decay=0.0, clip_norm=1.0)
    steps = {
        temperature: rl_steps(
            graphdef,
            init_state(params, optimizer, mesh),
            optimizer,
            config.objective,
            mesh,
            temperature=temperature,
        )
        for temperature in {*temperatures, 1.0}
    }
    sampler = make_sampler(config, sizes, processor, 0, [data])

    def scored(temperature: float, batch: MiniBatch) -> np.ndarray:
        """|old - sampled| of each token; an update donates the state."""
        state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
        updated = update_policy(
            steps[temperature], state, frozen, [batch], packer, model.config, mesh, salvage=True, version=0
        )
        return np.concatenate([np.abs(one.old - one.sampled) for one in updated.responses])

    found = []
    for temperature in temperatures:
        sampling = dataclasses.replace(config.sampling, temperature=temperature)
        rollouts = Rollouts(sampler, data, sampling, _no_reward, salvage_ds, config.seed)
        rollouts.load(model, 0)
        # The rejected half has the salvage anchor in its rows.
        turns = tuple(turn for group in rollouts.take(PROMPTS) for turn in group.turns)
        rollouts.close()
        batch = MiniBatch(turns[: PROMPTS // 2], turns[PROMPTS // 2 :])
        own, at_1 = scored(temperature, batch), scored(1.0, batch)
        found.append(Gap(temperature, len(own), float(own.mean()), float(own.max()), float(at_1.mean())))
    return found


def _no_reward(response: str, target: str) -> float:
    return 0.0


def main() -> str:
    """Prints and returns the page.

    Raises:
      AssertionError: what it shows does not hold.
    """
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-objective-") as name:
        root = Path(name)
        gaps = sampler_gaps(root / "gaps")
        refused = [
            (script, key, *refusal(script, f"config.{key}", value, root / str(number)))
            for number, (script, key, value, _) in enumerate(CASES)
        ]
    rows = [
        {
            "temperature": gap.temperature,
            "tokens": gap.tokens,
            "mean gap, nats": f"{gap.mean:.1e}",
            "largest": f"{gap.largest:.1e}",
            "mean gap if training scores at 1": f"{gap.mean_at_1:.1e}",
        }
        for gap in gaps
    ]
    lines = [
        {
            "script": f"`{script}`",
            "exit code": code,
            "programs compiled": len(compiled),
            "what it says": " ".join(said),
        }
        for script, _, code, said, compiled in refused
    ]
    page = "\n\n".join(
        (
            "## Objective",
            "Sampler and trainer, log-probabilities of the same tokens, float32:",
            table(rows),
            "Wrong settings, given to the scripts:",
            table(lines),
        )
    )
    print(page)
    assert all(gap.mean <= 1e-4 for gap in gaps), gaps
    for _, key, code, said, compiled in refused:
        assert code == 2 and len(said) == 1 and not compiled, key
        assert said[0].startswith(f"error: config.{key} is "), said
    return page


if __name__ == "__main__":
    main()
