"""Exports of a run at vLLM: the same greedy replies as from our own server, and the same evaluation at both.

python -m tests.serve.proof_vllm --run=runs/demo --output=docs/results/vllm.md
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from rmsweb_jax.data.sources import RecordSource
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore, image_names
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.rl.dialects import Ask
from rmsweb_jax.sampling import Sampling
from tests.proofs import ROOT
from tests.serve.replies import CLIENTS, TIE, TWO_BEST, ask_all, compare
from tests.serve.servers import VLLM, VLLM_ENVIRONMENT, install_vllm, our_server, running, vllm_server

PROMPTS, NEW_TOKENS, SEEDS = 64, 128, 3
OURS, AGAIN, MERGED, PEFT = "ours, merged", "ours, merged, again", "vLLM, merged", "vLLM, PEFT"

_REPORT = """\
# Exports at vLLM

    make proof-vllm

runs `{command}`, which writes this page. {versions}.

`experiments.export` writes the demo's final policy twice: merged, and as PEFT adapters, whose base is the
merged release of its SFT policy. Three servers, all in float32 on the CPU: ours (`experiments.serve`) and
vLLM on the merged release, and vLLM on the base with the adapters (`--enable-lora`).

## Greedy replies

{prompts} mined prompts with their screenshots as they were taken, {clients} clients, up to {new} tokens. Each
server's tokens of the prompt (images expanded) are held against those that the policy was trained on; replies
and log-probabilities against our server's, the latter as far as the tokens are the same.

| server | prompts the same | replies the same | tokens compared | largest difference of a log-probability |
|---|---|---|---|---|
{replies}

The last row is a control: there the adapters are left out.

{differences}

## The same evaluation

    {evaluation}

at each server: {episodes} held-out MiniWoB++ tasks, greedy, once. An episode is the same where outcome,
number of steps and numbers of tokens are. Ours was evaluated twice, since one server's episodes may differ,
too: by a page that is caught in the middle of an animation, or by a token on the edge, since who else is
decoded at the time changes logits by rounding.

| server | solved | success, % | solved or not as at ours | the same episode as at ours |
|---|---|---|---|---|
{evaluated}
"""


def make_asks(run: Path, model: Path) -> dict[str, Ask]:
    """Prompts from all over the mined ones, by their ids."""
    folder = run / "mine/prompts"
    source, images = RecordSource(folder, RlPrompt), ImageStore(folder)
    pixels = json.loads((run / "rl/config.json").read_bytes())["max_pixels"]
    processor = Processor.from_pretrained(model, pixels)
    sampling = Sampling(1, NEW_TOKENS, 0.0, processor.end_id, processor.banned_ids)
    asks = {}
    for number in range(0, len(source), max(1, len(source) // PROMPTS))[:PROMPTS]:
        prompt = source[number]
        tokens = processor.encode_prompt(prompt.messages, images.get).tokens.tolist()
        pictures = [base64.b64encode(images.get(name)).decode() for name in image_names(prompt.messages)]
        urls = [f"data:image/png;base64,{picture}" for picture in pictures]
        asks[prompt.prompt_id] = Ask("", prompt.messages, urls, tokens, sampling, None)
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
    """By task: whether it was solved, how it ended, steps and tokens."""
    subprocess.run([sys.executable, *evaluation(url, model, str(workdir))], cwd=ROOT, check=True)
    tasks = json.loads((workdir / "results.json").read_bytes())["tasks"]
    kept = ("successes", "outcomes", "steps", "prompt_tokens", "response_tokens")
    return {task["task_id"]: tuple(task[name][0] for name in kept) for task in tasks}


def prove(run: Path, command: str, folder: Path) -> tuple[str, list[str]]:
    """The page, and what does not hold."""
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
        found = [compare(MERGED, asks, ours, ask_all(url, "rl", asks, TWO_BEST))]
        played[MERGED] = evaluate(url, "rl", folder / MERGED)
    with running(vllm_server("vLLM with adapters", base, "sft", *lora), folder / "lora.log") as url:
        found.append(compare(PEFT, asks, ours, ask_all(url, "rl", asks, TWO_BEST)))
        control = compare("vLLM, the base alone", asks, ours, ask_all(url, "sft", asks, TWO_BEST))
        played[PEFT] = evaluate(url, "rl", folder / PEFT)
    evaluated = []
    for name, episodes in played.items():
        first, count = played[OURS], len(episodes)
        solved = sum(bool(episode[0]) for episode in episodes.values())
        agreed = sum(episode[0] == first[task][0] for task, episode in episodes.items())
        same = sum(episode == first[task] for task, episode in episodes.items())
        evaluated.append(f"| {name} | {solved} of {count} | {100 * solved / count:.1f} | {agreed} | {same} |")
    page = _REPORT.format(
        command=command,
        versions=_versions(),
        prompts=len(asks),
        clients=CLIENTS,
        new=NEW_TOKENS,
        replies="\n".join(one.row for one in (*found, control)),
        differences="\n".join(f"- {each}" for one in found for each in one.told) or "No reply differs.",
        evaluation=" ".join(["python", *evaluation("URL", "NAME", "DIR")]),
        episodes=len(played[OURS]),
        evaluated="\n".join(evaluated),
    )
    wrong = [each for one in found for each in one.wrong]
    if max(one.apart for one in found) > TIE:
        wrong.append("log-probabilities differ by more than rounding does")
    if control.apart <= TIE:
        wrong.append("the adapters change nothing, so their replies say nothing")
    return page, wrong


def _versions() -> str:
    code = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    there = subprocess.check_output([VLLM_ENVIRONMENT / "bin/python", "-c", code], cwd=ROOT, text=True)
    torch, transformers = there.split()
    python, jax = platform.python_version(), metadata.version("jax")
    return f"Python {python}, jax {jax}; {VLLM} with torch {torch} and transformers {transformers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="workdir of experiments.demo")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    install_vllm()
    command = f"python -m tests.serve.proof_vllm --run={options.run} --output={options.output}"
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as folder:
        page, wrong = prove(options.run, command, Path(folder))
    print(page)
    write_atomic(options.output, page.encode())
    if wrong:
        raise SystemExit("error: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
