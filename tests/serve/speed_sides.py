"""Servers of the same weights, ours, vLLM's and transformers': what `make proof-serving` times."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from flax import nnx
from safetensors.numpy import load_file, save_file

from rmsweb_jax.export.folder import write_processor
from rmsweb_jax.qwen.checkpoint import resolve_model, save_model
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.model import Qwen3VL
from tests.serve.servers import Server, our_server, transformers_server, vllm_server

MAX_PIXELS = 16_384
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def write_models(root: Path) -> tuple[Path, Path]:
    """A random Qwen3-VL folder, and its language model alone as a Qwen3 folder.

    `transformers serve` makes a processor for every model of pictures, which needs torchvision; prompts here
    are text, which both folders compute alike.
    """
    whole, text = root / "qwen3_vl", root / "qwen3"
    packaged = Path(resolve_model("tiny_base"))
    small = Qwen3VLConfig.from_hf(packaged / "config.json")
    config = dataclasses.replace(
        small,
        text=dataclasses.replace(
            small.text,
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=64,
            mrope_section=(12, 10, 10),
        ),
        vision=dataclasses.replace(small.vision, out_hidden_size=512),
    )
    for folder in (whole, text):
        folder.mkdir(parents=True)
        for name in _TOKENIZER:
            shutil.copy(packaged / name, folder / name)
    save_model(Qwen3VL(config, rngs=nnx.Rngs(0)), whole)
    write_processor(packaged, whole, MAX_PIXELS)
    weights = load_file(whole / "model.safetensors")
    kept = {
        name.replace("model.language_model.", "model."): value
        for name, value in weights.items()
        if not name.startswith("model.visual.")
    }
    save_file(kept, text / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((whole / "config.json").read_text())["text_config"]
    settings |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rope_scaling": None}
    ends = json.loads((text / "tokenizer.json").read_text())["added_tokens"]
    settings["eos_token_id"] = next(token["id"] for token in ends if token["content"] == "<|im_end|>")
    (text / "config.json").write_text(json.dumps(settings))
    return whole, text


def make_servers(root: Path, **settings: Any) -> list[Server]:
    """Ours, vLLM, transformers with its defaults, and with its own continuous batching.

    Args:
      settings: of ours.
    """
    whole, text = write_models(root)
    return [
        our_server("ours", whole, root / "ours", **settings),
        vllm_server("vLLM", whole, "policy", f"--max-num-seqs={settings['lanes']}"),
        transformers_server("transformers serve", text),
        transformers_server("transformers serve --continuous-batching", text, "--continuous-batching"),
    ]
