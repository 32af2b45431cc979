"""Many tasks at once: workers with a browser each, here or on a cluster, and who hands out their work.

An episode is in a worker's journal, on disk, before anything builds on it, so the same call after any
interruption goes on where it stopped; journals become one data set at the end.
"""

from collection.fleet.config import FleetConfig
from collection.fleet.publish import Played
from collection.fleet.run import StoppedError, run_tasks
from collection.fleet.scheduler import SiteLimits

__all__ = ["FleetConfig", "Played", "SiteLimits", "StoppedError", "run_tasks"]
