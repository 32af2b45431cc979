"""Supervised fine-tuning on a corpus made by `experiments.build_sft`, or on conversations of your own.

    python -m experiments.train_sft --config=configs/sft.py:demo --config.corpus=runs/demo/sft_corpus \
        --workdir=runs/demo/sft
    python -m experiments.train_sft --config=configs/sft.py:8b --config.corpus=chats.jsonl \
        --workdir=runs/chats

On several hosts the same command with `--distributed` runs on each, with one shared workdir. Ctrl-C,
SIGTERM and SIGUSR1 save at the end of the step; the same command goes on.
"""

from __future__ import annotations

import logging

from experiments import cli
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.storage import AnyPath


def main(settings: SftConfig, workdir: AnyPath) -> None:
    # They import jax.
    from rmsweb_jax.sft.train import train
    from rmsweb_jax.training.mesh import is_first

    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax logs every file it writes.
    report = train(settings, workdir)
    if not is_first():
        return
    loss = report["final"]["loss/train"]
    print(
        f"trained {report['steps']} steps on {report['samples']} samples in {report['seconds']:.0f} s "
        f"(loss {'not finite' if loss is None else f'{loss:.3f}'}); model: {workdir / 'export'}"
    )


if __name__ == "__main__":
    cli.run(main, "configs/sft.py:demo", SftConfig, distributed=True, uses_jax=True)
