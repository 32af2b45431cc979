"""How fast the server is beside `transformers serve`, and whether replies follow their schema.

python -m tests.serve.proof_serving --output=docs/results/serving.md
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import numpy as np
import openai
from flax import nnx

from rmsweb_jax.actions.json_schema import bounded_reply_schema
from rmsweb_jax.actions.parse import parse_reply
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.serve.engine import Engine, EngineConfig
from rmsweb_jax.serve.protocol import ChatMessage, ChatRequest
from tests.serve.servers import Server, install_transformers_serving, running
from tests.serve.speed_sides import make_servers

CLIENTS = (1, 8, 32)
# As long as the replies that the demo's server gives at most.
WORDS, NEW_TOKENS = 150, 128
# Of ours, beside what configs/serve.py:demo has. Prompts of the benchmark fit the second width.
SETTINGS = {
    "prompt_widths": (256, 320, 384, 512),
    "warm_widths": 3,
    "max_new_tokens": NEW_TOKENS,
    "max_images": 0,
    "slots": (1, 4, 16),
    "workers": 2,
}
ROUNDS, LEAST_RATIO = 2, 4.0
REPLIES, CHOICES = 1000, 8


@dataclasses.dataclass(frozen=True)
class Load:
    """What so many clients got, each sending its next request when the last one was answered.

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


def load(url: str, model: str, clients: int, count: int) -> Load:
    """So many clients, so many requests in all; greedy, so that replies can be compared."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)

    def ask(number: int) -> tuple[float, int, str]:
        start = time.perf_counter()
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": prompt(number)}],
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


def measure(server: Server, folder: Path) -> dict[int, Load]:
    """A server's figures by number of clients, after some requests that are not counted."""
    with running(server, folder / "log") as url:
        load(url, server.model, 8, 8)
        found = {clients: load(url, server.model, clients, max(4, 2 * clients)) for clients in CLIENTS}
    speeds = ", ".join(f"{clients}: {one.speed:.0f}" for clients, one in found.items())
    print(f"{server.name}, tokens/s by clients: {speeds}", flush=True)
    return found


def schema_replies() -> tuple[int, int]:
    """Replies of an untrained model that are held to the agent's schema: those that parse, and all."""
    folder = Path(resolve_model("tiny_base"))
    processor = Processor.from_pretrained(folder, 16_384)
    model = Qwen3VL(processor.config, rngs=nnx.Rngs(0))
    shapes = EngineConfig((64,), (64,), max_new_tokens=1024, max_images=0, warm_widths=0)
    schema = bounded_reply_schema(max_chars=60, max_actions=3)
    engine = Engine(model, processor, shapes, reply_schema=schema)
    engine.start()
    tickets = [
        engine.submit(
            engine.prepare(
                ChatRequest(messages=[ChatMessage(role="user", content=f"go {seed}")], n=CHOICES, seed=seed)
            )
        )
        for seed in range(REPLIES // CHOICES)
    ]
    replies = [reply.text for ticket in tickets for reply in ticket.future.result()]
    engine.close()
    return sum(parses(reply) for reply in replies), len(replies)


def parses(text: str) -> bool:
    try:
        parse_reply(text)
    except ValueError:
        return False
    return True


INTRODUCTION = """\
# Serving

    make proof-serving

runs `{command}`, which writes this page. Python {python}, jax {jax},
transformers {transformers}, torch {torch}, {cores} cores.

## Beside `transformers serve`

The same random weights in float32 (a text model of 8 layers, hidden 512, {vocabulary:,} tokens; ours serves
them as the language model of a Qwen3-VL folder, transformers as a Qwen3 folder, since its server makes a
processor for Qwen3-VL, which needs torchvision), prompts of about {prompt_tokens} tokens, {new} new tokens,
greedy. So many clients of the `openai` package send their next request when the last one is answered, two
each and at least four in all. The three servers run one after the other, {rounds} times; tokens/s are the
lowest, the **mean** and the highest of the rounds, latencies those of all requests of all rounds. Ours is
`configs/serve.py:demo` with {workers} workers of slots {slots}, and prompts padded to
{widths} tokens.

| server | clients | tokens/s | p50 s | p95 s | times transformers as it comes |
|---|---|---|---|---|---|
"""


def table(measured: dict[str, list[dict[int, Load]]]) -> tuple[list[str], dict[str, float]]:
    """Rows, and how many times the speed of each peer ours is at most clients."""

    def speeds(name: str, clients: int) -> list[float]:
        return [one[clients].speed for one in measured[name]]

    rows = []
    peer = next(name for name in measured if name != "ours")
    for name, rounds in measured.items():
        for clients in CLIENTS:
            seconds = [second for one in rounds for second in one[clients].seconds]
            p50, p95 = np.quantile(seconds, [0.5, 0.95])
            own = speeds(name, clients)
            middle = statistics.mean(own)
            ratio = middle / statistics.mean(speeds(peer, clients))
            rows.append(
                f"| {name} | {clients} | {min(own):.0f} / **{middle:.0f}** / {max(own):.0f} "
                f"| {p50:.2f} | {p95:.2f} | {ratio:.1f} |"
            )
    most = {name: statistics.mean(speeds(name, max(CLIENTS))) for name in measured}
    return rows, {name: most["ours"] / speed for name, speed in most.items() if name != "ours"}


def same_replies(measured: dict[str, list[dict[int, Load]]]) -> tuple[int, int]:
    """Greedy replies of ours that are transformers' to the letter, and all that were compared."""
    ours, peer, *_ = measured.values()
    pairs = [
        (text, peer[0][clients].replies[number])
        for clients in CLIENTS
        for number, text in ours[0][clients].replies.items()
    ]
    return sum(one == other for one, other in pairs), len(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output: Path = parser.parse_args().output
    install_transformers_serving()
    measured: dict[str, list[dict[int, Load]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-serving-") as name:
        folder = Path(name)
        servers = make_servers(folder, **SETTINGS)
        for _ in range(ROUNDS):
            for server in servers:
                measured.setdefault(server.name, []).append(measure(server, folder))
    rows, ratios = table(measured)
    plain, *_ = ratios.values()
    times = " and ".join(f"{ratio:.1f} times as fast as `{name}`" for name, ratio in ratios.items())
    same, compared = same_replies(measured)
    parsed, replies = schema_replies()
    packaged = Processor.from_pretrained(resolve_model("tiny_base"), 16_384)
    versions = {name: metadata.version(name) for name in ("jax", "transformers", "torch")}
    text = INTRODUCTION.format(
        command=f"python -m tests.serve.proof_serving --output={output}",
        python=sys.version.split()[0],
        cores=len(os.sched_getaffinity(0)),
        vocabulary=packaged.config.text.vocab_size,
        prompt_tokens=len(packaged.encode_text(prompt(0))),
        new=NEW_TOKENS,
        rounds=ROUNDS,
        slots=SETTINGS["slots"],
        workers=SETTINGS["workers"],
        widths=SETTINGS["prompt_widths"],
        **versions,
    )
    text += "\n".join(rows)
    text += f"""

- At {max(CLIENTS)} clients ours is {times}. The goal is {LEAST_RATIO:.0f} times the first,
  which answers one request after the other.
- {same} of {compared} greedy replies are transformers' to the letter.

## Replies that follow the agent's schema

An untrained model of the packaged one's shape, `replies=agent`, {CHOICES} replies a request:
{parsed} of {replies} are accepted by `parse_reply`.
"""
    write_atomic(output, text.encode())
    print(text)
    if plain < LEAST_RATIO or parsed < replies:
        raise SystemExit("error: not every line holds")


if __name__ == "__main__":
    main()
