"""A random tiny model folder, and the engine that serves it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rmsweb_jax.qwen.checkpoint import load_model, save_model
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.lora import LoRAParam, add_lora, save_adapters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.serve.app import make_app
from rmsweb_jax.serve.config import ServeSettings, ServingMesh
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.http import bind, make_http_server
from rmsweb_jax.serve.server import serving_engine
from rmsweb_jax.signals import StopRequest
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from tests.qwen.random_models import random_model
from tests.references import transformers
from tests.tiny import TINY

CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)
CONFIG = ServeSettings(
    model="tiny",
    mesh=ServingMesh(tensor=1),
    lanes=4,
    samples=4,
    prompt_tokens=128,
    max_new_tokens=12,
    chunks=(32, 64),
    adapters=2,
    adapter_rank=2,
)
MAX_PIXELS = 64 * 64


def random_adapters(model: Qwen3VL, scale: float) -> None:
    """Takes adapters away from zero, where they do nothing."""
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(jnp.asarray(scale * rng.standard_normal(variable.shape), jnp.float32))


def model_config(vocabulary: dict[str, int]) -> Qwen3VLConfig:
    """The tiny model with real patches, since the processor makes those; any depth serves alike."""
    return dataclasses.replace(
        TINY,
        # Heads for two devices.
        text=dataclasses.replace(
            TINY.text, vocab_size=len(vocabulary), num_hidden_layers=1, num_key_value_heads=2
        ),
        vision=dataclasses.replace(TINY.vision, patch_size=16),
        image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"],
        vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"],
    )


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with random weights and one token a byte."""
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.save_pretrained(folder)
    config = model_config(tokenizer.get_vocab())
    save_model(random_model(config, embedding_std=0.3), folder)
    return folder


@pytest.fixture(scope="session")
def adapter_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapters that change what the model says."""
    config = LoRAConfig(rank=2, alpha=4.0, targets="attention")
    model = load_model(model_folder)
    add_lora(model, config, nnx.Rngs(1))
    random_adapters(model, scale=1.0)
    folder = tmp_path_factory.mktemp("adapters")
    save_adapters(model, config, folder, "tiny")
    return folder


@pytest.fixture(scope="session")
def processor(model_folder: Path) -> Processor:
    return Processor.from_pretrained(model_folder, MAX_PIXELS)


@pytest.fixture(scope="session")
def make(model_folder: Path, processor: Processor) -> Callable[..., ServingEngine]:
    """Makes an engine that is not started, so that requests pile up; changes are to `CONFIG`."""

    def make(**changes: Any) -> ServingEngine:
        config = CONFIG.model_copy(update=changes)
        model = load_model(model_folder, mesh=None if config.mesh.tensor == 1 else make_mesh(tensor=-1))
        return ServingEngine(serving_engine(model, processor, config), model, config.max_waiting)

    return make


@pytest.fixture(scope="session")
def engine(make: Callable[..., ServingEngine]) -> Iterator[ServingEngine]:
    engine = make()
    engine.engine.warm_up()
    engine.start()
    yield engine
    engine.close()


@contextlib.contextmanager
def serving(engine: ServingEngine, processor: Processor, schema: Any = None, **changes: Any) -> Iterator[str]:
    """The address of an engine while the block runs; changes are to `CONFIG`."""
    sock = bind(0)
    sock.listen()
    settings = CONFIG.model_copy(update=changes)
    app = make_app(engine, processor, settings, schema)
    server = make_http_server(app, settings.read_seconds, settings.drain_seconds, engine.close, StopRequest())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def url(engine: ServingEngine, processor: Processor) -> Iterator[str]:
    with serving(engine, processor) as url:
        yield url


@pytest.fixture(scope="session")
def roomy_url(make: Callable[..., ServingEngine], processor: Processor) -> Iterator[str]:
    """A server with room for tools in prompts of a token a byte."""
    engine = make(prompt_tokens=2048, max_new_tokens=128)
    engine.start()
    # A request that a client has left must not hold up the end of all tests.
    with serving(engine, processor, max_new_tokens=128, drain_seconds=10.0) as url:
        yield url
    engine.close()
