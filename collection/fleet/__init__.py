"""Plays many tasks in parallel: a parent assigns rounds to workers with browsers, locally or on a cluster.

An episode is in a worker's journal, on disk, before anything builds on it, so the same call continues after
any interruption. At the end the journals become one data set.
"""

from collection.fleet.config import FleetConfig
from collection.fleet.run import RunResult, run_tasks
from collection.fleet.scheduler import SiteLimits

__all__ = ["FleetConfig", "RunResult", "SiteLimits", "run_tasks"]
