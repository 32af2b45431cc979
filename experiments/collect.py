"""Stage 1 and 4: tasks played in real browsers by a teacher or by our own policy.

python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
"""

from __future__ import annotations

from collection.fleet.collect import collect
from collection.fleet.config import CollectSettings
from experiments import cli
from rmsweb_jax.settings import safe_keys

if __name__ == "__main__":
    cli.run(collect, "configs/collect.py:demo", safe_keys(CollectSettings))
