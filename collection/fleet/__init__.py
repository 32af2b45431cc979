"""Plays many tasks in parallel: a parent assigns rounds to workers with browsers, locally or on a cluster.

An episode is in a worker's journal, on disk, before anything builds on it, so the same call continues after
any interruption. At the end the journals become one data set.
"""
