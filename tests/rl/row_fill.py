"""How full the rows of an update are on a mesh: corpora of groups, packed in both layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.rl import get_config
from rmsweb_jax.data.encoding import Encoder, SampleSize, dataset_sizes
from rmsweb_jax.data.packing import Packer, TreeSize, choose_packer, useful_work
from rmsweb_jax.data.sources import BatchOrder, RecordSource
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen.flops import Work, forward_flops
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.step import rl_packer
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.data import TRIALS

CONFIG = SIZES["8b"]
SETTINGS = RlConfig(prompts="none", model="none")
SFT_SETTINGS = SftConfig(corpus="none", model="none")
MEDIAN, SPREAD = 7_000, 0.5
TARGET, TARGET_SPREAD = 280, 0.35
RUNAWAYS = 0.01
ACCEPTED = SALVAGED = 16
PROMPTS, STEPS = 4_500, 8
Step = list[TreeSize]


def prompt_lengths(rng: np.random.Generator) -> np.ndarray:
    """Log-normal; those over the limit are dropped, as training does."""
    lengths = rng.lognormal(np.log(MEDIAN), SPREAD, 2 * PROMPTS).astype(int)
    return lengths[lengths <= SETTINGS.max_prompt_tokens][:PROMPTS]


def targets(rng: np.random.Generator, count: int) -> list[int]:
    lengths = TARGET * (1 + TARGET_SPREAD * rng.normal(size=count))
    return np.maximum(lengths, 20).astype(int).tolist()


def responses(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    """About as long as targets; some run to the limit."""
    runaway = rng.random(count) < RUNAWAYS
    return tuple(np.where(runaway, SETTINGS.max_response_tokens, targets(rng, count)).tolist())


def step(rng: np.random.Generator, prompts: Sequence[int], salvaged: int) -> Step:
    """Groups of an optimizer step, the last `salvaged` of them with their target."""
    first = len(prompts) - salvaged
    return [
        TreeSize(int(prompt), responses(rng, SETTINGS.num_samples + (number >= first)))
        for number, prompt in enumerate(prompts)
    ]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Optimizer steps, and the settings and model of the run that packs them.

    Attributes:
      sizes: prompts with their targets, by which the run chooses its rows.
    """

    sizes: list[SampleSize]
    steps: list[Step]
    settings: RlConfig = SETTINGS
    config: Qwen3VLConfig = CONFIG

    def packer(self, rows: int) -> Packer:
        """The packer that training chooses."""
        return rl_packer(self.sizes, self.settings, self.config, rows)

    def plain_packer(self, rows: int, steps: Sequence[Step]) -> Packer:
        """The best packer for these steps with the prompt before every response."""
        return choose_packer(
            steps,
            self.config,
            rows=rows,
            least=max(size.tokens for sizes in steps for size in sizes),
            most=self.settings.row_tokens,
            multiple=self.settings.row_multiple,
            images=max(len(size.patches) for sizes in steps for size in sizes),
            window=max((count for sizes in steps for size in sizes for count in size.patches), default=0),
        )

    def executed(self, chosen: Packer, steps: Sequence[Step]) -> int:
        works = (chosen.executed(rows, sizes) for sizes in steps for rows in chosen.pack(sizes))
        return forward_flops(self.config, sum(works, start=Work(0, 0, 0)))

    def useful(self, sizes: Step) -> int:
        return forward_flops(self.config, useful_work(sizes))


def corpora(seed: int = 0) -> dict[str, Corpus]:
    """Corpora for the settings of `8b`, by name."""
    rng = np.random.default_rng(seed)
    lengths = prompt_lengths(rng)
    unlike = [12_000] * 2 + [1_000] * 30

    def corpus(prompts: Sequence[int], accepted: int, salvaged: int) -> Corpus:
        sizes = [
            SampleSize(f"{number}", prompt + target, target, ())
            for number, (prompt, target) in enumerate(zip(prompts, targets(rng, len(prompts)), strict=True))
        ]
        groups = {"mini_batch_groups": accepted, "train_groups": accepted, "max_salvage_groups": salvaged}
        steps = [
            step(rng, rng.choice(prompts, accepted + salvaged, replace=False).tolist(), salvaged)
            for _ in range(STEPS)
        ]
        return Corpus(sizes, steps, SETTINGS.model_copy(update=groups))

    return {
        "log-normal prompts, 16 accepted and 16 salvaged groups": corpus(
            lengths.tolist(), ACCEPTED, SALVAGED
        ),
        "the same without salvage": corpus(lengths.tolist(), ACCEPTED, 0),
        "two groups of 12,000 and 30 of 1,000 tokens": corpus(unlike, len(unlike), 0),
    }


