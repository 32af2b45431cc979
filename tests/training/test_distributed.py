"""Two real processes on this machine's loopback: how they find each other, begin alike and end together."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmsweb_jax.training.distributed import differences
from tests.policies import write_corpus
from tests.training.runs import Run, command
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
# Variables of this machine by which JAX would recognise a cluster.
CLUSTERS = (
    "JAX_COORDINATOR",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "KUBERNETES_",
    "SLURM_",
    "OMPI_",
    "TPU_",
)
STEPS = 60
JOIN = """
from rmsweb_jax.errors import user_errors
from rmsweb_jax.training.distributed import Hosts
with user_errors():
    Hosts()
"""
# The first process ends in one way, while the other one waits.
END = """
import signal, sys, threading, time
from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.training.distributed import Hosts
with user_errors(), Hosts() as hosts:
    hosts.meet("begin")
    if hosts.number:
        time.sleep(600)
    if sys.argv[1] == "signal":
        threading.Timer(2, signal.raise_signal, [signal.SIGTERM]).start()
        raise UserError("no such corpus")
    raise RuntimeError("a bug")
"""
# Larger than any test needs; what the messages promise is measured, not tested.
PATIENCE_S = 600


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, [1 + number % 3 for number in range(16)])
    return folder


def arguments(policy: Path | str, corpus: Path | str) -> list[str]:
    settings = {
        "model": policy,
        "corpus": corpus,
        "max_length": 256,
        "max_pixels": 4096,
        "batch_size": 4,
        "epochs": STEPS // 4,
        "row_tokens": 256,
        "row_multiple": 128,
        "trainable": "lora",
        "lora.rank": 2,
        "checkpoint_every": 2,
    }
    return command("experiments.train_sft", "configs/sft.py:smoke", settings)


def by_hand(port: int, number: int) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(number),
    }


def slurm(port: int, number: int) -> dict[str, str]:
    """What srun sets; JAX makes the port from the number of the job."""
    return {
        "SLURM_JOB_ID": str(port % 2**12),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": "0",
    }


def open_mpi(port: int, number: int) -> dict[str, str]:
    """What mpirun sets; JAX makes the port from the number of the job."""
    return {
        "OMPI_MCA_orte_hnp_uri": f"{port % 2**12 * 2**12}.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


def high_port() -> int:
    """A free port of the range from which JAX takes those of Slurm and Open MPI."""
    for port in range(2**16 - 2**12 + os.getpid() % 2**11, 2**16):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port")


def environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = device_environment(1).items()
    return {name: value for name, value in kept if not name.startswith(CLUSTERS)} | dict(own)


def run_two(
    command: list[str],
    folders: tuple[Path, Path] = (ROOT, ROOT),
    cluster: Callable[[int, int], dict[str, str]] = by_hand,
    changes: tuple[str, ...] = (),
) -> list[tuple[int, str]]:
    """Exit code and last line of each of two processes.

    Args:
      folders: the working folder of each, and where its code is.
      changes: further arguments of the second.
    """
    port = high_port()
    started = [
        subprocess.Popen(
            [sys.executable, *command, "--distributed", *(changes if number else ())],
            cwd=folder,
            env=environment(cluster(port, number)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, folder in enumerate(folders)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, last_line(output)) for process, output in zip(started, outputs, strict=True)]


def last_line(output: str) -> str:
    """The error's line; gRPC may log the end of the service after it."""
    lines = output.strip().splitlines()
    return ([line for line in lines if line.startswith("error: ")] or lines)[-1]


def test_differences_name_the_host_that_is_not_like_most():
    names = ["a", "b", "c"]
    assert differences(names, [{"x": "1", "y": "2"}] * 3) == ""
    assert "a has x = 2, but b has 1: start" in differences(names, [{"x": "2"}, {"x": "1"}, {"x": "1"}])
    assert "c has x = not there, but a has 1;" in differences(names, [{"x": "1"}, {"x": "1"}, {"y": "1"}])
    assert "b has x = 2, but a has 1:" in differences(names[:2], [{"x": "1"}, {"x": "2"}])
    many = [{str(number): str(host) for number in range(9)} for host in range(2)]
    assert "; and 4 more: start" in differences(names[:2], many)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [slurm, open_mpi])
