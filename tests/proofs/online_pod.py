"""How fast an online run is on two cores, by kind of process, and a model of the same on a pod."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Self

import psutil

from rmsweb_jax.aot.abstract import CHIPS
from rmsweb_jax.qwen3_vl.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work, causal_pairs, forward_flops
from tests.fleet.processes import kind_of

_POLL_S = 2.0
# The pod: chips, browsers, and what a turn is there.
CHIP, CHIPS_OF_POD, BROWSERS = "v6e", 16, 256
PROMPT, RESPONSE, TURNS = 6_000, 300, 15
GROUPS, EPISODES, ACCEPTED = 64, 8, 1 / 2
# Seconds that a browser takes for a turn: an application on loopback, and a site that has to be loaded.
PAGES = {"applications": 0.15, "live sites": 4.0}


class CpuSeconds(contextlib.AbstractContextManager["CpuSeconds"]):
    """Adds up the processor time of all that this process starts, by kind, while the block runs."""

    def __init__(self) -> None:
        self._last, self._kinds = dict[tuple[int, float], float](), dict[tuple[int, float], str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    key, times = (process.pid, process.create_time()), process.cpu_times()
                    self._kinds.setdefault(key, _kind(process))
                    self._last[key] = times.user + times.system

    def seconds(self) -> dict[str, float]:
        found = defaultdict[str, float](float)
        for key, spent in self._last.items():
            found[self._kinds[key]] += spent
        return {kind: round(found[kind], 1) for kind in sorted(found)}


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    for part, kind in (("rmsweb_jax.serve", "policy server"), ("train_rl", "training")):
        if part in line:
            return kind
    if process.name().startswith("chrom"):
        return "browsers"
    return {"proxy": "guard"}.get(kind_of(process), "workers")


def pod(training: tuple[float, float], decoding: tuple[float, float]) -> Iterator[dict[str, Any]]:
    """Predicts an iteration of the 8B policy on a pod whose chips serve and train by turns.

    Args:
      training, decoding: the least and the largest share of a chip's limits that public runs reach.
    """
    model, chip = SIZES["8b"], CHIPS[CHIP]
    flops = chip.peak_tflops * 1e12 * CHIPS_OF_POD
    turns = GROUPS * EPISODES * TURNS
    prompt = Work(PROMPT, causal_pairs(PROMPT), 0)
    whole = Work(PROMPT + RESPONSE, causal_pairs(PROMPT + RESPONSE), RESPONSE)
    # Weights are read once for all lanes, the cache of each lane by itself.
    read = 2 * _weights(model) + BROWSERS * (PROMPT + RESPONSE / 2) * _cache_bytes(model)
    step = read / (chip.hbm_gb_per_s * 1e9 * CHIPS_OF_POD)
    for pages, seconds in PAGES.items():
        for name, train, decode in zip(("fast", "slow"), reversed(training), reversed(decoding), strict=True):
            prefill = forward_flops(model, prompt) / flops / train
            reply = RESPONSE * step / decode
            # One turn of all browsers. Pages and chips would overlap where browsers are out of step.
            turn = prefill * BROWSERS + reply + seconds
            playing = turns / BROWSERS * turn
            # A gradient costs three forward passes and recomputes one; old policy and reference are two more.
            update = ACCEPTED * turns * 6 * forward_flops(model, whole) / flops / train
            yield {
                "pages": pages,
                "chips": name,
                "turn_s": turn,
                "playing_s": playing,
                "update_s": update,
                "waits": playing / (playing + update),
                "episodes_per_hour": GROUPS * EPISODES * 3600 / (playing + update),
            }


def _weights(model: Qwen3VLConfig) -> float:
    """Number of weights that a token is multiplied by."""
    return forward_flops(model, Work(1, 0, 1)) / 2


def _cache_bytes(model: Qwen3VLConfig) -> int:
    """Keys and values of a token, in bfloat16."""
    return 2 * 2 * model.text.num_hidden_layers * model.text.kv_dim
