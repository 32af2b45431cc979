"""Our server next to vLLM and `transformers serve`: speed, schemas, and exports of the demo's policy.

Forty minutes after the demo, which it runs or resumes, on an idle machine. What the other servers need is
installed into build/, not into the environment.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import random
import statistics
import subprocess
import sys
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

from collection.evaluation.results import load_results
from rmsweb_jax.actions.json_schema import bounded_reply_schema
from rmsweb_jax.actions.parse import parse_reply
from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.rl.remote.protocol import Ask
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.serve.engine import ServingEngine
from rmsweb_jax.serve.server import serving_engine
from tests.proofs.page import ROOT, Check, demo_run, publish, table
from tests.serve.conftest import serving
from tests.serve.replies import CLIENTS as ASKERS
from tests.serve.replies import TIE, TWO_BEST, ask_all, compare
from tests.serve.servers import (
    VLLM,
    VLLM_ENVIRONMENT,
    Server,
    install_transformers_serving,
    install_vllm,
    our_server,
    running,
    vllm_server,
)
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
# Exports: prompts that are compared, and seeds of each page that are played.
PROMPTS, SEEDS = 64, 3
OURS, AGAIN, MERGED, PEFT = "ours, merged", "ours, merged, again", "vLLM, merged", "vLLM, PEFT"
CONTROL = "vLLM, the base alone"


# --- Speed ---


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


def measure_speed() -> dict[str, Any]:
    measured: dict[str, list[dict[tuple[int, bool], Load]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-serving-") as name:
        servers = make_servers(Path(name), **SETTINGS)
        for _ in range(ROUNDS):
            for server in servers:
                measured.setdefault(server.name, []).append(measure_server(server, Path(name)))
    packaged = Processor.from_pretrained(resolve_model("tiny_base"), 16_384)
    parsed, replies = schema_replies()
    return {
        "vocabulary": packaged.config.text.vocab_size,
        "prompt_tokens": len(packaged.encode_text(prompt(0))),
        "new_tokens": NEW_TOKENS,
        "rounds": ROUNDS,
        "lanes": SETTINGS["lanes"],
        "pixels": PIXELS,
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


def _ratios(figures: dict[str, Any], images: bool) -> dict[str, float]:
    """Speed of ours relative to each other server, with the most clients."""
    speeds = {
        row["server"]: row["tokens_per_second"][1]
        for row in figures["loads"]
        if row["clients"] == max(CLIENTS) and row["images"] == images
    }
    return {name: speeds["ours"] / speed for name, speed in speeds.items() if name != "ours"}


def speed_checks(figures: dict[str, Any]) -> list[Check]:
    text, images = _ratios(figures, False), _ratios(figures, True)
    parsed, replies = figures["schema_parsed"], figures["schema_replies"]
    same = "; ".join(f"{name}: {count}" for name, count in figures["same_replies"].items())
    plain = text["transformers serve"]
    return [
        (
            f"with images at {max(CLIENTS)} clients, tokens a second relative to vLLM on this CPU",
            f"{images['vLLM']:.1f} times; without images {text['vLLM']:.1f} times",
            None,
        ),
        (
            f"at {max(CLIENTS)} clients, at least {LEAST_RATIO:g} times the tokens a second of "
            "`transformers serve`, which answers one request at a time",
            f"{plain:.1f} times; {text['transformers serve --continuous-batching']:.1f} times with its "
            "`--continuous-batching`",
            plain >= LEAST_RATIO,
        ),
        ("greedy replies equal those of the others", same, None),
        (
            "an untrained model's replies follow the agent's schema",
            f"{parsed} of {replies}",
            parsed == replies,
        ),
    ]


# --- Exports ---


def make_asks(run: Path, model: Path) -> dict[str, Ask]:
    """Prompts from all over the mined ones, by their ids."""
    folder = run / "mine/prompts"
    source, images = RecordSource(folder, RlPrompt), ImageStore(folder)
    pixels = json.loads((run / "rl/config.json").read_bytes())["max_pixels"]
    processor = Processor.from_pretrained(model, pixels)
    sampling = Sampling(1, NEW_TOKENS, temperature=0.0)
    asks = {}
    for number in range(0, len(source), max(1, len(source) // PROMPTS))[:PROMPTS]:
        prompt = source[number]
        tokens = processor.encode_prompt(prompt.messages, images.get).tokens.tolist()
        pictures = [base64.b64encode(images.get(name)).decode() for name in image_names(prompt.messages)]
        urls = [f"data:image/png;base64,{picture}" for picture in pictures]
        asks[prompt.prompt_id] = Ask(
            "", prompt.messages, urls, tokens, sampling, None, processor.end_id, tuple(processor.banned_ids)
        )
    return asks


def export(run: Path, kind: str, folder: Path, base: Path | None = None) -> Path:
    """A release; adapters belong on `base`."""
    command = [sys.executable, "-m", "experiments.export", f"--config=configs/export.py:{kind}"]
    command += [f"--config.run={run}", *([f"--config.base_model={base}"] if base else [])]
    subprocess.run([*command, f"--workdir={folder}"], cwd=ROOT, check=True)
    return folder / "release"


def evaluation(url: str, model: str, workdir: str) -> list[str]:
    """The command after `python`."""
    settings = {
        "label": "rl",
        "model": model,
        "runs": 1,
        "seeds": SEEDS,
        "actor.kind": "chat",
        "actor.base_url": f"{url}/v1",
        # As a policy that is served by the evaluation itself: nothing holds its replies to a format.
        "actor.structured": "off",
        "actor.temperature": 0.0,
    }
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    return ["-m", "experiments.evaluate", "--config=configs/evaluate.py:demo", *flags, f"--workdir={workdir}"]


def evaluate(url: str, model: str, workdir: Path) -> dict[str, tuple[Any, ...]]:
    """Success, outcome, steps and tokens of each task."""
    subprocess.run([sys.executable, *evaluation(url, model, str(workdir))], cwd=ROOT, check=True)
    table = load_results(workdir).table
    kept = ["success", "outcome", "steps", "prompt_tokens", "response_tokens"]
    first = table[table["attempt"] == 1].set_index("task_id")[kept]
    return dict(zip(first.index, first.itertuples(index=False, name=None), strict=True))


def measure_exports(run: Path, folder: Path) -> dict[str, Any]:
    """Replies and episodes of the exported policy at our server and at vLLM."""
    merged = export(run / "rl", "merged", folder / "merged")
    base = export(run / "sft", "merged", folder / "base")
    adapters = export(run / "rl", "adapter", folder / "adapters", base)
    rank = json.loads((adapters / "adapter_config.json").read_bytes())["r"]
    lora = ("--enable-lora", f"--max-lora-rank={rank}", f"--lora-modules=rl={adapters}")
    asks = make_asks(run, merged)
    own = our_server("ours", merged, folder / "ours")
    with running(own, folder / "ours.log") as url:
        ours = ask_all(url, own.model, asks, {})
        played = {name: evaluate(url, own.model, folder / name) for name in (OURS, AGAIN)}
    with running(vllm_server("vLLM", merged, "rl"), folder / "merged.log") as url:
        found = {MERGED: compare(MERGED, asks, ours, ask_all(url, "rl", asks, TWO_BEST))}
        played[MERGED] = evaluate(url, "rl", folder / MERGED)
    with running(vllm_server("vLLM with adapters", base, "sft", *lora), folder / "lora.log") as url:
        found[PEFT] = compare(PEFT, asks, ours, ask_all(url, "rl", asks, TWO_BEST))
        found[CONTROL] = compare(CONTROL, asks, ours, ask_all(url, "sft", asks, TWO_BEST))
        played[PEFT] = evaluate(url, "rl", folder / PEFT)
    first = played[OURS]
    return {
        **_versions(),
        "prompts": len(asks),
        "askers": ASKERS,
        "replies": [
            {"server": name, **one.counts, "log_probs_apart": one.apart, "unexplained": len(one.wrong)}
            for name, one in found.items()
        ],
        "different_replies": [
            line for name, one in found.items() if name != CONTROL for line in one.different
        ],
        "evaluation": " ".join(["python", *evaluation("URL", "NAME", "DIR")]),
        "episodes": [
            {
                "server": name,
                "tasks": len(episodes),
                "solved": sum(bool(episode[0]) for episode in episodes.values()),
                "solved_alike": sum(episode[0] == first[task][0] for task, episode in episodes.items()),
                "the_same": sum(episode == first[task] for task, episode in episodes.items()),
            }
            for name, episodes in played.items()
        ],
    }


def _versions() -> dict[str, str]:
    code = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    there = subprocess.check_output([VLLM_ENVIRONMENT / "bin/python", "-c", code], cwd=ROOT, text=True)
    torch, transformers = there.split()
    return {"vllm": VLLM, "vllm_torch": torch, "vllm_transformers": transformers}


def export_checks(figures: dict[str, Any]) -> list[Check]:
    judged = [row for row in figures["replies"] if row["server"] != CONTROL]
    (control,) = (row for row in figures["replies"] if row["server"] == CONTROL)
    found: list[Check] = [
        (
            f"{row['server']}: the same greedy replies as from our own server",
            f"{row['the_same']} of {row['prompts']}; log-probabilities {row['log_probs_apart']:.1e} apart",
            not row["unexplained"] and row["log_probs_apart"] <= TIE,
        )
        for row in judged
    ]
    apart = control["log_probs_apart"]
    found.append(
        ("control: without the adapters replies differ", f"log-probabilities {apart:.1e} apart", apart > TIE)
    )
    alike = [f"{row['server']}: {row['solved_alike']} of {row['tasks']}" for row in figures["episodes"][1:]]
    return [*found, ("tasks are solved or not as at our own server", "; ".join(alike), None)]


ABOUT = """\
**Baseline:** vLLM and `transformers serve` with the same weights on the same cores. Control: where the
adapters of the export are left out, log-probabilities must differ from our server's.

