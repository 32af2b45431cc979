"""Settings of the server. This module imports no jax, so that a launcher without jax can use it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rmsweb_jax.settings import Settings, internal, required


class ServingMesh(Settings):
    """Devices of the server.

    Attributes:
      tensor: devices that split the model's matrices; -1: all devices; 1: the first one only.
    """

    tensor: int = -1


class ServeSettings(Settings):
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
      max_waiting: requests that may wait.
      adapters, adapter_rank: LoRA adapters that can be loaded at once, and their largest rank. With one or
        more, vLLM's routes load and unload them, which read PEFT folders of this machine.
      turns: `last` keeps a request's system messages and its last user message, or the results of its last
        tool calls: our prompts hold their own history, which a growing chat would hold again.
      replies: `agent` constrains replies to the agent's format if a request names none; `free` does not.
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
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    mesh: ServingMesh = ServingMesh()
    max_pixels: int = 262_144
    lanes: int = Field(default=0, ge=0)
    samples: int = Field(default=8, ge=1)
    prompt_tokens: int = Field(default=12_288, ge=1)
    # The limit of a response in RL (RMSWeb, appendix "Salvage-DS RL configuration").
    max_new_tokens: int = Field(default=2048, ge=1)
    max_images: int = Field(default=1, ge=0)
    chunks: tuple[int, ...] = ()
    max_waiting: int = internal(1024, ge=1)
    adapters: int = Field(default=0, ge=0)
    adapter_rank: int = Field(default=64, ge=1)
    turns: Literal["all", "last"] = "all"
    replies: Literal["free", "agent"] = "free"
    served_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0)
    api_key_env: str = ""
    api_key: str = internal("")
    max_body_mb: float = internal(32.0, gt=0)
    read_seconds: float = internal(10.0, gt=0)
    drain_seconds: float = Field(default=300.0, ge=0)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the model for clients, the main one first."""
        return self.served_names or (self.model,)
