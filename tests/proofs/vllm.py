"""Exports of the demo's policy at vLLM: the same replies and evaluation as at our own server. After the demo.

Ten minutes after the demo, which it runs or resumes; vLLM is installed into build/, not into the environment.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.rl.remote.protocols import Ask
from tests.proofs.result import ROOT, Claim, Figures, Proof, demo_run, main, table
from tests.serve.replies import CLIENTS, TIE, TWO_BEST, ask_all, compare
from tests.serve.servers import VLLM, VLLM_ENVIRONMENT, install_vllm, our_server, running, vllm_server

PROMPTS, NEW_TOKENS, SEEDS = 64, 128, 3
OURS, AGAIN, MERGED, PEFT = "ours, merged", "ours, merged, again", "vLLM, merged", "vLLM, PEFT"


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
    tasks = json.loads((workdir / "results.json").read_bytes())["tasks"]
    kept = ("successes", "outcomes", "steps", "prompt_tokens", "response_tokens")
    return {task["task_id"]: tuple(task[name][0] for name in kept) for task in tasks}


def measure() -> Figures:
    run = demo_run()
    install_vllm()
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as folder:
        return _versions() | _serve_and_compare(run, Path(folder))


def _serve_and_compare(run: Path, folder: Path) -> Figures:
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
        "prompts": len(asks),
        "clients": CLIENTS,
        "new_tokens": NEW_TOKENS,
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


def claims(figures: Figures) -> list[Claim]:
    judged = [row for row in figures["replies"] if row["server"] != CONTROL]
    (control,) = (row for row in figures["replies"] if row["server"] == CONTROL)
    found = [
        Claim(
            f"{row['server']}: the same greedy replies as from our own server",
            f"{row['the_same']} of {row['prompts']}; log-probabilities {row['log_probs_apart']:.1e} apart",
            not row["unexplained"] and row["log_probs_apart"] <= TIE,
        )
        for row in judged
    ]
    found.append(
        Claim(
            "control: without the adapters replies differ",
            f"log-probabilities {control['log_probs_apart']:.1e} apart",
            control["log_probs_apart"] > TIE,
        )
    )
    alike = [f"{row['server']}: {row['solved_alike']} of {row['tasks']}" for row in figures["episodes"][1:]]
    return [*found, Claim("tasks are solved or not as at our own server", "; ".join(alike), None)]


def tables(figures: Figures) -> str:
    replies = [
        (
            row["server"],
            *(f"{row[name]} of {row['prompts']}" for name in ("read_the_same", "the_same")),
            f"{row['tokens']:,}",
            f"{row['log_probs_apart']:.1e}",
        )
        for row in figures["replies"]
    ]
    head = ("server", "prompts the same", "replies the same", "tokens compared", "log-probabilities apart")
    episodes = [
        (
            row["server"],
            f"{row['solved']} of {row['tasks']} ({row['solved'] / row['tasks']:.1%})",
            *(row["solved_alike"], row["the_same"]),
        )
        for row in figures["episodes"]
    ]
    names = ("server", "solved", "solved or not as at ours", "the same episode as at ours")
    lines = [f"- {line}" for line in figures["different_replies"]]
    parts = (table(head, replies), *(["\n".join(lines)] if lines else []), f"    {figures['evaluation']}")
    return "\n\n".join((*parts, table(names, episodes)))


CONTROL = "vLLM, the base alone"
ABOUT = """\
`experiments.export` writes the demo's final policy twice: merged, and as PEFT adapters, whose base is the
merged release of its SFT policy. Three servers, all in float32 on the CPU, are compared: ours
(`experiments.serve`) and vLLM ({vllm}, torch {vllm_torch}, transformers {vllm_transformers}) on the merged
release, and vLLM on the base with the adapters (`--enable-lora`).

**Replies.** {prompts} mined prompts with their screenshots as they were taken, {clients} clients, up to
{new_tokens} tokens, greedy. Each server's tokens of the prompt (images expanded) are compared with those
that the policy was trained on; replies and log-probabilities with our server's, the latter as far as the
tokens are the same. Another reply is explained where its token is as likely as ours within rounding. In the
control the adapters are left out.

**Evaluation.** Held-out MiniWoB++ tasks, greedy, once, by the command between the tables. An episode is the
same where outcome, number of steps and numbers of tokens are. Ours was evaluated twice, since one server's
episodes may differ, too: by a page that is caught in the middle of an animation, or where rounding decides
a token, because other requests share a batch.
"""
PROOF = Proof("Exports in vLLM", ABOUT, measure, claims, tables, packages=("jax",), browser=True)

if __name__ == "__main__":
    main(PROOF)
