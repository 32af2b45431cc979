"""Settings of the server. This module imports no jax, so that a launcher without jax can use it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import internal, required


@dataclasses.dataclass(frozen=True)
class ServingMesh:
    """Devices of the server.

    Attributes:
      tensor: devices that split the model's matrices; -1: all devices; 1: the first one only.
    """

    tensor: int = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of the server; the defaults fit the paper's prompts and replies.

    Attributes:
      model: folder in Hugging Face layout with adapters merged, or "tiny_base".
      dtype: dtype of weights and computation.
      max_pixels: limit for resized screenshots, as in training.
      lanes: replies that are decoded at once; 0 takes as many as the devices' memory holds.
      samples: replies to one prompt that are decoded at once; a request for more gets them in turn.
      prompt_tokens: limit for a prompt, rounded up to a multiple of the largest chunk.
      max_new_tokens: limit for a reply.
      max_images: limit for a request. Every prompt reserves space for this many.
      chunks: tokens of a prompt that are read between two rounds of decoding, ascending; () chooses them.
      steps: tokens of each reply that are decoded between two looks at new requests.
      max_waiting: requests that may wait.
      adapters, adapter_rank: LoRA adapters that can be loaded at once, and their largest rank.
      allow_adapters: enables the adapter routes, compatible with vLLM's runtime LoRA updating, which read
        PEFT folders of this machine.
      replies: `agent` constrains replies to the agent's format if a request names none; `free` does not.
      max_reply_chars, max_reply_actions: limits of that format: characters of a text, and actions.
      served_names: names of the model for clients, the main one first; () is `model`. Names other than these
        and those of loaded adapters get 404.
      host: address to listen on; addresses that other machines can reach need a key.
      port: port to listen on; 0: any free one, see `endpoint.json` in the workdir.
      api_key_env: environment variable with the key that clients must send; empty: none.
      api_key: that key.
      max_body_mb: largest request body in MiB; larger ones get 413.
      read_seconds: time limit for a request's headers, and for its body.
      drain_seconds: time limit for running requests after Ctrl-C or SIGTERM; then they get 503.
    """

    model: str = required("--config.model=DIR (a model folder) or tiny_base")
    dtype: str = "bfloat16"
    mesh: ServingMesh = ServingMesh()
    max_pixels: int = 262_144
    lanes: int = 0
    samples: int = 8
    prompt_tokens: int = 12_288
    # The limit of a response in RL (RMSWeb, appendix "Salvage-DS RL configuration").
    max_new_tokens: int = 2048
    max_images: int = 1
    chunks: tuple[int, ...] = ()
    steps: int = 4
    max_waiting: int = 1024
    adapters: int = 0
    adapter_rank: int = 64
    allow_adapters: bool = False
    replies: Literal["free", "agent"] = "free"
    max_reply_chars: int = 4000
    max_reply_actions: int = 10
    served_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    api_key_env: str = ""
    api_key: str = internal("")
    max_body_mb: float = 32.0
    read_seconds: float = 10.0
    drain_seconds: float = 300.0

    def __post_init__(self) -> None:
        sizes = ("samples", "prompt_tokens", "steps", "max_waiting", "max_new_tokens", "adapter_rank")
        for names, least in ((sizes, 1), (("lanes", "max_images", "adapters", "drain_seconds"), 0)):
            for name in names:
                if getattr(self, name) < least:
                    raise UserError(f"config.{name} is {getattr(self, name)}: give {least} or more")
        for name in ("read_seconds", "max_body_mb"):
            if getattr(self, name) <= 0:
                raise UserError(f"config.{name} is {getattr(self, name)}: give more than 0")
        if self.allow_adapters and not self.adapters:
            raise UserError("config.allow_adapters without slots: give config.adapters=1 or more")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the model for clients, the main one first."""
        return self.served_names or (self.model,)
