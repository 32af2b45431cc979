"""Tokens a second and latency against vLLM and `transformers serve`, and schemas. Half an hour, idle machine.

What the other servers need is installed into build/, not into the environment.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
from flax import nnx
from PIL import Image

from rmsweb_jax.actions.json_schema import bounded_reply_schema
from rmsweb_jax.actions.parse import parse_reply
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.server import serving_engine
from tests.proofs.result import Claim, Figures, Proof, main, table
from tests.serve.conftest import serving
from tests.serve.servers import VLLM, Server, install_transformers_serving, install_vllm, running
from tests.serve.speed_sides import make_servers

CLIENTS = (1, 8, 32)
# As long as the replies that the demo's server gives at most.
WORDS, NEW_TOKENS = 150, 128
# Changes to configs/serve.py:demo.
SETTINGS = {"lanes": 32, "samples": 1, "prompt_tokens": 512, "max_new_tokens": NEW_TOKENS, "max_images": 1}
ROUNDS, LEAST_RATIO = 2, 4.0
# Of a screenshot, which is as large as the demo's policy sees it.
PIXELS = 128
REPLIES, CHOICES = 1000, 8


@dataclasses.dataclass(frozen=True)
class Load:
    """Measurement with `clients` that each send the next request when the last one was answered.

    Attributes:
      seconds: of each request.
      wall: from the first request to the last answer.
      tokens: of all replies.
      replies: text by the number of its prompt.
    """

    seconds: list[float]
    wall: float
    tokens: int
    replies: dict[int, str]

    @property
    def speed(self) -> float:
        return self.tokens / self.wall


def prompt(number: int) -> str:
    """Words of the model's own vocabulary, another text for each number."""
    choose = random.Random(number)
    listed = (
        "open",
        "the",
        "page",
        "and",
        "click",
        "button",
        "form",
        "search",
        "list",
        "name",
        "item",
        "next",
    )
    return " ".join(choose.choice(listed) for _ in range(WORDS))


def picture(number: int) -> dict[str, Any]:
    """Part of a message with an image of its own for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def load(url: str, model: str, clients: int, count: int, images: bool) -> Load:
    """So many clients, so many requests in all; greedy, so that replies can be compared."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)

    def ask(number: int) -> tuple[float, int, str]:
        content: Any = prompt(number)
        if images:
            content = [{"type": "text", "text": content}, picture(number)]
        start = time.perf_counter()
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": content}],
            max_tokens=NEW_TOKENS,
            temperature=0,
        )
        assert answer.usage is not None
        text = answer.choices[0].message.content or ""
        return time.perf_counter() - start, answer.usage.completion_tokens, text

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        asked = list(pool.map(ask, range(count)))
    wall = time.perf_counter() - start
    replies = {number: text for number, (_, _, text) in enumerate(asked)}
    return Load([one for one, _, _ in asked], wall, sum(tokens for _, tokens, _ in asked), replies)


def measure_server(server: Server, folder: Path) -> dict[tuple[int, bool], Load]:
    """A server's figures by number of clients, with and without images, after some requests not counted."""
    found = {}
    with running(server, folder / "log") as url:
        for images in (False, True) if server.reads_images else (False,):
            load(url, server.model, 8, 8, images)
            for clients in CLIENTS:
                one = load(url, server.model, clients, max(4, 2 * clients), images)
                found[clients, images] = one
                shown = " with images" if images else ""
                print(f"{server.name}, {clients} clients{shown}: {one.speed:.0f} tokens/s", flush=True)
    return found


