"""Training steps and samples give the same numbers on one device, on eight, and on two processes of four."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import free_port
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]


def start(devices: int, *arguments: str) -> subprocess.Popen[str]:
    """The steps' script in a process that sees `devices` virtual devices."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.qwen.sharded_steps", *arguments],
        cwd=ROOT,
        env=device_environment(devices),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def figures(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """The last line that each printed, as JSON; the first to fail ends the others."""
    with ThreadPoolExecutor(len(processes)) as pool:
        waiting = {pool.submit(process.communicate, timeout=3000): process for process in processes}
        try:
            for future in as_completed(waiting):
                assert waiting[future].wait() == 0, future.result()[1]
        finally:
            for process in processes:
                process.kill()
    return [json.loads(future.result()[0].splitlines()[-1]) for future in waiting]


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """Eight devices (data 2 x fsdp 2 x tensor 2) against one."""
    return figures([start(8)])[0]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_eight_devices_equal_one(compared, stage):
    assert compared[stage]["log_probs"] <= 1e-5
    assert compared[stage]["gradients"] <= 1e-5
    assert compared[stage]["metrics"] <= 1e-5
    assert compared["one_device"]["norm/gradient"] > 1


@pytest.mark.slow
def test_eight_devices_sample_the_same_tokens_as_one(compared):
    assert compared["samples"]["differing"] == 0
    assert compared["samples"]["log_probs"] <= 1e-5
    assert compared["samples"]["distinct"] > 10


@pytest.mark.slow
def test_two_processes_equal_one(compared):
    coordinator = f"127.0.0.1:{free_port()}"
    found = figures([start(4, coordinator, "2", str(process)) for process in range(2)])
    rows = {
        "alternate rows": ([0, 1, 4, 5], [2, 3, 6, 7]),
        "shared rows": ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
    }
    for process, views in enumerate(found):
        assert (views["processes"], views["devices"]) == (2, 4)
        for layout, of_process in rows.items():
            assert views[layout]["rows"] == of_process[process]
            assert views[layout]["metrics"] == pytest.approx(compared["one_device"], abs=1e-5)


def test_a_process_that_fails_ends_the_others():
    codes = ["import signal; signal.pause()", "raise ValueError('broken')"]
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for code in codes
    ]
    with pytest.raises(AssertionError, match="broken"):
        figures(processes)
    assert all(process.wait() != 0 for process in processes)