def demo_corpus(prompts: Path, seed: int = 0) -> Corpus:
    """The prompts that the demo mined, with its settings; responses are as long as the targets.

    Args:
      prompts: the folder of the data set.
    """
    settings = from_config(RlConfig, {**get_config("demo").to_dict(), "prompts": "none", "model": "none"})
    model = resolve_model("tiny_base")
    encoder = Encoder.load(model, ImageStore(prompts), settings.max_pixels)
    sizes = [
        size
        for size in dataset_sizes(RecordSource(prompts, RlPrompt), encoder, prompts)
        if size.prompt_length <= settings.max_prompt_tokens
    ]
    lengths, rng = [size.num_targets for size in sizes], np.random.default_rng(seed)
    groups = 2 * settings.mini_batch_groups  # Half of them salvaged.

    def draw() -> Step:
        chosen = rng.choice(len(sizes), groups, replace=False)
        return [
            TreeSize(
                sizes[index].prompt_length,
                tuple(rng.choice(lengths, settings.num_samples + (number >= groups // 2)).tolist()),
                sizes[index].patches,
            )
            for number, index in enumerate(chosen)
        ]

    return Corpus(sizes, [draw() for _ in range(STEPS)], settings, encoder.config)


def eight_rows(sizes: Step) -> Step:
    """The same step with the prompt before every response."""
    return [TreeSize(size.prompt, (branch,), size.patches) for size in sizes for branch in size.branches]


def fill(corpus: Corpus, rows: int) -> dict[str, Any]:
    """Packs the steps of a corpus for so many row shards.

    Returns:
      `useful`: share of the executed operations that is useful. `bound`: what it would be if all rows did
      equal work without padding, and no row less than the longest prompt with its longest response.
      `advantage`: executed operations with the prompt before every response, packed as well as these can be,
      over ours.
    """
    steps, chosen = corpus.steps, corpus.packer(rows)
    useful, executed = [corpus.useful(sizes) for sizes in steps], corpus.executed(chosen, steps)
    alone = [
        max(corpus.useful([TreeSize(size.prompt, (max(size.branches),), size.patches)]) for size in sizes)
        for sizes in steps
    ]
    least = sum(max(whole, rows * longest) for whole, longest in zip(useful, alone, strict=True))
    plain = [eight_rows(sizes) for sizes in steps]
    tokens = sum(useful_work(sizes).tokens for sizes in steps)
    batches = sum(len(chosen.pack(sizes)) for sizes in steps)
    return {
        "useful": round(sum(useful) / executed, 3),
        "bound": round(sum(useful) / least, 3),
        "padding": round(1 - tokens / (batches * rows * chosen.shape.width), 3),
        "advantage": round(corpus.executed(corpus.plain_packer(rows, plain), plain) / executed, 2),
        "row_tokens": chosen.shape.width,
        "micro_batches": round(batches / len(steps), 2),
    }


def sft_padding(rows: int, samples: int, seed: int = 1) -> dict[str, Any]:
    """Padding of an epoch of SFT whose samples are as long as the prompts of RL with a target."""
    rng = np.random.default_rng(seed)
    prompts = prompt_lengths(rng)
    replies = np.array(targets(rng, len(prompts)))
    order = BatchOrder(prompts + replies, samples, seed)

    def step(number: int) -> Step:
        return [TreeSize(int(prompts[index]), (int(replies[index]),)) for index in order[number]]

    steps = [step(number) for number in range(len(prompts) // samples)]
    chosen = choose_packer(
        steps[:TRIALS],
        CONFIG,
        rows=rows,
        least=int((prompts + replies).max()),
        most=SFT_SETTINGS.row_tokens,
        multiple=SFT_SETTINGS.row_multiple,
        images=0,
        window=0,
    )
    tokens = sum(useful_work(sizes).tokens for sizes in steps)
    count = sum(len(chosen.pack(sizes)) for sizes in steps)
    return {
        "padding": round(1 - tokens / (count * rows * chosen.shape.width), 3),
        "row_tokens": chosen.shape.width,
    }
