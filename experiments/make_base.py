"""Makes the tiny base from nothing: tokenizer, recorded pages, curriculum, export, scores, card.

    python -m experiments.make_base --config=configs/base.py:tiny --workdir=runs/base
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from absl import logging
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from collection.base_corpus import stream, words
from experiments import cli
from rmsweb_jax.base import loop
from rmsweb_jax.base.model import export_model, fresh_model
from rmsweb_jax.base.rows import Batch, Row, RowEncoder
from rmsweb_jax.base.tokenizer import build_tokenizer, save_tokenizer
from rmsweb_jax.qwen3_vl.model import Qwen3VL

KINDS = ("click", "type", "select", "scroll", "finish")
# Targets of a row that are learned: a row's own tokens are seldom more than this share of its length.
_LEARNED_SHARE = 0.6


class BatchMaker:
    """Batches of a phase and step, from the seed alone."""

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer):
        self.config = config
        self.encoder = RowEncoder(tokenizer, KINDS)

    def __call__(self, phase: int, step: int) -> Batch:
        settings = self.config.phases[phase]
        rng = random.Random(f"{self.config.seed}/{settings.name}/{step}")
        style = rng.choices(list(settings.mix.keys()), list(settings.mix.values()))[0]
        return self.make(rng, style, settings)

    def make(self, rng: random.Random, style: str, settings: ConfigDict) -> Batch:
        """A batch of one style."""
        rows = []
        while len(rows) < settings.rows:
            if rng.random() < settings.repetition:
                seeded = np.random.default_rng(rng.getrandbits(32))
                rows.append(self.encoder.repetition(seeded, settings.length))
            elif row := self._row(rng, style, settings):
                rows.append(row)
        return self.encoder.batch(rows, settings.length, int(settings.length * _LEARNED_SHARE))

    def _row(self, rng: random.Random, style: str, settings: ConfigDict) -> Row | None:
        low, high = settings.low, settings.high
        if style == "state":
            prompt = stream.state_prompt(rng, stream.generated(rng, low, high))
        else:
            make = stream.plain if style in ("recalls", "plain") else stream.generated
            prompt = stream.bare_prompt(make(rng, low, high))
        if prompt is None:
            return None
        if prompt.messages is None:
            tokens = self.encoder.encode(prompt.text)
        else:
            tokens = self.encoder.encode_chat([(message.role, message.text) for message in prompt.messages])
        ask = stream.recalls if style == "recalls" else stream.questions
        return self.encoder.row(tokens, ask(rng, prompt), settings.length)


def load_or_make_tokenizer(config: ConfigDict, folder: Path) -> Tokenizer:
    """The tokenizer of the run, learned on the first call."""
    path = folder / "tokenizer.json"
    if not path.exists():
        texts = words.tokenizer_texts(config.seed, config.tokenizer_words)
        tokenizer = build_tokenizer(texts, config.vocab_size)
        save_tokenizer(tokenizer, folder, config.model.max_position_embeddings)
    return Tokenizer.from_file(str(path))


def main(config: ConfigDict, workdir: Path) -> None:
    tokenizer = load_or_make_tokenizer(config, workdir / "tokenizer")
    model = fresh_model(config.model, tokenizer, config.seed)

    def export(current: Qwen3VL, place: loop.Place) -> None:
        export_model(current, workdir / "tokenizer", workdir / "export")
        logging.info("step %d exported to %s", place.step, workdir / "export")

    loop.train(config, model, BatchMaker(config, tokenizer), KINDS, workdir, export)


if __name__ == "__main__":
    cli.run(main, "configs/base.py:tiny")
