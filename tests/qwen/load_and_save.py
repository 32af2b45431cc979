"""Loads a model folder in a separate process, optionally on a mesh, saves it and reports its memory.

    python -m tests.qwen.load_and_save SOURCE TARGET [MESH [ADDRESS COUNT NUMBER]]

MESH is "data,fsdp,tensor"; COUNT processes meet at ADDRESS. Prints JSON.
"""

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

from rmsweb_jax.qwen.checkpoint import TensorFolder, load_model, save_model
from rmsweb_jax.qwen.lora import LoRAParam, add_lora, merge_lora, save_adapters
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh

# So that even a tiny model takes several files.
MAX_FILE_BYTES = 60_000


def peak_bytes() -> int:
    """Largest resident size of this process; `ru_maxrss` would begin at the parent's."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


def count_reads() -> list[int]:
    """Bytes of every part that is read from now on."""
    reads, read = [], TensorFolder.read

    def counted(self, name, index=()):
        part = read(self, name, index)
        reads.append(part.nbytes)
        return part

    TensorFolder.read = counted
    return reads


def main(
    source: str, target: str, mesh: str = "", address: str = "", count: str = "", number: str = ""
) -> None:
    if address:
        jax.distributed.initialize(address, int(count), int(number))
    jnp.zeros(1).block_until_ready()
    reads, before = count_reads(), peak_bytes()
    placed = make_mesh(*(int(size) for size in mesh.split(","))) if mesh else None
    model = load_model(source, jnp.bfloat16, mesh=placed)
    state = nnx.state(model, nnx.Param)
    report = {"peak": peak_bytes() - before, "params": sum(x.nbytes for x in jax.tree.leaves(state))}
    report |= {"read": sum(reads), "before": before, "devices": jax.device_count()}
    if placed is not None:
        shardings = jax.tree.leaves(param_shardings(state, placed))
        for value, sharding in zip(jax.tree.leaves(state), shardings, strict=True):
            assert value.sharding == sharding
        config = LoRAConfig(rank=2, alpha=4.0, targets="attention", vision=True)
        save_model(model, target, jnp.bfloat16, max_file_bytes=MAX_FILE_BYTES)
        add_lora(model, config, nnx.Rngs(0))
        adapters = nnx.state(model, LoRAParam)
        nnx.update(model, jax.device_put(adapters, param_shardings(adapters, placed)))
        save_adapters(model, config, Path(target) / "adapters", source)
        # B is zero, so this changes nothing.
        merge_lora(model)
        save_model(model, Path(target) / "merged", jnp.bfloat16)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
