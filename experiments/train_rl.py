"""Salvage-DS reinforcement learning on prompts made by `experiments.mine`, from a merged SFT policy.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl
"""

from __future__ import annotations

import logging
from pathlib import Path

from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.distributed import is_first
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.train import train

# They change how a step is laid out, watched and saved, not what it learns.
SAFE_KEYS = (
    "checkpoint_every",
    "checkpoints_kept",
    "endpoint.base_url",
    "endpoint.concurrency",
    "endpoint.retries",
    "endpoint.timeout_s",
    "logged_groups",
    "mesh.data",
    "mesh.fsdp",
    "mesh.tensor",
    "micro_batch_tokens",
    "remat",
    "rollout_slots",
)


def main(config: ConfigDict, workdir: Path) -> None:
    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax tells every file it writes.
    report = train(RlConfig.from_dict(config.to_dict()), workdir)
    if not is_first():
        return
    rewards = [report[name].get("eval/reward") for name in ("first", "final")]
    change = "" if None in rewards else f" (held-out reward {rewards[0]:.3f} -> {rewards[1]:.3f})"
    print(
        f"trained {report['iterations']} iterations on {report['prompts']} prompts "
        f"in {report['seconds']:.0f} s{change}; model: {workdir / 'export'}"
    )


if __name__ == "__main__":
    cli.run(main, "configs/rl.py:demo", safe_keys=SAFE_KEYS, distributed=True)
