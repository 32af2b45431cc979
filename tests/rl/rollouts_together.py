"""Groups of a run that several processes draw together.

test_rollouts.py runs this as `python -m tests.rl.rollouts_together COORDINATOR COUNT NUMBER FOLDER [URL]`;
FOLDER has a policy and prompts, URL is a server that draws. The groups, and what this process did, are
printed as JSON.
"""

import collections
import json
import sys
from pathlib import Path

import jax

from configs.rl import get_config
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.rl.config import EndpointConfig, RlConfig
from rmsweb_jax.rl.gates import salvage_ds
from rmsweb_jax.rl.rollout import Rollouts
from rmsweb_jax.rl.train import make_sampler, open_prompts
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.training.mesh import make_mesh

GROUPS, SAMPLES = 12, 3


def draw(folder: Path, url: str = "") -> dict[str, object]:
    values = get_config("smoke")
    values.model, values.prompts = str(folder / "policy"), str(folder / "prompts")
    config = from_config(RlConfig, values).model_copy(
        update={
            "max_response_tokens": 8,
            "max_pixels": 4096,
            "num_samples": SAMPLES,
            "held_out": 0.0,
            "rollout_lanes": 6,
            "rollout_engine": "endpoint" if url else "local",
            "endpoint": EndpointConfig(base_url=url, model="base", adapter_folder=str(folder / "adapters")),
        }
    )
    source = resolve_model(config.model)
    processor = Processor.from_pretrained(source, config.max_pixels)
    data, _, _, _ = open_prompts(config, processor, source, folder, folder)
    model = load_policy(config, source, make_mesh(data=2, fsdp=1, tensor=1), config.lora, config.seed)
    sampling = Sampling(config.num_samples, config.max_response_tokens, config.temperature)
    sampler = make_sampler(config, list(data.sizes.values()), processor, held=0, data=[data])
    done: collections.Counter[str] = collections.Counter()
    encode = Encoder.example

    def example(self, sample):
        done["encoded"] += 1
        return encode(self, sample)

    def score(response: str, target: str) -> float:
        done["scored"] += 1
        return 0.1 * (len(response) % 10)

    Encoder.example = example
    rollouts = Rollouts(sampler, data, sampling, score, salvage_ds, config.seed)
    rollouts.load(model, 0)
    groups = rollouts.take(GROUPS)
    rollouts.unload()
    rollouts.close()
    drawn = [
        [turn.prompt.prompt_id, [tokens.tolist() for tokens in turn.responses], turn.rewards.tolist()]
        for group in groups
        for turn in group.turns
    ]
    return {"groups": drawn, **done}


if __name__ == "__main__":
    coordinator, count, number, folder, *url = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(count), int(number), initialization_timeout=1200)
    print(json.dumps(draw(Path(folder), *url)))
