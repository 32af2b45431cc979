"""Qwen3-VL in flax.nnx: model, inputs, processor, adapters, checkpoints.

Shapes in annotations use these names: `rows` and `tokens` of a batch, `hidden`, `vocab`, `heads` (of
  queries), `kv_heads`, `head_dim`, `half_dim` (head_dim / 2) and `patches`. Decoding adds `groups` (prompts,
  or the slots of a
pool) and the `samples` of each.
"""
