"""Makes the tiny base from nothing: recorded pages, tokenizer, curriculum, export, scores, card.

    python -m experiments.studies.tiny_base.run --config=configs/studies/tiny_base.py:tiny --workdir=runs/base

The result is WORKDIR/export, a model folder; copied to rmsweb_jax/tiny_base it is what ships.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import jax.numpy as jnp
from absl import logging
from flax import nnx
from tokenizers import Tokenizer

from collection.environments.miniwob import page_names
from experiments import cli
from experiments.studies.tiny_base.batches import KINDS, BatchMaker, RecordedPages
from experiments.studies.tiny_base.card import write_card
from experiments.studies.tiny_base.corpus import words
from experiments.studies.tiny_base.corpus.recorded import record_episodes
from experiments.studies.tiny_base.settings import BaseConfig, ModelSettings, Sizes
from experiments.studies.tiny_base.tokenizer import build_tokenizer, save_tokenizer, token_ids
from experiments.studies.tiny_base.train import RunPosition, score, split_params, train
from rmsweb_jax.qwen.checkpoint import load_model, save_model
from rmsweb_jax.qwen.config import DeltaConfig, Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.training.metrics import read_metrics


def model_config(settings: ModelSettings, tokenizer: Tokenizer) -> Qwen3VLConfig:
    """The architecture of the settings; in Qwen3-VL every vision block's output enters the decoder."""
    names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    image, video, start, end = token_ids(tokenizer, names)
    delta = (
        DeltaConfig(
            interval=settings.attention_interval,
            linear_num_key_heads=settings.linear_key_heads,
            linear_num_value_heads=settings.linear_value_heads,
            linear_key_head_dim=settings.linear_head_dim,
            linear_value_head_dim=settings.linear_head_dim,
            linear_conv_kernel_dim=4,
        )
        if settings.attention_interval
        else None
    )
    text = TextConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=settings.num_attention_heads,
        num_key_value_heads=settings.num_key_value_heads,
        head_dim=settings.head_dim,
        mrope_section=settings.mrope_section,
        rope_theta=settings.rope_theta,
        max_position_embeddings=settings.max_position_embeddings,
        partial_rotary_factor=settings.partial_rotary_factor,
        delta=delta,
    )
    vision = VisionConfig(
        depth=settings.vision_depth,
        hidden_size=settings.vision_hidden_size,
        intermediate_size=settings.vision_intermediate_size,
        num_heads=settings.vision_heads,
        out_hidden_size=settings.hidden_size,
        num_position_embeddings=settings.vision_positions,
        deepstack_visual_indexes=() if delta else tuple(range(settings.vision_depth)),
    )
    return Qwen3VLConfig(
        text=text,
        vision=vision,
        tie_word_embeddings=True,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )


def fresh_model(settings: ModelSettings, tokenizer: Tokenizer, seed: int) -> Qwen3VL:
    """A model with matrices at 1 / sqrt(fan-in); embeddings and attention temperature are settings."""
    config = model_config(settings, tokenizer)
    model = Qwen3VL(config, rngs=nnx.Rngs(seed), embedding_std=settings.embedding_std)
    decoder = model.language_model
    for layer in (*decoder.first_layers, *decoder.layers):
        if layer.self_attn is not None:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                scale = settings.qk_norm - config.text.norm_offset
                norm.scale.set_value(jnp.full_like(norm.scale[...], scale))
    return model


def export_model(model: Qwen3VL, tokenizer_folder: Path, folder: Path) -> None:
    """Writes a model folder in bfloat16, with the tokenizer of `tokenizer_folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_folder / name, folder / name)
    save_model(model, folder, jnp.bfloat16)


_PAGE_SIZES = ((2, 4), (5, 8), (9, 20), (21, 35))


def record(config: BaseConfig, folder: Path, held_out: bool) -> None:
    """Records MiniWoB++ pages for training or for scores; pages that are there are kept."""
    settings = config.recorded
    first = settings.held_out_seed if held_out else settings.seed
    every = settings.held_out_per_page if held_out else settings.per_page
    demo = settings.held_out_per_demo_page if held_out else settings.per_demo_page
    counts = {page: demo if page in config.demo_pages else every for page in page_names()}
    wanted = [(page, first + number) for page, count in counts.items() for number in range(count)]
    record_episodes(folder, wanted, settings.max_actions)


def load_or_make_tokenizer(config: BaseConfig, folder: Path) -> Tokenizer:
    """Loads the tokenizer of the run, which the first call trains."""
    path = folder / "tokenizer.json"
    if not path.exists():
        texts = words.tokenizer_texts(config.seed, config.tokenizer_words)
        tokenizer = build_tokenizer(texts, config.vocab_size)
        save_tokenizer(tokenizer, folder, config.model.max_position_embeddings)
    return Tokenizer.from_file(str(path))


def score_all(config: BaseConfig, model: Qwen3VL, make: BatchMaker, held_out: BatchMaker) -> dict[str, dict]:
    """Scores by size of generated pages, and on recorded pages of held-out seeds."""
    scores = {}
    for low, high in _PAGE_SIZES:
        settings = Sizes(low=low, high=high, length=config.scores.length, rows=config.scores.rows)
        rng = random.Random(f"{config.scores.seed}/{low}")
        batches = (make.make(rng, "state", settings) for _ in range(config.scores.batches))
        scores[f"generated, {low} to {high} elements"] = score(model, batches, KINDS)
    rng = random.Random(f"{config.scores.seed}/recorded")
    batches = (held_out.recorded(rng) for _ in range(config.scores.batches))
    scores["recorded, held-out seeds"] = score(model, batches, KINDS)
    return scores


def main(config: BaseConfig, workdir: Path) -> None:
    if (workdir / "report.json").exists():
        logging.info("%s is finished", workdir)
        return
    tokenizer = load_or_make_tokenizer(config, workdir / "tokenizer")
    model = fresh_model(config.model, tokenizer, config.seed)
    processor = Processor(tokenizer, model.config, config.recorded.max_pixels)
    makers = {}
    for name in ("train", "held_out"):
        record(config, workdir / "recorded" / name, name == "held_out")
        unit = model.config.vision.patch_size * model.config.vision.spatial_merge_size
        recorded = RecordedPages(workdir / "recorded" / name, config.recorded.max_pixels, unit)
        makers[name] = BatchMaker(config, processor, recorded)

    def export(current: Qwen3VL, position: RunPosition) -> None:
        export_model(current, workdir / "tokenizer", workdir / "export")
        logging.info("step %d exported to %s", position.step, workdir / "export")

    _, position = train(config, model, makers["train"], KINDS, workdir, export)
    scores = score_all(config, load_model(workdir / "export"), makers["train"], makers["held_out"])
    report = {
        "stage": "make_base",
        "steps": position.step,
        "seconds": round(position.seconds),
        "scores": scores,
    }
    num_params = sum(value.size for value in split_params(model)[1].values())
    metrics = read_metrics(workdir)
    write_card(workdir / "export", report, metrics, config, num_params)
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    cli.run(main, "configs/studies/tiny_base.py:tiny", BaseConfig)
