"""Settings of the server. This module imports no jax, so that a launcher without jax can use it."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import internal, required


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Compiled shapes of the engine and limits on its memory.

    Attributes:
      slots: numbers of replies that are decoded together, ascending. A pool starts with the smallest number
        that fits the queue and grows when more or longer requests arrive.
      prompt_widths: prompts are padded to one of these lengths, ascending; longer prompts are refused.
      max_new_tokens: limit for a reply; requests may only lower it.
      max_images: limit for a request. Every prompt reserves space for this many.
      warm_widths: number of prompt widths, shortest first, that are compiled before the server is ready.
      prefill_widths: more lengths, ascending, to which prompts are padded during prefill only. Each costs
        one more program and saves time on prompts shorter than the pool's width.
      max_pools: pools whose caches a worker holds at once. Requests with another adapter, format or number
        of replies need a pool of their own.
      workers: decoding threads, each with its own pools. Much of a step on a CPU runs on one core, so one
        worker per core is faster under load; accelerators need one.
      chunk: tokens of each reply that are decoded between checks for new and cancelled requests.
      max_waiting: requests that may wait for a slot.
    """

    slots: tuple[int, ...]
    prompt_widths: tuple[int, ...]
    max_new_tokens: int
    max_images: int
    warm_widths: int
    max_pools: int = 2
    workers: int = 1
    prefill_widths: tuple[int, ...] = ()
    chunk: int = 16
    max_waiting: int = 1024

    def __post_init__(self) -> None:
        for name in ("slots", "prompt_widths", "prefill_widths"):
            values = getattr(self, name)
            empty = not values and name != "prefill_widths"
            if empty or any(low >= high for low, high in itertools.pairwise((0, *values))):
                raise UserError(f"config.{name} is {values}: give positive numbers in ascending order")
        if self.prefill_widths and self.prefill_widths[-1] > self.prompt_widths[-1]:
            raise UserError(
                f"config.prefill_widths has {self.prefill_widths[-1]}: no prompt is longer than the last of "
                f"config.prompt_widths, {self.prompt_widths[-1]}"
            )
        for name in ("max_pools", "workers", "chunk", "max_waiting", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppConfig:
    """Settings of the HTTP interface.

    Attributes:
      model: folder in Hugging Face layout with adapters merged, or "tiny_base"; also its name for clients.
        Other names than this and those of loaded adapters get 404.
      api_key: bearer token required for /v1; empty disables authentication.
      allow_adapters: enables the adapter routes, compatible with vLLM's runtime LoRA updating. Each adapter
        (a PEFT folder that this machine can read) takes as much memory as the model.
      max_body_mb: largest request body in MiB; larger ones get 413.
    """

    model: str = required("--config.model=DIR (a model folder) or tiny_base")
    api_key: str = internal("")
    allow_adapters: bool = False
    max_body_mb: float = 32.0


@dataclasses.dataclass(frozen=True)
class ServingMesh:
    """Devices of the server.

    Attributes:
      tensor: devices that split the model's matrices; -1: all devices; 1: the first one only.
    """

    tensor: int = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings(AppConfig, EngineConfig):
    """Settings of `python -m rmsweb_jax.serve`; the defaults fit the paper's prompts and replies.

    Attributes:
      dtype: dtype of weights and computation.
      max_pixels: limit for resized screenshots, as in training.
      host: address to listen on; addresses that other machines can reach need a key.
      port: port to listen on; 0: any free one, see `endpoint.json` in the workdir.
      api_key_env: environment variable with the key that clients must send; empty: none.
      replies: `agent` constrains replies to the agent's format if a request names none; `free` does not.
      max_reply_chars, max_reply_actions: limits of that format: characters of a text, and actions.
      drain_seconds: time limit for running requests after SIGTERM.
    """

    dtype: str = "bfloat16"
    mesh: ServingMesh = ServingMesh()
    max_pixels: int = 262_144
    host: str = "127.0.0.1"
    port: int = 0
    api_key_env: str = ""
    slots: tuple[int, ...] = (1, 4, 16)
    # Multiples of 128, as the fused kernels need; the last one holds the 12,000 tokens of training.
    prompt_widths: tuple[int, ...] = (4096, 8192, 12_288)
    prefill_widths: tuple[int, ...] = (2048, 6144, 10_240)
    # The limit of a response in RL (RMSWeb, appendix "Salvage-DS RL configuration").
    max_new_tokens: int = 2048
    max_images: int = 1
    warm_widths: int = 3
    replies: Literal["free", "agent"] = "free"
    max_reply_chars: int = 4000
    max_reply_actions: int = 10
    drain_seconds: float = 300.0
