"""How XLA compiles in tests, and processes that see several virtual devices."""

from __future__ import annotations

import os
from importlib import metadata


def compile_quickly() -> None:
    """Sets the environment of this process and its children; call it before jax is imported.

    Most of a test's time is XLA optimizing a program that runs a few times.
    """
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # Emitters that build each fusion through MLIR take half of the remaining time; jaxlib 0.11 has no others.
    if metadata.version("jaxlib").startswith("0.10."):
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ.setdefault("XLA_FLAGS", flags)


def device_environment(devices: int) -> dict[str, str]:
    """This process's environment, with so many virtual CPU devices for JAX."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}
