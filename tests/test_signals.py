"""Signals, with real processes: they are noted once, and end a process at any moment."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from rmsweb_jax.signals import STOP_SIGNALS, StopRequest
from tests.test_processes import is_gone

BEGIN = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    # Even if the parent of the tests ignores it; Python would have set this handler.
    signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
from rmsweb_jax import signals
from rmsweb_jax.errors import StoppedError, user_errors
with user_errors():
    if "jax" in sys.argv:
        signals.end_at_once()
"""
LOOP = """
    with signals.StopRequest() as stop:
        assert not stop.requested
        print("ready", flush=True)
        import time
        while not stop.requested:
            time.sleep(0.01)
        if "save" in sys.argv:
            raise StoppedError("step 7 is saved", stop.cause)
    print("after", flush=True)
    while True:
        time.sleep(1000)
"""
# A mutex that is locked twice: as in a compiler, no handler runs in the main thread and no call returns.
DEAF = """
    import ctypes
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    print("not flushed")
"""
COMPILES = (
    BEGIN
    + DEAF
    + """
    print("ready", file=sys.__stderr__, flush=True)
    lock(mutex)
"""
)
SAVES = (
    BEGIN
    + DEAF
    + """
    signals._REPEATED_S = 5.0  # The second one may come late.
    with signals.StopRequest() as stop:
        print("ready", file=sys.__stderr__, flush=True)
        import threading
        def tell():
            while not stop.requested:
                pass
            print("saving", file=sys.__stderr__, flush=True)
        threading.Thread(target=tell).start()
        lock(mutex)
"""
)
# The workers that a process has started end with it. Its terminal is slow.
WORKERS = (
    BEGIN
    + """
    import multiprocessing, os, time
    write = os.write
    def write_slowly(*arguments):
        time.sleep(0.3)
        return write(*arguments)
    os.write = write_slowly
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10000,))
    worker.start()
    print("ready", worker.pid, flush=True)
    worker.join()
"""
)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a script; what still runs at the end of a test is killed."""
    started = []

    def start_(script: str, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-c", script, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start_
    for process in started:
        process.kill()
        process.wait()


def line(process: subprocess.Popen, stream: str = "stdout") -> str:
    pipe = getattr(process, stream)
    assert pipe is not None
    return pipe.readline().strip()


@pytest.mark.parametrize("kind", ["no jax", "jax"])
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_loop_notes_a_signal_and_ends_with_its_code(start, number, kind):
    process = start(BEGIN + LOOP, "save", kind)
    assert line(process) == "ready"
    process.send_signal(number)
    _, error = process.communicate()
    code, cause = {
        signal.SIGINT: (130, "interrupted"),
        signal.SIGTERM: (75, "stopped by SIGTERM"),
        signal.SIGUSR1: (75, "stopped by SIGUSR1"),
    }[number]
    assert process.returncode == code
    assert error == f"error: {cause}; step 7 is saved: run the same command again to continue\n"


@pytest.mark.parametrize("kind", ["no jax", "jax"])
def test_outside_of_the_loop_a_signal_ends_at_once(start, kind):
    process = start(BEGIN + LOOP, kind)
    assert line(process) == "ready"
    process.terminate()
    assert line(process) == "after"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130 and error.count("\n") == 1
    assert error.startswith("error: interrupted; what was ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_process_that_is_deep_in_a_library_ends_in_one_line(start, number, code):
    process = start(COMPILES, "jax")
    assert line(process, "stderr") == "ready"
    process.send_signal(number)
    output, error = process.communicate(timeout=600)
    assert process.returncode == code and output == "not flushed\n"
    assert error.count("\n") == 1 and "; what was saved before is kept" in error


def test_a_second_signal_ends_what_the_first_one_does_not(start):
    process = start(SAVES, "jax")
    assert line(process, "stderr") == "ready"
    process.send_signal(signal.SIGINT)
    assert line(process, "stderr") == "saving"
    # A launcher passes the same Ctrl-C on: it counts once.
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(6.0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=600)
    assert (process.returncode, error) == (130, "error: interrupted; what was saved before is kept\n")


def test_workers_end_with_their_process(start):
    process = start(WORKERS, "jax")
    worker = int(line(process).split()[1])
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    # Its pipes end with the worker.
    _, error = process.communicate(timeout=600)
    assert error == "error: interrupted; what was saved before is kept\n"
    assert is_gone(worker)


def test_what_is_ignored_from_the_start_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_request_within_another_shares_its_signal_and_handlers_are_put_back():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with StopRequest() as outer:
        with StopRequest() as inner:
            signal.raise_signal(signal.SIGUSR1)
            assert inner.requested and outer.requested and inner.cause == outer.cause == "SIGUSR1"
        with StopRequest() as later:
            assert later.requested and later.cause == "SIGUSR1"
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    with StopRequest() as again:
        assert not again.requested and again.cause == "SIGTERM"


def test_a_request_in_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def enter() -> None:
        with StopRequest():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]