def test_hosts_with_other_code_settings_or_workdir_are_refused(random_policy, corpus, tmp_path, cluster):
    other = tmp_path / "other"
    for package in ("rmsweb_jax", "experiments", "configs"):
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    with open(other / "rmsweb_jax" / "sft" / "loss.py", "a") as source:
        source.write("# A change.\n")
    first = tmp_path / "first"
    first.mkdir()
    for package in ("rmsweb_jax", "experiments", "configs"):
        (first / package).symlink_to(ROOT / package)
    ends = run_two(
        [*arguments(random_policy, corpus), "--workdir=run"],
        (first, other),
        cluster,
        ("--config.seed=7",),
    )
    assert [code for code, _ in ends] == [2, 2]
    line = ends[0][1]
    assert ends[1][1] == line and line.startswith("error: the hosts of this run differ: ")
    second = f"{socket.gethostname()} (process 1) has"
    for what in (
        "config.seed = 7, but",
        "rmsweb_jax/sft/step.py = ",
        "--workdir = run, a folder of that host alone, but",
    ):
        assert f"{second} {what}" in line
    assert line.count(second) == 3
    assert list((first / "run").iterdir()) == [] and not (other / "run").exists()


@pytest.mark.slow
def test_hosts_with_another_corpus_or_model_are_refused(random_policy, corpus, tmp_path):
    """Weights of the same size: the difference is in their bytes."""
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
        for package in ("rmsweb_jax", "experiments", "configs"):
            (folder / package).symlink_to(ROOT / package)
        shutil.copytree(random_policy, folder / "policy")
    shutil.copytree(corpus, folders[0] / "corpus")
    write_corpus(folders[1] / "corpus", [1, 2, 3])
    weights = next((folders[1] / "policy").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    ends = run_two([*arguments("policy", "corpus"), f"--workdir={tmp_path / 'run'}"], folders)
    assert [code for code, _ in ends] == [2, 2]
    for _, line in ends:
        # Where one process ends first, the other may end with its line.
        assert "the hosts of this run differ: " in line
        for what in (f"base model ({weights.name}) = ", "corpus (records) = "):
            assert f"{socket.gethostname()} (process 1) has {what}" in line


@pytest.mark.slow
def test_an_error_of_one_host_ends_all_with_it(random_policy, corpus, tmp_path):
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
        for package in ("rmsweb_jax", "experiments", "configs"):
            (folder / package).symlink_to(ROOT / package)
        shutil.copytree(corpus, folder / "corpus")
    next((folders[1] / "corpus").glob("images-*")).unlink()
    ends = run_two([*arguments(random_policy, "corpus"), f"--workdir={tmp_path / 'run'}"], folders)
    assert ends[1][0] == ends[0][0] == 2
    assert (
        ends[0][1] == f"error: {socket.gethostname()} (process 1) ended: {ends[1][1].removeprefix('error: ')}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "line"), [("signal", 2, "no such corpus"), ("bug", 1, "RuntimeError: a bug")]
)
def test_all_end_with_the_first_error(how, code, line):
    """A signal comes while the others hear of an error; an error of no known type may be theirs at first."""
    other = f"error: {socket.gethostname()} (process 0) ended: {line}"
    assert run_two(["-c", END, how]) == [(code, f"error: {line}"), (code, other)]


def test_no_cluster_is_one_line():
    ends = {}
    for name, own in {"none": {}, "part": {"JAX_PROCESS_ID": "1"}}.items():
        # What `--distributed` does first, in a process that has asked JAX for nothing yet.
        command = [sys.executable, "-c", JOIN]
        done = subprocess.run(command, cwd=ROOT, env=environment(own), capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        ends[name] = done.stderr
    assert "no cluster found: looked for Cloud TPU" in ends["none"] and "JAX_NUM_PROCESSES" in ends["none"]
    assert "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES not set, but JAX_PROCESS_ID" in ends["part"]


@pytest.fixture(scope="module")
def whole(random_policy, corpus, tmp_path_factory) -> Run:
    """A run of two processes from beginning to end."""
    run = Run(tmp_path_factory.mktemp("whole"), "run", arguments(random_policy, corpus), hosts=2)
    run.finish(2)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_the_loss_of_a_host_ends_the_other_and_the_run_goes_on_as_if_nothing_was(
    whole, random_policy, corpus, tmp_path, lost
):
    run = Run(tmp_path, "run", arguments(random_policy, corpus), hosts=2)
    started = run.start(2)
    while run.logged() < 3:
        assert [process.poll() for process in started] == [None, None]
        time.sleep(0.01)
    started[lost].send_signal(signal.SIGKILL)
    codes = [process.wait(PATIENCE_S) for process in started]
    assert codes[lost] == -signal.SIGKILL and codes[1 - lost] == -signal.SIGABRT
    assert "the JAX distributed service detected fatal errors" in (tmp_path / "log").read_text()
    assert run.logged() < STEPS and not (run.workdir / "report.json").exists()
    run.finish(2)
    assert json.loads((run.workdir / "report.json").read_text())["steps"] == STEPS
    assert run.curves() == whole.curves()
    assert run.digests(STEPS) == whole.digests(STEPS)
