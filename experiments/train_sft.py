"""Supervised fine-tuning on a corpus made by `experiments.build_sft`.

    python -m experiments.train_sft --config=configs/sft.py:demo --config.corpus=runs/demo/sft_corpus \
        --workdir=runs/demo/sft
"""

from __future__ import annotations

import logging
from pathlib import Path

from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.train import train


def main(config: ConfigDict, workdir: Path) -> None:
    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax tells every file it writes.
    report = train(SftConfig.from_dict(config.to_dict()), workdir)
    print(
        f"trained {report['steps']} steps on {report['samples']} samples in {report['seconds']:.0f} s "
        f"(loss {report['final']['loss/train']:.3f}); model: {workdir / 'export'}"
    )


if __name__ == "__main__":
    cli.run(main, "configs/sft.py:demo", safe_keys=("checkpoint_every", "checkpoints_kept"))
