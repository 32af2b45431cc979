"""Plays many tasks in parallel: a parent assigns rounds to workers with browsers, locally or on a cluster.

Workers return their episodes, and the parent alone writes. An episode is in its journal, on disk, before
anything builds on it, so the same call continues after any interruption. At the end the journal becomes a
data set.
"""
