"""Draws the prompts of the ablations: equally many of each fate under the policy that trainings start from.

    python -m experiments.studies.ablations.prompts --config=configs/studies/ablation_prompts.py:demo \
        --config.prompts=MINED --config.eval_prompts=CORPUS --config.model=DIR --workdir=DIR

Each prompt gets as many replies as in training, and its group goes through the same gates. Three data sets
are written: `prompts`, decisions to train on, mined ones as far as there are enough; `samples`, the same as
SFT samples; `held_out`, every action of tasks that no training uses. `held_out.json` has the fate of each
held-out prompt and whether the first policy's greedy reply is exact.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import cli
from experiments.studies.ablations.records import HeldOut, save
from experiments.studies.ablations.settings import PromptSettings
from rmsweb_jax.actions.reward import EXACT
from rmsweb_jax.data.encoding import Encoder, as_sample
from rmsweb_jax.data.sources import stable_hash, training_data
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt, SftSample
from rmsweb_jax.rl.functions import find_gate, find_reward
from rmsweb_jax.rl.metrics import evaluate
from rmsweb_jax.rl.prompts import RlData, open_rl_data
from rmsweb_jax.rl.rollout import Rollouts
from rmsweb_jax.rl.train import make_sampler
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.training.mesh import make_mesh

# Groups of fates that are drawn in equal numbers. The competence gate rejects two of them: without contrast
# ("unsolved"), and with some ("incompetent").
CLASSES = {"accepted": ("accepted",), "solved": ("solved",), "hard": ("unsolved", "incompetent")}
_GROUP_OF = {fate: name for name, fates in CLASSES.items() for fate in fates}


def main(settings: PromptSettings, workdir: Path) -> None:
    """Draws, and writes `report.json` last.

    Raises:
      UserError: a data set or the model cannot be used, or a class has no prompts.
    """
    if (workdir / "report.json").exists():
        return
    start = time.monotonic()
    source = resolve_model(settings.model)
    processor = Processor.from_pretrained(source, settings.max_pixels)

    def opened(flag: str, name: str, corpus: str) -> RlData:
        folder = training_data(name, flag, workdir)
        encoder = Encoder(processor, ImageStore(folder))
        limits = {"max_prompt_tokens": settings.max_prompt_tokens, "held_out": settings.held_out}
        return open_rl_data(folder, encoder, corpus=corpus, workdir=workdir, **limits)

    mined = opened("config.prompts", settings.prompts, "mined")
    actions = opened("config.eval_prompts", settings.eval_prompts, "full")
    others = sorted(actions.train, key=lambda number: stable_hash(actions.sizes[number].sample_id))
    # All get their fates like prompts to train on.
    fill = dataclasses.replace(actions, train=tuple(others[: settings.fill]))
    actions = dataclasses.replace(actions, train=actions.held_out)
    fates, exact = sample(settings, source, processor, mined, fill, actions)

    pools = [{prompt: fates[prompt] for prompt in _ids(data)} for data in (mined, fill)]
    train = []
    for prompt in draw(pools, settings.per_class, settings.seed):
        data = mined if prompt in pools[0] else fill
        train.append(_as_prompt(data.records[data.numbers[prompt]]))
    held_out = [_as_prompt(actions.records[number]) for number in actions.held_out]
    _write(workdir / "prompts", train, "rl_prompts", mined, actions)
    _write(workdir / "held_out", held_out, "rl_prompts", actions)
    _write(workdir / "samples", [as_sample(one) for one in train], "sft_samples", mined, actions)
    ids = _ids(actions)
    record = HeldOut(
        prompts=tuple(ids),
        tasks=tuple(record.task_id for record in held_out),
        fates=tuple(_GROUP_OF[fates[prompt]] for prompt in ids),
        exact=tuple(exact[prompt] for prompt in ids),
    )
    save(workdir / "held_out.json", record)
    report = {
        "stage": "ablation_prompts",
        "seconds": round(time.monotonic() - start, 1),
        "mined": dict(collections.Counter(pools[0].values())),
        "drawn": len(train),
        "drawn_mined": sum(prompt.prompt_id in pools[0] for prompt in train),
        "held_out": dict(collections.Counter(record.fates)),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    print(f"drew {len(train)} prompts, {report['drawn_mined']} of them mined; {len(held_out)} are held out")


def sample(
    settings: PromptSettings, source: Path, processor: Processor, *sets: RlData
) -> tuple[dict[str, str], dict[str, bool]]:
    """Returns the fates of the prompts to train on, and which greedy replies to the last set are exact."""
    model = load_policy(settings, source, make_mesh(), settings.lora, settings.seed)
    sizes = [size for data in sets for size in data.sizes.values()]
    sampler = make_sampler(settings, sizes, processor, 0, sets)
    fates: dict[str, str] = {}
    exact: dict[str, bool] = {}
    for data in sets:
        rollouts = Rollouts(
            sampler,
            data,
            settings.sampling,
            find_reward(settings.reward),
            find_gate(settings.gate, settings.num_samples),
            settings.seed,
        )
        with contextlib.closing(rollouts):
            rollouts.load(model, 0)
            # One epoch, in which every prompt comes once.
            for group in rollouts.take(len(data.train)):
                (turn,) = group.turns
                fates[turn.prompt.prompt_id] = group.fate
                group.release()
            if data is sets[-1]:
                _, replies = evaluate(rollouts, data, settings.sampling)
                exact = {reply.sample_id: reply.reward == EXACT for reply in replies}
    return fates, exact


def draw(pools: Sequence[dict[str, str]], per_class: int, seed: int) -> list[str]:
    """Draws equally many prompts of each class, as many as possible of the first pool.

    Args:
      pools: prompt -> fate.

    Returns:
      Ids of the prompts, sorted.

    Raises:
      UserError: a class is empty.
    """
    rng = np.random.default_rng(seed)
    classes: dict[str, list[str]] = {name: [] for name in CLASSES}
    for pool in pools:
        for name, members in classes.items():
            own = sorted(prompt for prompt, fate in pool.items() if _GROUP_OF[fate] == name)
            members += [own[at] for at in rng.permutation(len(own))]
    empty = [name for name, members in classes.items() if not members]
    if empty:
        raise UserError(
            f"config.prompts has no prompts that are {' or '.join(empty)} under config.model: mine more "
            "tasks, or train another policy to start from"
        )
    count = min(per_class, *map(len, classes.values()))
    return sorted(prompt for members in classes.values() for prompt in members[:count])


def _ids(data: RlData) -> list[str]:
    return [data.sizes[number].sample_id for number in data.train]


def _as_prompt(record: RlPrompt | SftSample) -> RlPrompt:
    """An action of the corpus becomes a prompt without a failure mode."""
    if isinstance(record, RlPrompt):
        return record
    sample = as_sample(record)
    return RlPrompt(
        prompt_id=sample.sample_id,
        task_id=sample.task_id,
        site=sample.site,
        category="",
        messages=sample.messages,
        target=sample.response,
    )


def _write(folder: Path, records: Sequence[RlPrompt | SftSample], kind: str, *sources: RlData) -> None:
    provenance: dict[str, Any] = {"sources": [str(data.records.folder) for data in sources]}
    images = ImageStore(*[data.records.folder for data in sources])
    write_dataset(folder, records, kind, provenance, images=images)


if __name__ == "__main__":
    cli.run(main, "configs/studies/ablation_prompts.py:demo", PromptSettings)
