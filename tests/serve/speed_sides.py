"""Servers of the same weights, ours and transformers', as processes: what `proof_serving` times."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from flax import nnx
from safetensors.numpy import load_file, save_file

from rmsweb_jax.qwen3_vl.checkpoint import resolve_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.proofs import ROOT, free_port

# What `transformers serve` needs beside what is installed; not into the environment.
PACKAGES = Path("build/transformers-serving")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True)
class Side:
    """One server.

    Attributes:
      command: after Python, without the port.
      model: what requests call its model.
    """

    name: str
    command: tuple[str, ...]
    model: str


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


def make_sides(root: Path, slots: Sequence[int], width: int, new_tokens: int) -> list[Side]:
    """Ours, transformers' as it comes, and with its own continuous batching."""
    whole, text = write_models(root)
    settings = {
        "model": whole,
        "slots": tuple(slots),
        "prompt_widths": (width,),
        "max_new_tokens": new_tokens,
        "max_images": 0,
        "warm_widths": 1,
    }
    ours = ["-m", "experiments.serve", "--config=configs/serve.py:demo", f"--workdir={root / 'ours'}"]
    ours += [f"--config.{name}={value}" for name, value in settings.items()]
    theirs = ["-m", "transformers.cli.transformers", "serve", str(text), "--device=cpu", "--dtype=float32"]
    return [
        Side("ours", tuple(ours), str(whole)),
        Side("transformers serve", tuple(theirs), str(text)),
        Side("transformers serve --continuous-batching", (*theirs, "--continuous-batching"), str(text)),
    ]


@contextlib.contextmanager
def running(side: Side, log: Path) -> Iterator[str]:
    """The base URL of a server, which has compiled or loaded all that it does before it is ready.

    Raises:
      SystemExit: it ended.
    """
    port = free_port()
    flag = f"--config.port={port}" if side.name == "ours" else f"--port={port}"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES.resolve()), "HF_HUB_OFFLINE": "1"}
    if side.name == "ours":
        environment["PYTHONPATH"] = ""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *side.command, flag], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}"
        while not _is_up(url):
            if process.poll() is not None:
                raise SystemExit(f"error: {side.name} ended:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield f"{url}/v1"
    finally:
        process.terminate()
        process.wait(60)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def install_peer() -> None:
    """Puts what `transformers serve` needs into `build/`, once."""
    if not PACKAGES.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Beside what is installed: the versions must be those of the environment.
        subprocess.run(
            [*command, "-c", "constraints.txt", f"--target={PACKAGES}", "fastapi"], cwd=ROOT, check=True
        )
