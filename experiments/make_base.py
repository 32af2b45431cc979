"""Makes the tiny base from nothing: recorded pages, tokenizer, curriculum, export, scores, card.

    python -m experiments.make_base --config=configs/base.py:tiny --workdir=runs/base

The result is WORKDIR/export, a model folder; copied to rmsweb_jax/tiny_base it is what ships.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from absl import logging
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from collection.base_corpus import words
from collection.base_corpus.recorded import record_episodes
from collection.environments.miniwob import page_names
from experiments import cli
from experiments.base_batches import KINDS, BatchMaker, RecordedPages
from rmsweb_jax.base import loop
from rmsweb_jax.base.card import write_card, write_curve
from rmsweb_jax.base.model import export_model, fresh_model
from rmsweb_jax.base.scores import score
from rmsweb_jax.base.settings import BaseConfig, Sizes
from rmsweb_jax.base.tokenizer import build_tokenizer, save_tokenizer
from rmsweb_jax.base.train import split_params
from rmsweb_jax.metrics import read_metrics
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic

_PAGE_SIZES = ((2, 4), (5, 8), (9, 20), (21, 35))


def record(config: BaseConfig, folder: Path, held_out: bool) -> None:
    """Records MiniWoB++ pages for training or for scores; what is there already is kept."""
    settings = config.recorded
    first = settings.held_out_seed if held_out else settings.seed
    every = settings.held_out_per_page if held_out else settings.per_page
    demo = settings.held_out_per_demo_page if held_out else settings.per_demo_page
    counts = {page: demo if page in config.demo_pages else every for page in page_names()}
    wanted = [(page, first + number) for page, count in counts.items() for number in range(count)]
    record_episodes(folder, wanted, settings.max_actions)


def load_or_make_tokenizer(config: BaseConfig, folder: Path) -> Tokenizer:
    """The tokenizer of the run, learned on the first call."""
    path = folder / "tokenizer.json"
    if not path.exists():
        texts = words.tokenizer_texts(config.seed, config.tokenizer_words)
        tokenizer = build_tokenizer(texts, config.vocab_size)
        save_tokenizer(tokenizer, folder, config.model.max_position_embeddings)
    return Tokenizer.from_file(str(path))


def score_all(config: BaseConfig, model: Qwen3VL, make: BatchMaker, held_out: BatchMaker) -> dict[str, dict]:
    """Scores by size of generated pages, and on recorded pages of seeds that training never saw."""
    scores = {}
    for low, high in _PAGE_SIZES:
        settings = Sizes(low, high, config.scores.length, config.scores.rows)
        rng = random.Random(f"{config.scores.seed}/{low}")
        batches = (make.make(rng, "state", settings) for _ in range(config.scores.batches))
        scores[f"generated, {low} to {high} elements"] = score(model, batches, KINDS)
    rng = random.Random(f"{config.scores.seed}/recorded")
    batches = (held_out.recorded(rng) for _ in range(config.scores.batches))
    scores["recorded, held-out seeds"] = score(model, batches, KINDS)
    return scores


def main(settings: ConfigDict, workdir: Path) -> None:
    config = BaseConfig.from_dict(settings.to_dict())
    if (workdir / "report.json").exists():
        logging.info("%s is finished", workdir)
        return
    tokenizer = load_or_make_tokenizer(config, workdir / "tokenizer")
    model = fresh_model(config.model, tokenizer, config.seed)
    processor = Processor(
        AutoTokenizer.from_pretrained(workdir / "tokenizer"), model.config, config.recorded.max_pixels
    )
    makers = {}
    for name in ("train", "held_out"):
        record(config, workdir / "recorded" / name, name == "held_out")
        unit = model.config.vision.patch_size * model.config.vision.spatial_merge_size
        recorded = RecordedPages(workdir / "recorded" / name, config.recorded.max_pixels, unit)
        makers[name] = BatchMaker(config, processor, recorded)

    def export(current: Qwen3VL, place: loop.Place) -> None:
        export_model(current, workdir / "tokenizer", workdir / "export")
        logging.info("step %d exported to %s", place.step, workdir / "export")

    _, place = loop.train(config, model, makers["train"], KINDS, workdir, export)
    scores = score_all(config, load_model(workdir / "export"), makers["train"], makers["held_out"])
    report = {"stage": "make_base", "steps": place.step, "seconds": round(place.seconds), "scores": scores}
    num_params = sum(value.size for value in split_params(model)[1].values())
    metrics = read_metrics(workdir)
    write_card(workdir / "export", report, metrics, config.phases, num_params)
    write_curve(workdir / "curve.png", metrics)
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    cli.run(main, "configs/base.py:tiny")
