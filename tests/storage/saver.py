"""A host of a run that saves two checkpoints: python -m tests.storage.saver FOLDER --distributed"""

import sys

import jax
import numpy as np

from rmsweb_jax.storage import parse_path
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.distributed import Hosts

if __name__ == "__main__":
    with Hosts():
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        values = np.arange(8.0)
        state = {"w": jax.make_array_from_callback((8,), split, lambda index: values[index])}
        with Checkpoints(parse_path(sys.argv[1], "FOLDER")) as checkpoints:
            checkpoints.save(1, state, {})
            checkpoints.save(2, state, {})
