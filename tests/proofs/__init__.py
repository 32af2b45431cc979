"""Proofs: long measurements behind docs/results; `make proof-NAME` runs one."""
