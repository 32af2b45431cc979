"""The benchmark at its smallest: all three programs run, and their rates follow from their seconds."""

import pytest

from experiments.benchmark import measure, page
from experiments.benchmark_settings import BenchmarkConfig
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config
from tests.training.test_distributed import run_two

SMALL = BenchmarkConfig(
    model="tiny", dtype="float32", prompt=32, response=4, image_side=2, samples=2, groups=1, num_samples=2
)

TIMED = """
from experiments.benchmark import Setup
from experiments.benchmark_settings import BenchmarkConfig
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.training.distributed import join_processes
from rmsweb_jax.training.mesh import make_mesh
join_processes()
setup = Setup(BenchmarkConfig(), SIZES["8b"], make_mesh(fsdp=-1))
print(setup.timed("nothing", lambda: 0, tokens=1, flops=1)["program"])
"""


@pytest.mark.slow
def test_every_host_of_a_pod_measures():
    assert run_two(["-c", TIMED]) == [(0, "nothing")] * 2


@pytest.mark.slow
def test_all_programs_are_measured():
    report = measure(SMALL.model_copy(update={"peak_tflops": 1.0, "warmup": 1, "steps": 2}))
    rows = {row["program"]: row for row in report["programs"]}
    # Two samples; a prompt with two replies; the tokens of these replies.
    assert {name: row["tokens_per_step"] for name, row in rows.items()} == {
        "SFT": 2 * 36,
        "RL update": 32 + 2 * 4,
        "engine": 2 * 4,
    }
    for row in rows.values():
        assert 0 < row["fastest"] <= row["step_seconds"] <= row["slowest"]
        assert row["tokens_per_second"] == pytest.approx(row["tokens_per_step"] / row["step_seconds"])
        assert row["mfu"] == pytest.approx(row["tflops_per_second"])
    assert all(f"| {name} |" in page(report, "COMMAND") for name in rows)


def test_a_prompt_without_room_for_its_image_is_refused():
    with pytest.raises(UserError, match=r"config\.prompt=6 .* make it 7 or more"):
        from_config(BenchmarkConfig, {"image_side": 2, "prompt": 6})
    with pytest.raises(UserError, match=r"config\.steps is 0"):
        from_config(BenchmarkConfig, {"steps": 0})
