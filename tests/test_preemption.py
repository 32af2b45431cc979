"""Real signals to a real process that trains behind the command line's error handling."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from rmsweb_jax.preemption import StopRequest

LOOP = """
import select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # Even if whoever started the tests ignores it.
from experiments.cli import user_errors
from rmsweb_jax.preemption import PreemptedError, StopRequest

with user_errors():
    with StopRequest() as stop:
        assert not stop.requested()
        print("ready", flush=True)
        while not stop.requested():
            # A step gives up the interpreter's lock; a loop that never does may miss a signal (CPython 3.11).
            select.select([], [], [], 0)
        if "save" in sys.argv:
            raise PreemptedError(7, stop.cause)
    print("after", flush=True)
    signal.pause()
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts the loop; what still runs at the end of a test is killed."""
    started = []

    def start_(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-c", LOOP, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout and process.stdout.readline() == "ready\n"
        return process

    yield start_
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_the_loop_with_its_own_code(start, number):
    process = start("save")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 75
    cause = signal.Signals(number).name
    assert error == (
        f"error: stopped by {cause} at step 7; checkpoint saved: run the same command again to continue\n"
    )


def test_outside_of_the_loop_and_for_ctrl_c_an_interrupt_stays_one(start):
    process = start("save")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error.startswith("error: interrupted")

    process = start()
    process.terminate()
    assert process.stdout and process.stdout.readline() == "after\n"
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error.startswith("error: interrupted")


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert signal.getsignal(signal.SIGTERM) != before
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested() and stop.cause == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before
