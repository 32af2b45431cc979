"""Trajectory pairs with planted divergences: what a failure-mode miner has to find, known by construction.

Sites are small state machines; a success and a localization run are two walks over one of them. Nothing
here imports the miner or the action space: both sides share only the records' schema.
"""

from tests.mining.planted.build import CATEGORIES, Planted, planted_pair, unplanted_pair
from tests.mining.planted.pool import write_pool

__all__ = ["CATEGORIES", "Planted", "planted_pair", "unplanted_pair", "write_pool"]
