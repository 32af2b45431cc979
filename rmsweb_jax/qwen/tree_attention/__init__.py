"""Attention over rows of prefix trees, with one integer a token for its mask.

`rule` has the mask and the blocks of it that run, `tpu`, `gpu` and `loop` compute them, and `attention` is
the differentiable function.
"""
