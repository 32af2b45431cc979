"""Replay: plays recorded runs again with another action at a step, which shows whether a decision mattered.

`elements` finds the element of an action on another page, `trials` plays a run again, and `verify` decides
about the decisions that mining has kept.
"""