## Speed

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

## Exports

`experiments.export` writes the demo's final policy twice: merged, and as PEFT adapters, whose base is the
merged release of its SFT policy. Three servers, all in float32 on the CPU, are compared: ours
(`experiments.serve`) and vLLM ({vllm}, torch {vllm_torch}, transformers {vllm_transformers}) on the merged
release, and vLLM on the base with the adapters (`--enable-lora`).

**Replies.** {prompts} mined prompts with their screenshots as they were taken, {askers} clients, up to
{new_tokens} tokens, greedy. Each server's tokens of the prompt (images expanded) are compared with those
that the policy was trained on; replies and log-probabilities with our server's, the latter as far as the
tokens are the same. Another reply is explained where its token is as likely as ours within rounding. In the
control the adapters are left out.

**Evaluation.** Held-out MiniWoB++ tasks, greedy, once, by the command between the tables. An episode is the
same where outcome, number of steps and numbers of tokens are. Ours was evaluated twice, since one server's
episodes may differ, too: by a page that is caught in the middle of an animation, or where rounding decides
a token, because other requests share a batch.
"""

if __name__ == "__main__":
    demo = demo_run()
    install_transformers_serving()
    install_vllm()
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as name:
        found = measure_speed() | measure_exports(demo, Path(name))
    parts = (
        *(table(found[name]) for name in ("loads", "replies")),
        "\n".join(f"- {line}" for line in found["different_replies"]),
        f"    {found['evaluation']}",
        table(found["episodes"]),
    )
    checks = [*speed_checks(found), *export_checks(found)]
    publish("serving", "Serving", ABOUT.format(**found), found, checks, *parts)
