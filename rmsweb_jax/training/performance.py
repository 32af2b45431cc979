"""Performance of a run: its share of the devices' peak rate (MFU), and profiles of single steps."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
from jax.sharding import SingleDeviceSharding

from rmsweb_jax.errors import UserError

# Dense bfloat16 matrix rate of a JAX device in TFLOP/s, by a part of its `device_kind`; the longest match
# counts. TPU: cloud.google.com/tpu/docs, one page for each version (a TPU7x chip has two devices); v4 lite:
# Jouppi et al. 2021. NVIDIA: data sheets, whose figures with sparsity are twice these.
PEAK_TFLOPS = {
    "TPU v4": 275.0,
    "TPU v4 lite": 138.0,
    "TPU v5 lite": 197.0,
    "TPU v5e": 197.0,
    "TPU v5": 459.0,
    "TPU v5p": 459.0,
    "TPU v6 lite": 918.0,
    "TPU v6e": 918.0,
    "TPU7x": 1153.5,
    "A100": 312.0,
    "H100": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H200": 989.0,
    "GH200": 989.0,
    "B200": 2250.0,
    "GB200": 2500.0,
}


# Options of the TPU compiler: weights of the next layer are gathered, and gradients scattered, while matrix
# units compute. Those with which MaxText publishes its results (github.com/AI-Hypercomputer/maxtext,
# benchmarks/xla_flags_library.py), as far as libtpu 0.0.51 accepts them.
TPU_OPTIONS = {
    "xla_tpu_enable_async_collective_fusion": True,
    "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
    "xla_tpu_overlap_compute_collective_tc": True,
    "xla_enable_async_all_gather": True,
}


# libtpu 0.0.51 compiles no all-gather with it on other chips ("not supported ... other than TPU v5e").
_V5E_OPTIONS = {"xla_tpu_enable_async_collective_fusion_fuse_all_gather": True}


def compiler_options(device: Any, changes: Sequence[str]) -> dict[str, Any]:
    """Returns the options for `jax.jit`, by name.

    Args:
      device: one of those that programs are compiled for.
      changes: further options, each as name=value.

    Raises:
      UserError: one is not of that form, or the compiler does not know it.
    """
    options: dict[str, Any] = dict(TPU_OPTIONS) if device.platform == "tpu" else {}
    if device.device_kind in ("TPU v5 lite", "TPU v5e"):
        options |= _V5E_OPTIONS
    for change in changes:
        name, equals, value = change.partition("=")
        if not (name and equals and value):
            raise UserError(f"config.compiler_options: {change!r} is no name=value")
        # As JSON: true, 3 and 0.5 are no strings to the compiler.
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    scalar = jax.ShapeDtypeStruct((), int, sharding=SingleDeviceSharding(device))
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(scalar).compile()
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"config.compiler_options: {str(error).splitlines()[0]}") from error
    return options


class Device(Protocol):
    """The part of a `jax.Device` that its rate depends on."""

    @property
    def device_kind(self) -> str: ...


def peak_flops(device_kind: str) -> float | None:
    """Returns the peak rate of one device in dense bfloat16 FLOP/s, or None if it is not known."""
    # The longest match: "TPU v5" is also a part of "TPU v5 lite".
    names = [name for name in PEAK_TFLOPS if name in device_kind]
    return PEAK_TFLOPS[max(names, key=len)] * 1e12 if names else None


def mfu(flops: float, seconds: float, devices: Iterable[Device]) -> float | None:
    """Computes model FLOPs utilization: useful operations over those possible at the devices' peak rate.

    Args:
      flops: useful operations of all devices together, without recomputation.
      devices: all of one kind, for example `mesh.devices.flat`.

    Returns:
      None if the peak rate is not known, for example on CPUs.
    """
    devices = list(devices)
    peak = peak_flops(devices[0].device_kind)
    return None if peak is None else flops / (seconds * peak * len(devices))


class ProfilerWindow:
    """Profiles a window of training steps.

    Args:
      folder: the profile is written to `folder/profile`.
      first_step: first step of the window; a run that resumes within the window profiles the rest of it.
      num_steps: steps of the window; 0 disables it.
    """

    def __init__(self, folder: Path, first_step: int, num_steps: int):
        self._folder = folder / "profile"
        self._window = range(first_step, first_step + num_steps)
        self._tracing = False

    def step(self, step: int) -> None:
        """Starts or stops the profiler; must be called before each step with its number.

        All earlier steps must have finished on the device, so that the profile holds whole steps.
        """
        if step in self._window and not self._tracing:
            self._folder.mkdir(parents=True, exist_ok=True)
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True
        elif step not in self._window:
            self.close()

    def close(self) -> None:
        """Stops the profiler if training ends within the window."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
            logging.info("wrote a profile to %s", self._folder)

    def __enter__(self) -> ProfilerWindow:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
