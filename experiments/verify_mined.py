"""Replays mined decisions in a browser: does the success's action save the failed run?

    python -m experiments.verify_mined --config=configs/verify_mined.py:demo \
        --config.mined=runs/demo/mine --workdir=runs/demo/verify_mined

The failed run is played again up to the decision. Then the success's action is put in and an actor goes on;
likewise with the failed run's own action. The workdir gets `verdicts/` (a record a decision) and last
`report.json`, which is also printed. `experiments.mine --config.replay=DIR` drops what is not critical.
"""

from __future__ import annotations

import json
from pathlib import Path

from ml_collections import ConfigDict

from collection.replay.config import VerifySettings
from collection.replay.verify import verify_mined
from experiments import cli
from rmsweb_jax.settings import from_config, safe_keys


def main(config: ConfigDict, workdir: Path) -> None:
    print(json.dumps(verify_mined(from_config(VerifySettings, config), workdir), indent=1))


if __name__ == "__main__":
    cli.run(main, "configs/verify_mined.py:demo", safe_keys(VerifySettings))
