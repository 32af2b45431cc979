"""Salvage-DS reinforcement learning on prompts made by `experiments.mine`, from a merged SFT policy.

    python -m experiments.train_rl --config=configs/rl.py:demo --config.prompts=runs/demo/mine/prompts \
        --config.model=runs/demo/sft/export --workdir=runs/demo/rl
"""

from __future__ import annotations

import logging
from typing import Any

from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.train import train
from rmsweb_jax.settings import from_config, safe_keys
from rmsweb_jax.storage import AnyPath
from rmsweb_jax.training.mesh import is_first


def main(config: ConfigDict, workdir: AnyPath) -> None:
    if (workdir / "report.json").exists():
        print(f"{workdir}: finished before; see report.json")
        return
    logging.getLogger("absl").setLevel(logging.WARNING)  # Orbax logs every file it writes.
    for client in ("httpx", "httpx2"):  # And these every request to an endpoint.
        logging.getLogger(client).setLevel(logging.WARNING)
    report = _train(config, workdir)
    if not is_first():
        return
    rewards = [report[name].get("eval/reward") for name in ("first", "final")]
    change = "" if None in rewards else f" (held-out reward {rewards[0]:.3f} -> {rewards[1]:.3f})"
    print(
        f"trained {report['iterations']} iterations on {report['prompts']} prompts "
        f"in {report['seconds']:.0f} s{change}; model: {workdir / 'export'}"
    )


def _train(config: ConfigDict, workdir: AnyPath) -> dict[str, Any]:
    if "play" not in config:
        return train(from_config(RlConfig, config), workdir)
    # Offline runs need no browser's packages.
    from experiments.online import OnlineSettings, train_online

    return train_online(from_config(OnlineSettings, config), workdir)


def run() -> None:
    """Reads the command line and trains."""
    cli.run(
        main,
        "configs/rl.py:demo",
        safe_keys=(*safe_keys(RlConfig), "play.fleet", "play.apps_folder", "replays"),
        distributed=True,
    )


if __name__ == "__main__":
    run()
