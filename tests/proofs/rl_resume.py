"""RL runs that are killed, or spread over devices and processes, against one that is not. Ten minutes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from experiments.studies.tiny_base.corpus.stream import generated, questions, state_prompt
from rmsweb_jax.errors import StoppedError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, RlPrompt
from rmsweb_jax.training.metrics import GROUPS_FILE, METRICS_FILE, REPLIES_FILE
from tests.policies import random_messages
from tests.proofs.page import Check, publish
from tests.training.runs import Run, command, furthest_weight, largest_difference, untimed

ITERATIONS, CHECKPOINT_EVERY, KILLS, SEED = 12, 3, 4, 5
PROMPTS, GROUPS, SAMPLES = 40, 4, 4
# Iterations of the runs on several devices; a checkpoint of the straight run is of the last of them.
SHARDED = 6
LOSSES = ("loss", "pg_loss", "salvage_loss", "kl_ref")
TOLERANCE = 1e-5


def new_run(root: Path, name: str) -> Run:
    settings = {
        "prompts": root / "prompts",
        "model": root / "policy",
        "max_prompt_tokens": 512,
        "max_response_tokens": 24,
        "max_pixels": 4096,
        "held_out": 0.15,
        "seed": SEED,
        "iterations": ITERATIONS,
        "train_groups": GROUPS,
        "mini_batch_groups": GROUPS // 2,
        "gen_batch_groups": GROUPS,
        "max_gen_batches": 3,
        "max_salvage_groups": GROUPS,
        "num_samples": SAMPLES,
        "lora.rank": 4,
        "lora.alpha": 8.0,
        "row_tokens": 1024,
        "row_multiple": 64,
        "eval_every": 6,
        "checkpoint_every": CHECKPOINT_EVERY,
        "checkpoints_kept": ITERATIONS,
        "logged_groups": 3 * GROUPS,
    }
    return Run(root, name, command("experiments.train_rl", "configs/rl.py:smoke", settings))


def write_prompts(folder: Path, seed: int = SEED) -> None:
    """First steps whose target is a click, and whose request is "Click.": the policy clicks at random.

    A quarter of the requests names an element, the target or another one: mastered and hopeless prompts.
    """
    rng, images = random.Random(seed), ImageStore(folder)
    prompts: list[RlPrompt] = []
    while len(prompts) < PROMPTS:
        number = len(prompts)
        screenshot = random_messages(number, images, repeats=0)[1].content[1]
        assert isinstance(screenshot, ImagePart)
        page = dataclasses.replace(generated(rng, 2, 3), screenshot=screenshot.sha256, objective="Click.")
        prompt = state_prompt(rng, page)
        if prompt is None or prompt.messages is None or not prompt.first_step:
            continue
        question, _ = next(questions(rng, prompt))
        if question.kind != "click" or (prompt.dictated is None) != (number % 4 > 0):
            continue
        prompts.append(
            RlPrompt(
                prompt_id=f"p{number}",
                task_id=f"t{number // 2}",
                site="generated",
                category="ui_navigation",
                messages=prompt.messages,
                target=question.reply,
            )
        )
    write_dataset(folder, prompts, "rl_prompts")


def save_policy(folder: Path) -> None:
    """The tiny base with every key and value head twice: query heads that shared one have one each."""
    base = resolve_model("tiny_base")
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    text = config["text_config"]
    copies = text["num_attention_heads"] // text["num_key_value_heads"]
    text["num_key_value_heads"] *= copies
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(base / "model.safetensors")
    for name, tensor in tensors.items():
        if ".k_proj." in name or ".v_proj." in name:
            heads = tensor.reshape(-1, text["head_dim"], tensor.shape[-1])
            tensors[name] = np.repeat(heads, copies, axis=0).reshape(-1, tensor.shape[-1])
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def prove(root: Path) -> list[Check]:
    """Runs everything and compares."""
    write_prompts(root / "prompts")
    save_policy(root / "policy")
    straight = new_run(root, "straight")
    straight.finish()
    checks = [what_happened(straight), as_before(straight)]

    rng = random.Random(SEED)
    points = sorted(rng.sample(range(2, ITERATIONS - 1), KILLS))
    run = new_run(root, "killed")
    files = [rng.choice((METRICS_FILE, GROUPS_FILE)) for _ in points]
    stopped = [run.kill_after(point, file=file) for point, file in zip(points, files, strict=True)]
    run.finish()
    checks.append(same_bits(f"killed by SIGKILL {places(stopped, files)}", straight, run))

    run = new_run(root, "stopped")
    step, codes = run.stop_after(rng.randrange(2, ITERATIONS - 1))
    run.finish()
    check = same_bits(f"stopped by SIGTERM after iteration {step}", straight, run)
    checks.append(with_codes(check, codes))

    few = [f"--config.iterations={SHARDED}"]
    run = new_run(root, "sharded")
    mesh = [f"--config.mesh.{axis}=2" for axis in ("data", "fsdp", "tensor")]
    run.finish(changes=[*few, *mesh], devices=8)
    checks.append(same_within("8 devices, data 2 x fsdp 2 x tensor 2", straight, run))
    checks += two_processes(new_run(root, "processes"), straight, few)
    return checks


def two_processes(run: Run, straight: Run, few: list[str]) -> list[Check]:
    """Two jax.distributed processes, stopped by a signal to the second one on the way."""
    step, codes = run.stop_after(SHARDED // 2, 2, few)
    run.finish(2, few)
    check = same_within(f"two jax.distributed processes, SIGTERM to the second after {step}", straight, run)
    # A writer of metrics opens one such file, in each of the two starts.
    boards = len(list((run.workdir / "tensorboard").iterdir()))
    steps = run.column("step") == list(range(1, SHARDED + 1))
    written = f"{boards} TensorBoard files of 2 starts; a row an iteration: {'yes' if steps else 'NO'}"
    return [with_codes(check, codes), ("only the first process writes", written, boards == 2 and steps)]


def what_happened(run: Run) -> Check:
    """Checks that the run used all parts of the loop."""
    groups = run.rows(GROUPS_FILE)
    fates = Counter(group["fate"] for group in groups)
    names = ("accepted", "salvaged", "exhausted")
    sums = {name: sum(run.column(f"dynamic_sampling/{name}")) for name in names}
    batches = sorted(set(run.column("dynamic_sampling/batches")))
    exact = sum(reply["reward"] == 1 for group in groups for reply in group["responses"])
    words = (
        f"{len(groups)} groups sampled ({', '.join(f'{fates[fate]} {fate}' for fate in sorted(fates))}); "
        f"{sums['accepted']} trained on and {sums['salvaged']} salvaged; {batches} generation batches an "
        f"iteration, too few in {sums['exhausted']}; {exact} exact responses"
    )
    holds = run.logged() == ITERATIONS and len(fates) == 4 and all(sums.values()) and len(batches) > 1
    return "an uninterrupted run uses all parts of the loop", words, holds


def as_before(straight: Run) -> Check:
    """The first iterations against those of the loop that sampled in batches, with the same settings.

    `loop_before.json` was made at its commit with `merge_adapters=False`: the sampler's weights were ours.
    """
    before = json.loads(Path(__file__).with_name("loop_before.json").read_text())
    drawn = responses(straight)
    # That loop left control tokens out of texts.
    texts = [[*place, re.sub(r"<\|\w+\|>", "", text)] for place, text in drawn.items()]
    digests = [
        hashlib.sha256(json.dumps(sorted(one for one in texts if one[0] == step)).encode()).hexdigest()[:16]
        for step in range(1, SHARDED + 1)
    ]
    apart = max(
        largest_difference(straight.column(name)[:SHARDED], values)
        for name, values in before["metrics"].items()
    )
    same = digests == before["responses"]
    words = (
        f"{'the same' if same else 'OTHER'} {len(drawn)} responses; largest difference of "
        f"{', '.join(before['metrics'])}: {apart:.1e}"
    )
    return (
        f"{SHARDED} iterations of the loop before the engine ({before['commit']}), adapters beside the "
        f"weights: same responses, metrics within {TOLERANCE:g}",
        words,
        same and apart <= TOLERANCE,
    )


def places(steps: list[int], files: list[str]) -> str:
    update = [step for step, file in zip(steps, files, strict=True) if file == GROUPS_FILE]
    sampling = [step for step, file in zip(steps, files, strict=True) if file == METRICS_FILE]
    return f"in the updates of {update} and after {sampling}"


def with_codes(check: Check, codes: list[int]) -> Check:
    claim, words, holds = check
    stopped = all(code == StoppedError.exit_code for code in codes)
    return claim, f"exit codes {codes}; {words}", bool(holds) and stopped


def same_bits(claim: str, straight: Run, run: Run) -> Check:
    same = {"metrics": straight.curves() == run.curves()}
    for file in (GROUPS_FILE, REPLIES_FILE):
        same[file] = (straight.workdir / file).read_bytes() == (run.workdir / file).read_bytes()
    for name, read in (("place in the order of prompts", kept_values), ("report.json", report)):
        same[name] = read(straight) == read(run)
    one, other = (
        {**each.digests(ITERATIONS), "export": folder_digest(each.workdir / "export")}
        for each in (straight, run)
    )
    same |= {name: one[name] == other[name] for name in one}
    different = [name for name, equal in same.items() if not equal]
    words = f"DIFFERENT: {', '.join(different)}" if different else f"{', '.join(same)} equal"
    return f"{claim}: bit-exact", words, not different


def kept_values(run: Run) -> dict[str, Any]:
    """State of the last checkpoint without arrays."""
    values = json.loads((run.workdir / "checkpoints" / str(ITERATIONS) / "extra" / "metadata").read_text())
    return {name: value for name, value in values.items() if name != "seconds"}


def report(run: Run) -> dict[str, Any]:
    """The report but for how long it took."""
    values: dict[str, Any] = json.loads((run.workdir / "report.json").read_text())
    return {name: without_times(value) for name, value in values.items() if name != "seconds"}


def without_times(value: Any) -> Any:
    return untimed(value) if isinstance(value, Mapping) else value


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def same_within(claim: str, straight: Run, run: Run) -> Check:
    """The first iterations of the straight run against one that is spread."""
    ours, theirs = (responses(each) for each in (straight, run))
    flipped = [place for place, text in ours.items() if theirs.get(place) != text]
    rows, others = (each.rows()[:SHARDED] for each in (straight, run))
    loss = max(
        largest_difference([row[name] for row in rows], [row[name] for row in others]) for name in LOSSES
    )
    weight = furthest_weight(straight, run, SHARDED)
    size = max(abs(row["loss"]) for row in rows)
    first = f" (the first other one: {flipped[0]})" if flipped else ""
    words = (
        f"{len(ours) - len(flipped)} of {len(ours)} responses the same, {len(theirs)} drawn{first}; largest "
        f"difference of a loss {loss:.1e} (losses up to {size:.1e}), of an adapter weight {weight:.1e}"
    )
    holds = ours == theirs and max(loss, weight) <= TOLERANCE
    return f"{claim}: same responses, losses and weights within {TOLERANCE:g}", words, holds


def responses(run: Run) -> dict[tuple[int, str, int], str]:
    """All that was sampled in the first iterations, by iteration, prompt and number."""
    return {
        (group["step"], group["prompt_id"], number): reply["text"]
        for group in run.rows(GROUPS_FILE)
        if group["step"] <= SHARDED
        for number, reply in enumerate(group["responses"])
    }


ABOUT = """\
**No baseline, no control:** the unbroken run is the reference, and of its first iterations an earlier loop.
No run is changed on purpose, so nothing here shows that the comparisons can fail.

`experiments.train_rl` trains (float32, CPU) on {prompts} generated pages of two or three elements with a
screenshot each. The request of three in four is "Click.", to which the tiny base clicks at random, so that
groups have contrast; the others name an element, the target or another one. {iterations} iterations train
on {groups} groups of {samples} responses in two optimizer steps, from at most 3 generation batches, with
`max_staleness=0`; an evaluation every 6 iterations, a checkpoint every {checkpoint_every}.

Points are drawn from a seed: a run is killed by SIGKILL as soon as an iteration's groups are written (in
its update) or its metrics are (while it saves or samples the next), and started again by the same command.
The policy is the tiny base with every key and value head held twice, which computes the same: three heads
do not divide over `tensor` = 2.
"""

if __name__ == "__main__":
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns of what its own checkpoints lack.
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-resume-") as name:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{name}/cache")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        found = prove(Path(name))
    sizes = {"prompts": PROMPTS, "iterations": ITERATIONS, "groups": GROUPS, "samples": SAMPLES}
    figures = {**sizes, "checkpoint_every": CHECKPOINT_EVERY, "checks": found}
    publish("rl_resume", "Exact resume of reinforcement learning", ABOUT.format(**figures), figures, found)
