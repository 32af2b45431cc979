"""The policy behind a chat-completions API on loopback.

    python -m experiments.serve --config=configs/serve.py:demo --config.model=runs/demo/sft/export \
        --config.port=8000 --workdir=/tmp/serve

`smoke` is `demo`; `8b` and `32b` hold what the paper's models read and write.
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("demo", "smoke", "8b", "32b")


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    return _demo() if variant in ("demo", "smoke") else _paper()


def _demo() -> ConfigDict:
    config = ConfigDict()
    # A folder in Hugging Face layout, or "tiny_base". Adapters must be merged.
    config.model = "tiny_base"
    config.dtype = "float32"
    # Devices that its matrices are split over; -1: all there are; 1: the first alone.
    config.mesh = ConfigDict({"tensor": 1})
    # As in training: the one resize of screenshots.
    config.max_pixels = 16_384
    # Port 0: any free one; `endpoint.json` in the workdir tells. Another host than this machine's own wants a
    # key: the environment variable that holds what clients must send.
    config.host = "127.0.0.1"
    config.port = 0
    config.api_key_env = ""
    # What is compiled: replies drawn together, prompt lengths, longest reply.
    config.slots = (1, 4)
    config.prompt_widths = (256, 512, 1024, 2048)
    # Prompts are padded to the narrowest of these or of the above while they are prefilled.
    config.prefill_widths = ()
    config.max_new_tokens = 128
    config.max_images = 1
    # Caches held at once: requests of other adapters, formats or numbers of replies need their own.
    config.max_pools = 2
    # Threads that decode at the same time, each in pools of its own: on CPUs as many as cores where as many
    # requests come. Each has so many slots and pools.
    config.workers = 1
    # Tokens of each reply between looks at who has come and gone; requests that may wait for a slot.
    config.chunk = 16
    config.max_waiting = 1024
    # agent: replies are held to the agent's format, token by token, where a request names no format of its
    # own; free: they are not. What a reply may be long under it: characters of a text, and actions.
    config.replies = "free"
    config.max_reply_chars = 4000
    config.max_reply_actions = 10
    # Whether clients may load and unload adapters (PEFT folders that this machine can read). Each takes as
    # much memory as the model.
    config.allow_adapters = False
    config.max_body_mb = 32.0
    # What requests have left to be answered after SIGTERM.
    config.drain_seconds = 300.0
    # Widths that are compiled before the server says that it is ready; MiniWoB++ needs no others.
    config.warm_widths = 2
    return config


def _paper() -> ConfigDict:
    config = _demo()
    config.update(
        {
            "model": "",
            "dtype": "bfloat16",
            "mesh": {"tensor": -1},
            "max_pixels": 262_144,
            "slots": (1, 4, 16),
            "prompt_widths": (4096, 8192, 12_288),
            "prefill_widths": (2048, 6144, 10_240),
            "max_new_tokens": 2048,
            "warm_widths": 3,
        }
    )
    return config
