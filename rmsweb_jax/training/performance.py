"""Performance of a run: its share of the devices' peak rate (MFU), and profiles of single steps."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
from jax.sharding import SingleDeviceSharding

from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Peak:
    """Peak rates of a JAX device.

    Attributes:
      tflops: dense bfloat16 matrix rate in TFLOP/s.
      hbm_gb_per_s: rate of its memory, 10**9 bytes a second; None if not known.
    """

    tflops: float
    hbm_gb_per_s: float | None = None


# By a part of a device's `device_kind`; the longest match counts. A name that stands for several models has
# the highest rate of them, since floors of time must stay lower bounds. Some TPUs have two names in JAX.
PEAKS = {
    # docs.cloud.google.com/tpu/docs/v4.
    "TPU v4": Peak(275, 1200),
    # Jouppi et al. 2021, Ten Lessons From Three Generations Shaped Google's TPUv4i.
    "TPU v4 lite": Peak(138),
    # docs.cloud.google.com/tpu/docs/v5e.
    "TPU v5 lite": Peak(197, 819),
    "TPU v5e": Peak(197, 819),
    # docs.cloud.google.com/tpu/docs/v5p.
    "TPU v5": Peak(459, 2765),
    "TPU v5p": Peak(459, 2765),
    # docs.cloud.google.com/tpu/docs/v6e.
    "TPU v6 lite": Peak(918, 1638),
    "TPU v6e": Peak(918, 1638),
    # docs.cloud.google.com/tpu/docs/tpu7x: 2,307 TFLOP/s and 7,380 GB/s for a chip, which has two devices.
    "TPU7x": Peak(1153.5, 3690),
    # NVIDIA's data sheet of the A100 (1758950): SXM with 80 GB first.
    "A100": Peak(312, 2039),
    "A100-SXM4-40GB": Peak(312, 1555),
    "A100-PCIE-40GB": Peak(312, 1555),
    "A100 80GB PCIe": Peak(312, 1935),
    # Of the H100: SXM first. Matrix rates are half of those with sparsity, here and below.
    "H100": Peak(989, 3350),
    "H100 PCIe": Peak(756, 2000),
    "H100 NVL": Peak(835, 3900),
    # nvidia.com/en-us/data-center/h200; NVL has 4.8 TB/s there and 4.2 in the data sheet.
    "H200": Peak(989, 4800),
    "GH200": Peak(989),
    # nvidia.com/en-us/data-center/dgx-b200: 64 TB/s for eight; 7.7 for each in Blackwell's technical brief.
    "B200": Peak(2250, 8000),
    # nvidia.com/en-us/data-center/gb200-nvl72: 576 TB/s for 72.
    "GB200": Peak(2500, 8000),
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
    peak = _peak(device_kind)
    return None if peak is None else peak.tflops * 1e12


def peak_hbm_bytes(device_kind: str) -> float | None:
    """Returns the peak rate of one device's memory in bytes a second, or None if it is not known."""
    peak = _peak(device_kind)
    return None if peak is None or peak.hbm_gb_per_s is None else peak.hbm_gb_per_s * 1e9


def _peak(device_kind: str) -> Peak | None:
    # The longest match: "TPU v5" is also a part of "TPU v5 lite".
    names = [name for name in PEAKS if name in device_kind]
    return PEAKS[max(names, key=len)] if names else None


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
