import dataclasses

import jax
import jax.numpy as jnp
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.performance import (
    ProfilerWindow,
    compiler_options,
    mfu,
    peak_flops,
    peak_hbm_bytes,
)


@dataclasses.dataclass(frozen=True)
class Device:
    """The name of a device that is not here, used to look up its rate."""

    device_kind: str


@pytest.mark.parametrize(
    "kind, tflops, gb_per_s",
    [
        ("TPU v4", 275, 1200),
        ("TPU v5 lite", 197, 819),
        ("TPU v5", 459, 2765),
        ("TPU v5p", 459, 2765),
        ("TPU v6 lite", 918, 1638),
        ("NVIDIA H200", 989, 4800),
        ("NVIDIA H200 NVL", 989, 4800),
        ("NVIDIA H100 80GB HBM3", 989, 3350),
        ("NVIDIA H100 PCIe", 756, 2000),
        ("NVIDIA H100 NVL", 835, 3900),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA GB200", 2500, 8000),
        ("NVIDIA B200", 2250, 8000),
    ],
)
def test_rates_of_known_devices(kind, tflops, gb_per_s):
    assert peak_flops(kind) == tflops * 1e12 and peak_hbm_bytes(kind) == gb_per_s * 1e9
    assert mfu(tflops * 1e12, 1.0, [Device(kind)] * 4) == pytest.approx(0.25)


def test_an_unknown_device_has_no_mfu():
    assert mfu(1e12, 1.0, [Device("NVIDIA GeForce RTX 4090")]) is None
    assert mfu(1e12, 1.0, jax.devices("cpu")) is None


def test_the_rate_of_memory_may_be_unknown():
    assert peak_flops("NVIDIA GH200 480GB") == 989e12
    assert peak_hbm_bytes("NVIDIA GH200 480GB") is None and peak_hbm_bytes("cpu") is None


def traced(folder) -> set[str]:
    """Names of the steps that the traces hold."""
    data = b"".join(path.read_bytes() for path in folder.rglob("*.xplane.pb"))
    return {name for number in range(6) if (name := f"step_number_{number}").encode() in data}


def train(folder, first_step: int, num_steps: int, steps: range) -> None:
    with ProfilerWindow(folder, first_step, num_steps) as profiler:
        for step in steps:
            profiler.step(step)
            with jax.profiler.TraceAnnotation(f"step_number_{step}"):
                jnp.ones(3).block_until_ready()


@pytest.mark.parametrize(
    "first_step, num_steps, steps, expected",
    [
        (2, 2, range(6), {2, 3}),
        (3, 9, range(5), {3, 4}),
        (1, 3, range(3, 6), {3}),
        (1, 1, range(2, 6), set()),
    ],
)
def test_traces_the_steps_of_the_window(tmp_path, first_step, num_steps, steps, expected):
    train(tmp_path, first_step, num_steps, steps)
    assert traced(tmp_path / "profile") == {f"step_number_{number}" for number in expected}


def test_no_steps_is_off(tmp_path):
    train(tmp_path, 0, 0, range(3))
    assert not list(tmp_path.iterdir())


CPU = jax.devices("cpu")[0]


def test_compiler_options_reach_the_compiler():
    options = compiler_options(CPU, ("xla_cpu_enable_fast_math=false",))
    assert options == {"xla_cpu_enable_fast_math": False}
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [("xla_other", "'xla_other' is no name=value"), ("no_such=1", "No such compile option.*no_such")],
)
def test_an_unusable_compiler_option_is_one_line(option, message):
    with pytest.raises(UserError, match=message) as error:
        compiler_options(CPU, (option,))
    assert "\n" not in str(error.value)
