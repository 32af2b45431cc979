"""Programs of the real training steps, compiled for the machine that tests run on."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest

from configs.rl import get_config as rl_config
from configs.sft import get_config as sft_config
from rmsweb_jax.aot.programs import Program, full_rows, rl_programs, sampler_programs, sft_programs
from rmsweb_jax.aot.report import compile_program, table
from rmsweb_jax.data.packing import TreeSize, useful_work
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.flops import training_flops
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.training.mesh import choose_remat, device_bytes, fits_device, make_mesh
from tests.tiny import TINY

HBM_GIB = 4.0
# Patches of 4: images of 64 pixels are 4 of them.
PIXELS = 64


def sft_settings(**changes) -> SftConfig:
    config = sft_config("smoke")
    config.update({"corpus": "-", "max_length": 64, "max_pixels": PIXELS})
    config.update({"row_tokens": 128, "row_multiple": 32, "trainable": "lora", **changes})
    return from_config(SftConfig, config)


def rl_settings(**changes) -> RlConfig:
    config = rl_config("smoke")
    config.update({"prompts": "-", "model": "-", "max_prompt_tokens": 64, "max_pixels": PIXELS})
    config.update({"row_tokens": 128, "row_multiple": 32, **changes})
    return from_config(RlConfig, config)


def sft(settings: SftConfig) -> list[Program]:
    """Of samples of 64 tokens, 16 of them targets."""
    shape, work = full_rows(settings, TINY, make_mesh(), TreeSize(48, (16,)), images=1)
    return sft_programs(settings, TINY, make_mesh(), shape, work)


def rl(settings: RlConfig) -> list[Program]:
    """Of prompts of 64 tokens before responses of 32."""
    group = TreeSize(64, (32,) * (settings.num_samples + 1))
    shape, work = full_rows(settings, TINY, make_mesh(), group, images=1)
    update = rl_programs(settings, TINY, make_mesh(), shape, work)
    return [*update, *sampler_programs(settings, TINY, make_mesh())]


def compiled(programs: list[Program]):
    return [compile_program(program, HBM_GIB, 1) for program in programs]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_the_programs_of_a_run_compile_and_are_measured(stage):
    results = compiled(sft(sft_settings()) if stage == "sft" else rl(rl_settings()))
    gradient, update = results[:2]
    assert gradient.fits and update.fits and not gradient.error
    assert gradient.peak_gib > gradient.parts_gib["weights"] > 0
    assert gradient.parts_gib["activations"] > 0
    assert 0 < gradient.mfu_ceiling < 1
    # AdamW keeps two moments of every adapter.
    assert gradient.parts_gib["optimizer"] == update.parts_gib["optimizer"]
    assert update.parts_gib["optimizer"] == pytest.approx(2 * update.parts_gib["adapters"], rel=0.01)
    lines = table(results, HBM_GIB).splitlines()
    assert len(lines) == 2 + len(results) and len({line.count("|") for line in lines}) == 1


def test_bytes_are_those_of_the_arrays():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    arrays = [jax.ShapeDtypeStruct((3, 5), dtype, sharding=sharding) for dtype in (jnp.bfloat16, jnp.int32)]
    assert device_bytes(arrays) == 3 * 5 * (2 + 4)


def test_a_program_that_does_not_fit_is_a_row_of_the_table():
    class TooLarge:
        def compile(self):
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
                "required for HLO temporaries (24.20G) exceeds available HBM (15.75G). HLO module: jit_add."
            )

    (result,) = compiled([Program("gradient", TooLarge, {}, 10, 20)])
    assert not result.fits and result.peak_gib == 24.2 and "15.75G" in result.error
    assert (result.executed_tflops, result.mfu_ceiling) == (20 / 1e12, 0.5)
    assert "does not fit: 24.20" in table([result], HBM_GIB)


@pytest.mark.slow
def test_arrays_that_stay_on_the_device_count_in_its_peak():
    (gradient, *_) = sft(sft_settings())
    (alone, both) = compiled([dataclasses.replace(gradient, resident={}), gradient])
    optimizer = device_bytes(gradient.resident) / 2**30
    assert both.peak_gib == pytest.approx(alone.peak_gib + optimizer) and both.fits
    result = compile_program(gradient, alone.peak_gib + optimizer / 2, 1)
    assert not result.fits and "with optimizer, which stay on the device" in result.error


def test_the_cheapest_rematerialization_that_fits_is_chosen():
    tried = []

    def fits(policy: str, least: str) -> bool:
        tried.append(policy)
        return policy == least

    assert choose_remat(lambda policy: fits(policy, "named")) == "named"
    assert choose_remat(lambda policy: fits(policy, "full")) == "full"
    assert tried == ["named", "named"]


@pytest.mark.parametrize(("mib", "chosen"), [(4, "full"), (64, "named")])
def test_training_looks_at_the_memory_of_its_device(monkeypatch, mib, chosen):
    """The product of two matrices of 4 MiB takes 12 MiB."""
    device = types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": mib << 20})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    matrix = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    tried = []

    def fits(policy: str) -> bool:
        tried.append(policy)
        return fits_device(lambda: jax.jit(jnp.matmul).lower(matrix, matrix), resident=())

    assert choose_remat(fits) == chosen and tried == ["named"]


def test_a_prompt_and_a_response_that_fit_no_row_are_one_line():
    with pytest.raises(UserError, match=r"config\.row_tokens=64"):
        rl(rl_settings(row_tokens=64))
    with pytest.raises(UserError, match=r"config\.row_tokens=32"):
        sft(sft_settings(row_tokens=32))


def test_rows_are_as_full_as_their_width_allows():
    """Two samples of 64 tokens; a prompt of 64 before two of the group's responses."""
    patches = PIXELS // TINY.vision.patch_size**2
    for settings, programs, trees in (
        (sft_settings(), sft(sft_settings()), [TreeSize(48, (16,), (patches,))] * 2),
        (rl_settings(), rl(rl_settings()), [TreeSize(64, (32, 32), (patches,))]),
    ):
        parts, work = programs[0].arguments, useful_work(trees)
        batch, adapters = parts["batch"], sum(leaf.size for leaf in jax.tree.leaves(parts["adapters"]))
        assert batch.inputs.tokens.shape == batch.scored.index.shape == (1, 128)
        assert len(batch.inputs.vision.patches) == work.patches
        assert programs[0].useful_flops == training_flops(TINY, work, adapters, settings.remat).useful
