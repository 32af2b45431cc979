"""Use an adapter that was trained elsewhere with PEFT: merge it into its base model, and chat.

    python docs/examples/foreign_adapter.py ADAPTER OUTPUT [BASE]

ADAPTER is the folder that PEFT, TRL, LLaMA-Factory or Unsloth has written (or its name on the Hugging Face
Hub), on any matrices of the model, also all linear ones. BASE is its base model: a folder or a Hub name; by
default the one that the adapter names. OUTPUT becomes a model folder, which every stage and server takes.
"""

import sys

from rmsweb_jax import Policy, merge_adapters

folder = merge_adapters(*sys.argv[1:])
policy = Policy.load(folder)
print(policy.chat("Which button is on this page?\n[1]<button>Accept</button>", max_new_tokens=64))
