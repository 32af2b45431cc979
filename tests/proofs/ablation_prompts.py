"""Draws the prompts of the ablations by their fate under the policy that trainings start from.

    python -m tests.proofs.ablation_prompts --config=configs/rl.py:demo --config.prompts=MINED \
        --config.eval_prompts=CORPUS --config.model=DIR --workdir=DIR

Each prompt gets as many replies as in training, and its group goes through the same gates. Written are
`random`, as many actions of the corpus as there are mined prompts; `hard`, actions of which 60 % have no
competent reply, and a fifth each is accepted and solved; `samples`, the mined prompts as SFT samples.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from experiments import cli
from rmsweb_jax.data.encoding import Encoder, as_sample
from rmsweb_jax.data.sources import stable_hash, training_data
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt, SftSample
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.functions import find_gate, find_reward
from rmsweb_jax.rl.prompts import RlData, open_rl_data
from rmsweb_jax.rl.rollout import Rollouts
from rmsweb_jax.rl.train import make_sampler
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.training.mesh import make_mesh

# Actions of the corpus whose fates are found.
TRIED = 1_500
# Fate, and how many of ten prompts have it.
HARD = {("unsolved", "incompetent"): 6, ("accepted",): 2, ("solved",): 2}


def main(settings: RlConfig, workdir: Path) -> None:
    """Draws, and writes `report.json` last."""
    if (workdir / "report.json").exists():
        return
    source = resolve_model(settings.model)
    processor = Processor.from_pretrained(source, settings.max_pixels)

    def opened(flag: str, name: str, corpus: str) -> RlData:
        folder = training_data(name, flag, workdir)
        encoder = Encoder(processor, ImageStore(folder))
        limits = {"max_prompt_tokens": settings.max_prompt_tokens, "held_out": settings.held_out}
        return open_rl_data(folder, encoder, corpus=corpus, workdir=workdir, **limits)

    mined = opened("config.prompts", settings.prompts, "mined")
    actions = opened("config.eval_prompts", settings.eval_prompts, "full")
    shuffled = sorted(actions.train, key=lambda number: stable_hash(actions.sizes[number].sample_id))
    count = len(mined.train)
    fates = find_fates(settings, source, processor, actions, shuffled[:TRIED])
    each = min(sum(fate in some for fate in fates.values()) // share for some, share in HARD.items())
    hard = []
    for some, share in HARD.items():
        hard += [number for number in shuffled[:TRIED] if fates[number] in some][: each * share]
    write(workdir / "random", [as_prompt(actions.records[number]) for number in shuffled[:count]], actions)
    write(workdir / "hard", [as_prompt(actions.records[number]) for number in sorted(hard)], actions)
    samples = [as_sample(mined.records[number]) for number in mined.train]
    write_dataset(workdir / "samples", samples, "sft_samples", {}, images=ImageStore(mined.records.folder))
    report = {
        "stage": "ablation_prompts",
        "mined": count,
        "hard": len(hard),
        "fates of the corpus": dict(collections.Counter(fates.values())),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def find_fates(
    settings: RlConfig, source: Path, processor: Processor, data: RlData, numbers: Sequence[int]
) -> dict[int, str]:
    """Returns the fate of each prompt under the policy."""
    model = load_policy(settings, source, make_mesh(), settings.lora, settings.seed)
    sampler = make_sampler(settings, list(data.sizes.values()), processor, 0, [data])
    reward, gate = find_reward(settings.reward), find_gate(settings.gate, settings.num_samples)
    rollouts = Rollouts(
        sampler,
        dataclasses.replace(data, train=tuple(numbers)),
        settings.sampling,
        reward,
        gate,
        settings.seed,
    )
    ids = {data.sizes[number].sample_id: number for number in numbers}
    found = {}
    with contextlib.closing(rollouts):
        rollouts.load(model, 0)
        # One epoch, in which every prompt comes once.
        for group in rollouts.take(len(numbers)):
            (turn,) = group.turns
            found[ids[turn.prompt.prompt_id]] = group.fate
            group.release()
    return found


def as_prompt(record: RlPrompt | SftSample) -> RlPrompt:
    """An action of the corpus as a prompt without a failure mode."""
    sample = as_sample(record)
    return RlPrompt(
        prompt_id=sample.sample_id,
        task_id=sample.task_id,
        site=sample.site,
        category="",
        messages=sample.messages,
        target=sample.response,
    )


def write(folder: Path, prompts: Sequence[RlPrompt], data: RlData) -> None:
    write_dataset(folder, prompts, "rl_prompts", {}, images=ImageStore(data.records.folder))


if __name__ == "__main__":
    cli.run(main, "configs/rl.py:demo", RlConfig)
