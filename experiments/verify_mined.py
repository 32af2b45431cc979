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

from collection.mining.config import VerifySettings
from experiments import cli


def main(settings: VerifySettings, workdir: Path) -> None:
    # It starts browsers, whose packages take a second to import.
    from collection.mining.replay import verify_mined

    print(json.dumps(verify_mined(settings, workdir), indent=1))


if __name__ == "__main__":
    cli.run(main, "configs/verify_mined.py:demo", VerifySettings)
