"""Salvage-DS reinforcement learning on prompts made by `experiments.mine`, from a merged SFT policy.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl
"""

from __future__ import annotations

import logging
from pathlib import Path

from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.train import train


def main(config: ConfigDict, workdir: Path) -> None:
    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax tells every file it writes.
    report = train(RlConfig.from_dict(config.to_dict()), workdir)
    before, after = (report[name]["reward/mean"] for name in ("first", "final"))
    print(
        f"trained {report['iterations']} iterations on {report['prompts']} prompts "
        f"in {report['seconds']:.0f} s (mean reward {before:.3f} -> {after:.3f}); model: {workdir / 'export'}"
    )


if __name__ == "__main__":
    cli.run(main, "configs/rl.py:demo", safe_keys=("checkpoints_kept",))