def schema_replies() -> tuple[int, int]:
    """Replies of an untrained model that are held to the agent's schema: those that parse, and all."""
    folder = Path(resolve_model("tiny_base"))
    processor = Processor.from_pretrained(folder, 16_384)
    model = Qwen3VL(processor.config, rngs=nnx.Rngs(0))
    config = ServeSettings(model="tiny", lanes=64, prompt_tokens=64, max_new_tokens=1024, max_images=0)
    schema = bounded_reply_schema(max_chars=60, max_actions=3)
    engine = ServingEngine(serving_engine(model, processor, config), model, config.max_waiting)
    engine.start()

    def ask(seed: int) -> list[str]:
        body = {"messages": [{"role": "user", "content": f"go {seed}"}], "n": CHOICES, "seed": seed}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=3000).raise_for_status()
        return [choice["message"]["content"] for choice in answer.json()["choices"]]

    with serving(engine, processor, schema, max_new_tokens=1024) as url, ThreadPoolExecutor(16) as pool:
        replies = [text for texts in pool.map(ask, range(REPLIES // CHOICES)) for text in texts]
    engine.close()
    return sum(parses(reply) for reply in replies), len(replies)


def parses(text: str) -> bool:
    try:
        parse_reply(text)
    except ValueError:
        return False
    return True


def same_replies(measured: dict[str, list[dict[tuple[int, bool], Load]]], peer: str) -> str:
    """Greedy replies of ours that are a peer's to the letter, of all that were compared."""
    ours, theirs = measured["ours"][0], measured[peer][0]
    pairs = [
        (text, theirs[case].replies[number]) for case in theirs for number, text in ours[case].replies.items()
    ]
    return f"{sum(one == other for one, other in pairs)} of {len(pairs)}"


def measure() -> Figures:
    install_transformers_serving()
    install_vllm()
    measured: dict[str, list[dict[tuple[int, bool], Load]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-serving-") as name:
        folder = Path(name)
        servers = make_servers(folder, **SETTINGS)
        for _ in range(ROUNDS):
            for server in servers:
                measured.setdefault(server.name, []).append(measure_server(server, folder))
    packaged = Processor.from_pretrained(resolve_model("tiny_base"), 16_384)
    parsed, replies = schema_replies()
    return {
        "vocabulary": packaged.config.text.vocab_size,
        "prompt_tokens": len(packaged.encode_text(prompt(0))),
        "new_tokens": NEW_TOKENS,
        "rounds": ROUNDS,
        "lanes": SETTINGS["lanes"],
        "pixels": PIXELS,
        "vllm": VLLM,
        "loads": [
            _load_row(name, case, [one[case] for one in rounds])
            for name, rounds in measured.items()
            for case in rounds[0]
        ],
        "same_replies": {name: same_replies(measured, name) for name in measured if name != "ours"},
        "schema_choices": CHOICES,
        "schema_replies": replies,
        "schema_parsed": parsed,
    }


def _load_row(name: str, case: tuple[int, bool], rounds: list[Load]) -> dict[str, Any]:
    speeds = [one.speed for one in rounds]
    p50, p95 = np.quantile([second for one in rounds for second in one.seconds], [0.5, 0.95])
    return {
        "server": name,
        "clients": case[0],
        "images": case[1],
        "tokens_per_second": [round(speed) for speed in (min(speeds), statistics.mean(speeds), max(speeds))],
        "p50_seconds": round(float(p50), 2),
        "p95_seconds": round(float(p95), 2),
    }


def _ratios(figures: Figures, images: bool) -> dict[str, float]:
    """Speed of ours relative to each other server, with the most clients."""
    speeds = {
        row["server"]: row["tokens_per_second"][1]
        for row in figures["loads"]
        if row["clients"] == max(CLIENTS) and row["images"] == images
    }
    return {name: speeds["ours"] / speed for name, speed in speeds.items() if name != "ours"}


def claims(figures: Figures) -> list[Claim]:
    text, images = _ratios(figures, False), _ratios(figures, True)
    parsed, replies = figures["schema_parsed"], figures["schema_replies"]
    same = "; ".join(f"{name}: {count}" for name, count in figures["same_replies"].items())
    plain = text["transformers serve"]
    return [
        Claim(
            f"with images at {max(CLIENTS)} clients, tokens a second relative to vLLM on this CPU",
            f"{images['vLLM']:.1f} times; without images {text['vLLM']:.1f} times",
            None,
        ),
        Claim(
            f"at {max(CLIENTS)} clients, at least {LEAST_RATIO:g} times the tokens a second of "
            "`transformers serve`, which answers one request at a time",
            f"{plain:.1f} times; {text['transformers serve --continuous-batching']:.1f} times with its "
            "`--continuous-batching`",
            plain >= LEAST_RATIO,
        ),
        Claim("greedy replies equal those of the others", same, None),
        Claim(
            "an untrained model's replies follow the agent's schema",
            f"{parsed} of {replies}",
            parsed == replies,
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (
            *(row["server"], "yes" if row["images"] else "no", row["clients"]),
            " / ".join(map(str, row["tokens_per_second"])),
            *(f"{row[name]:.2f}" for name in ("p50_seconds", "p95_seconds")),
        )
        for row in figures["loads"]
    ]
    head = ("server", "images", "clients", "tokens/s: lowest / mean / highest", "p50 s", "p95 s")
    return table(head, rows)


ABOUT = """\
The servers have the same random weights in float32 on the same two cores: a Qwen3-VL of 8 layers, hidden
512, {vocabulary:,} tokens; prompts of about {prompt_tokens} tokens, {new_tokens} new tokens, greedy. Each
client of the `openai` package sends its next request when the last one is answered, two each and at least
four in all. The servers run one after the other, {rounds} times; latencies are those of all requests of all
rounds. Ours is `configs/serve.py:demo` with {lanes} lanes. vLLM is {vllm} with as many sequences and one
thread of torch, with which it is fastest here.

With images, each prompt has a picture of its own of {pixels} x {pixels} pixels. transformers serves the
language model alone, since its server makes a processor for Qwen3-VL that needs torchvision, and
`transformers serve` without `--continuous-batching` answers one request after the other: neither is a
measure of what a GPU server does. Prompts are all different, so that vLLM's cache of prefixes has nothing to
share; where agents send thousands of equal tokens it would.

Schemas are tried with an untrained model of the packaged one's shape, `replies=agent`, {schema_choices}
replies a request, each read by `parse_reply`.
"""
PROOF = Proof(
    "Serving", ABOUT, measure, claims, tables, packages=("jax", "transformers", "torch", "llguidance")
)

if __name__ == "__main__":
    main(PROOF)
