"""Child processes, with real processes."""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import httpx
import psutil
import pytest

from rmsweb_jax import processes
from rmsweb_jax.processes import ChildProcess, StallClock, bypass_proxy_locally, wait_for_any
from tests.loopback import PageHandler, serving

# Says when its handlers are in place, and has a child of its own that ignores SIGINT.
FAMILY = """
import signal, subprocess, sys
inner = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
WAIT = FAMILY + "signal.pause()"
STUBBORN = FAMILY + "signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def lines_of(log: Path, count: int) -> list[str]:
    """Waits for that many lines of a log."""
    pause = threading.Event()
    while len(lines := log.read_text().splitlines() if log.exists() else []) < count:
        pause.wait(0.02)
    return lines


def is_gone(pid: int) -> bool:
    try:
        psutil.wait_procs([psutil.Process(pid)], timeout=60)
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_stopping_interrupts_and_ends_the_whole_group(tmp_path):
    text = FAMILY + "try: signal.pause()\nexcept KeyboardInterrupt: print('interrupted')"
    with ChildProcess("stage", python(text), tmp_path / "log.txt") as child:
        (grandchild,) = lines_of(tmp_path / "log.txt", 1)
        assert child.poll() is None
    assert child.poll() == 0
    assert is_gone(int(grandchild))
    assert (tmp_path / "log.txt").read_text().splitlines()[1:] == ["interrupted"]


def test_a_child_that_ignores_the_interrupt_is_killed_after_its_grace(tmp_path):
    with ChildProcess("stage", python(STUBBORN), tmp_path / "log.txt", grace_s=0.2) as child:
        grandchild, _ = lines_of(tmp_path / "log.txt", 2)
    assert child.poll() == -signal.SIGKILL
    assert is_gone(int(grandchild))


def test_processes_left_by_an_ended_child_are_killed(tmp_path):
    child = ChildProcess("stage", python(FAMILY), tmp_path / "log.txt")
    assert child.wait() == 0
    assert is_gone(int(lines_of(tmp_path / "log.txt", 1)[0]))


def test_an_interrupt_reaches_a_child_of_a_process_that_ignores_it(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ChildProcess("stage", python(WAIT), tmp_path / "log.txt") as child:
            lines_of(tmp_path / "log.txt", 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.poll() == -signal.SIGINT


def test_a_child_dies_with_a_parent_that_is_killed(tmp_path):
    script = (
        "import signal, sys; from pathlib import Path; from rmsweb_jax.processes import ChildProcess\n"
        "child = ChildProcess('stage', [sys.executable, '-c', sys.argv[1]], Path(sys.argv[2]))\n"
        "print(child.pid, flush=True)\nsignal.pause()"
    )
    arguments = ("import os, signal; print(os.getpid(), flush=True); signal.pause()", tmp_path / "log.txt")
    with subprocess.Popen([*python(script), *arguments], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lines_of(tmp_path / "log.txt", 1) == [str(pid)]
        parent.kill()
    assert is_gone(pid)


def test_a_child_of_a_process_with_jax_starts_without_a_warning(tmp_path):
    script = (
        "import sys, jax; from pathlib import Path; from rmsweb_jax.processes import ChildProcess\n"
        "jax.devices()\n"
        "with ChildProcess('stage', [sys.executable, '-c', ''], Path(sys.argv[1])) as one:\n    one.wait()"
    )
    done = subprocess.run([*python(script), tmp_path / "log.txt"], check=True, capture_output=True, text=True)
    assert "os.fork()" not in done.stderr


def test_a_failure_quotes_the_last_line_of_this_run_and_the_log_is_kept(tmp_path):
    log = tmp_path / "run" / "log.txt"
    fails = "import sys; print('working'); sys.exit('error: no such model')"
    child = ChildProcess("sft", python(fails), log)
    assert child.wait() == 1
    assert str(child.failure()) == f"sft: no such model (log: {log})"
    silent = ChildProcess("sft", python("raise SystemExit(3)"), log)
    silent.wait()
    assert str(silent.failure()) == f"sft: exit code 3 (log: {log})"
    assert log.read_text() == "working\nerror: no such model\n"


def test_one_of_several_that_ends_is_noticed(tmp_path):
    with ChildProcess("slow", python(WAIT), tmp_path / "slow.txt") as slow:
        quick = ChildProcess("quick", python(""), tmp_path / "quick.txt")
        wait_for_any([slow, quick], 300)
        assert (slow.poll(), quick.poll()) == (None, 0)
        assert slow.wait(0.01) is None


def test_a_child_can_be_held_to_cores_and_talked_to(tmp_path):
    core = min(os.sched_getaffinity(0))
    echo = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['WORD'], input(), flush=True)"
    pipe = subprocess.PIPE
    with ChildProcess(
        "echo", python(echo), tmp_path / "log", env={"WORD": "a"}, cores={core}, stdin=pipe, stdout=pipe
    ) as child:
        child.stdin.write(b"b\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"[{core}] a b\n".encode()


def test_activity_changes_while_a_child_prints_or_computes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_WORK_S", 1)  # Coarse enough to be seen, and ten times quicker.
    text = "import time\nwhile time.process_time() < 1.9: pass\nprint('done', flush=True)\ntime.sleep(60)"
    with ChildProcess("busy", python(text), tmp_path / "log.txt") as child:
        seen = {child.activity()}
        while len(seen) < 3:
            child.wait(0.1)
            seen.add(child.activity())
    assert {size for size, _ in seen} == {0, 5} and {ticks for _, ticks in seen} == {0, 1}


def test_a_stall_is_timed_from_the_last_change(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = StallClock()
    assert clock.seconds("a") == 0
    now = 5.0
    assert clock.seconds("a") == 5
    assert clock.seconds("b") == 0


class Page(PageHandler):
    def get(self) -> None:
        self.reply("a page")


def test_this_machine_is_reached_although_the_environment_has_a_proxy(monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "intranet.example")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(Page) as address:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{address}")
        # What the function sets is undone with it.
        monkeypatch.setenv("no_proxy", "")
        bypass_proxy_locally()
        assert httpx.get(f"http://{address}").text == "a page"
        with urllib.request.urlopen(f"http://{address}") as answer:
            assert answer.read() == b"a page"
    assert urllib.request.proxy_bypass("intranet.example")
    assert not urllib.request.proxy_bypass("elsewhere.example")
