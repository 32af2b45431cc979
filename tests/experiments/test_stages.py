"""Chains of stages as real processes: order, failures, shares of the cores, stops."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from experiments import stages
from experiments.stages import Chain, Stage, core_shares, run_stages


def script(folder: Path, name: str, text: str) -> Stage:
    """A stage that runs `text` in a module of its own, which finds its workdir in `workdir`."""
    (folder / f"{name}.py").write_text(
        "import json, os, pathlib, sys\nworkdir = pathlib.Path(sys.argv[-1].partition('=')[2])\n" + text
    )
    return Stage(name, folder / name, name, ())


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(chains: list[Chain], jobs: int) -> dict[str, list[tuple[str, str]]]:
        """Chain -> (stage, error) of each end."""
        ends: dict[str, list[tuple[str, str]]] = {}
        for end in run_stages(chains, tmp_path / "cache", jobs):
            ends.setdefault(end.chain.name, []).append((end.stage.name, end.error))
            assert end.last == (end.error != "" or end.stage is end.chain.stages[-1])
        return ends

    return run


def test_chains_run_in_order_and_a_failure_ends_its_own_alone(tmp_path, run):
    done = "(workdir / 'report.json').write_text(json.dumps(sorted(os.sched_getaffinity(0))))\n"
    first = script(tmp_path, "first", done)
    second = script(
        tmp_path, "second", f"assert os.path.exists({str(first.folder / 'report.json')!r})\n{done}"
    )
    bad = script(tmp_path, "bad", "print('error: no such thing', file=sys.stderr); sys.exit(2)\n")
    never = script(tmp_path, "never", done)
    silent = script(tmp_path, "silent", "")
    chains = [
        Chain("good", (first, second)),
        Chain("bad", (bad, never)),
        Chain("silent", (silent,)),
    ]
    ends = run(chains, 2)
    assert ends["good"] == [("first", ""), ("second", "")]
    ((_, error),) = ends["bad"]
    assert re.fullmatch(r"bad: no such thing \(log: .*bad/log\.txt\)", error)
    assert not never.done
    # A stage that ends well without a report has not done its work.
    ((_, error),) = ends["silent"]
    assert "exit code 0" in error
    cores = json.loads((first.folder / "report.json").read_text())
    assert set(cores) in core_shares(2)
    before = (first.folder / "report.json").stat().st_mtime_ns
    assert run(chains[:1], 1)["good"] == [("first", ""), ("second", "")]
    assert (first.folder / "report.json").stat().st_mtime_ns == before


def test_a_stage_that_is_done_runs_again_where_it_always_must(tmp_path, run):
    count = "(workdir / 'report.json').write_bytes(b'')\n(workdir / 'runs').open('a').write('.')\n"
    once = script(tmp_path, "once", count)
    always = script(tmp_path, "always", "(workdir / 'runs').open('a').write('.')\n")
    always = dataclasses.replace(always, always=True)
    for _ in range(2):
        assert run([Chain("a", (once, always))], 1)["a"] == [("once", ""), ("always", "")]
    assert (once.folder / "runs").read_text() == "."
    assert (always.folder / "runs").read_text() == ".."


def test_stages_share_compiled_programs(tmp_path, run, monkeypatch):
    show = "(workdir / 'report.json').write_text(os.environ['JAX_COMPILATION_CACHE_DIR'])\n"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    own, given = script(tmp_path, "own", show), script(tmp_path, "given", show)
    run([Chain("a", (own,))], 1)
    assert (own.folder / "report.json").read_text() == str(tmp_path / "cache")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/home/of/programs")
    run([Chain("b", (given,))], 1)
    assert (given.folder / "report.json").read_text() == "/home/of/programs"


def test_a_stage_that_makes_no_progress_is_stopped(tmp_path, run, monkeypatch):
    """While it prints it is not stuck, however long that takes."""
    monkeypatch.setattr(stages, "_STALL_S", 5.0)
    text = (
        "import signal, time\nfor _ in range(12): print('step', flush=True); time.sleep(0.5)\nsignal.pause()"
    )
    ((_, error),) = run([Chain("a", (script(tmp_path, "stuck", text),))], 1)["a"]
    assert error.startswith("stuck for 0 min; stuck: KeyboardInterrupt")
    assert (tmp_path / "stuck/log.txt").read_text().count("step\n") == 12


def test_closing_stops_running_jobs_in_order(tmp_path, monkeypatch):
    # Opening a pipe waits for its other side, so that the quick one ends when the slow one is under way.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = script(
        tmp_path,
        "slow",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        f"open({str(pipe)!r}, 'w')\nsignal.sigwait([signal.SIGINT])\n(workdir / 'stopped').touch()\n",
    )
    quick = script(tmp_path, "quick", f"open({str(pipe)!r})\n(workdir / 'report.json').touch()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ends = run_stages([Chain("slow", (slow,)), Chain("quick", (quick,))], tmp_path / "cache", 2)
    end = next(ends)
    assert (end.chain.name, end.error) == ("quick", "")
    ends.close()
    assert (slow.folder / "stopped").exists()


@pytest.mark.parametrize("jobs", [1, 2, 3, 7])
def test_cores_are_dealt_out(jobs):
    cores = os.sched_getaffinity(0)
    shares = core_shares(jobs)
    assert len(shares) == jobs
    assert all(shares)
    assert set().union(*shares) == cores
    if jobs <= len(cores):
        assert sum(map(len, shares)) == len(cores)
