"""SFT runs that are killed, or change workers and hosts, against an uninterrupted run. Half an hour."""

from __future__ import annotations

import random
from pathlib import Path

from rmsweb_jax.data.sources import is_held_out
from tests.policies import write_corpus
from tests.proofs.result import Figures, Proof, main
from tests.proofs.runs import (
    Check,
    Run,
    bit_exact,
    claims,
    command,
    furthest_weight,
    killed,
    largest_difference,
    measured,
)

BATCH, EPOCHS = 4, 3
STEPS = 60
TRAINED, HELD_OUT = STEPS * BATCH // EPOCHS, 0.05
KILLS, SEED = 5, 4
TOLERANCE = 1e-6


def new_run(root: Path, name: str, hosts: int = 1) -> Run:
    settings = {
        "corpus": root / "corpus",
        "model": "tiny_base",
        "max_length": 256,
        "max_pixels": 4096,
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "row_tokens": 256,
        "row_multiple": 128,
        "trainable": "lora",
        "lora.rank": 4,
        "lora.dropout": 0.1,
        "eval.share": HELD_OUT,
        "seed": SEED,
        "eval.every": 20,
        "eval.replies": 2,
        "eval.max_reply_tokens": 8,
        "eval.rows": 2,
        "checkpoint_every": 7,
    }
    return Run(root, name, command("experiments.train_sft", "configs/sft.py:smoke", settings), hosts)


def corpus_size() -> int:
    """Samples of a corpus (two to a task) of which `TRAINED` are not held out."""
    trained = size = 0
    while trained < TRAINED:
        trained += not is_held_out(f"t{size // 2}", HELD_OUT, SEED)
        size += 1
    return size


def prove(root: Path) -> list[Check]:
    """Runs everything and compares."""
    rng = random.Random(SEED)
    write_corpus(root / "corpus", [rng.randint(1, 12) for _ in range(corpus_size())])
    straight = new_run(root, "straight")
    straight.finish()
    points = sorted(rng.sample(range(2, STEPS - 4), KILLS))
    assert straight.logged() == STEPS
    checks = []

    run = new_run(root, "killed")
    stopped = killed(run, points, lambda _: (1,))
    checks.append(same_bits(f"killed by SIGKILL after steps {stopped}", straight, run))

    def workers(number: int) -> tuple[int, list[str]]:
        return 1, [f"--config.workers.processes={1 + number % 2}"]

    run = new_run(root, "workers")
    stopped = killed(run, points[1:4], workers)
    checks.append(same_bits(f"1, 2, 1, 2 worker processes, killed after {stopped}", straight, run))

    def hosts(number: int) -> tuple[int]:
        return (1 + number % 2,)

    # Rows of two devices in all, since dropout masks follow the rows.
    straight = new_run(root, "two devices", 2)
    straight.finish()
    run = new_run(root, "hosts", 2)
    stopped = killed(run, points[1:4], hosts)
    checks.append(same_within(f"1, 2, 1, 2 hosts, killed after {stopped}", straight, run))
    both = new_run(root, "both", 2)
    both.finish(2)
    checks.append(same_within("two jax.distributed processes from the start", straight, both))
    return checks


def same_bits(claim: str, straight: Run, run: Run) -> Check:
    one, other = straight.digests(STEPS), run.digests(STEPS)
    same = {"metrics and batch ids": straight.curves() == run.curves()}
    return bit_exact(claim, same | {name: one[name] == other[name] for name in one}, other)


def same_within(claim: str, straight: Run, run: Run) -> Check:
    ids = straight.column("batch_ids") == run.column("batch_ids")
    losses = straight.column("loss/train")
    loss = largest_difference(losses, run.column("loss/train"))
    state = furthest_weight(straight, run, STEPS)
    words = (
        f"batch ids {'equal' if ids else 'DIFFER'}; largest difference of a loss {loss:.1e} (losses of "
        f"{min(losses):.2f} to {max(losses):.2f}), of an adapter weight {state:.1e}"
    )
    values = {"loss_difference": loss, "weight_difference": state}
    same = ids and loss <= TOLERANCE
    return Check(f"{claim}: same batches, losses within {TOLERANCE:g}", words, same, values)


def measure() -> Figures:
    return {"steps": STEPS, "batch": BATCH} | measured(prove)


ABOUT = """\
`experiments.train_sft` trains on the tiny base (float32, CPU): {steps} steps of {batch} samples with a
screenshot each, packed in rows of 256 tokens, LoRA with dropout 0.1, an evaluation with sampled replies
every 20 steps, a checkpoint every 7. Kill points are drawn from a seed; a run is killed by SIGKILL as soon
as it has logged that step, and started again by the same command. Runs on one or two hosts have two devices
in all.
"""
PROOF = Proof("Exact resume of supervised fine-tuning", ABOUT, measure, claims, packages=("jax",))

if __name__ == "__main__":
    main(PROOF)
