"""Salvage-DS reinforcement learning on prompts made by `experiments.mine`, from a merged SFT policy.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl
"""

from __future__ import annotations

import logging

from experiments import cli
from experiments.online_settings import OnlineSettings
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.storage import AnyPath


def main(settings: RlConfig, workdir: AnyPath) -> None:
    # They import jax.
    from rmsweb_jax.rl.train import train
    from rmsweb_jax.training.mesh import is_first

    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax logs every file it writes.
    for client in ("httpx", "httpx2"):  # And these every request to an endpoint.
        logging.getLogger(client).setLevel(logging.WARNING)
    if isinstance(settings, OnlineSettings):
        # Offline runs need no browser's packages.
        from experiments.online import train_online

        report = train_online(settings, workdir)
    else:
        report = train(settings, workdir)
    if not is_first():
        return
    rewards = [report[name].get("eval/reward") for name in ("first", "final")]
    change = "" if None in rewards else f" (held-out reward {rewards[0]:.3f} -> {rewards[1]:.3f})"
    print(
        f"trained {report['iterations']} iterations on {report['prompts']} prompts "
        f"in {report['seconds']:.0f} s{change}; model: {workdir / 'export'}"
    )


def run() -> None:
    """Reads the command line and trains."""
    cli.run(
        main,
        "configs/rl.py:demo",
        lambda config: OnlineSettings if "play" in config else RlConfig,
        distributed=True,
        uses_jax=True,
    )


if __name__ == "__main__":
    run()
