"""`experiments.train_rl` of an online run, half of whose episodes are sabotaged."""

from __future__ import annotations

from experiments import train_rl
from experiments.online import FleetEpisodes

FleetEpisodes.module = "tests.fleet.play_sabotaged"

if __name__ == "__main__":
    train_rl.run()
