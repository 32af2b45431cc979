"""Every file of the launch kit starts a real script with flags and settings that exist."""

import itertools
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.launch.kit import (
    HOSTS,
    KIT,
    ROOT,
    SKYPILOT,
    STAGES,
    TPU_FILES,
    TRAINING,
    VARIABLES,
    Machine,
    compile_flags,
    filled,
    sky_task,
    slices,
    started,
)

STAGE = "scripts/launch/stage.sh"


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def parse(lines):
    """Exit codes of the scripts themselves, and what they say of their flags and settings."""
    command = [sys.executable, "-m", "tests.launch.flags"]
    done = subprocess.run(
        command, cwd=ROOT, input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_stages_are_scripts_with_settings_that_exist(machine):
    lines = []
    for stage in STAGES:
        flags = ["--distributed"] if stage in TRAINING else []
        lines.append(machine.start("sh", STAGE, stage, *flags, **VARIABLES, PARTS="3"))
    lines.append(machine.start("sh", STAGE, "sft", **VARIABLES | {"FLAGS": "--config.rank=1"}))
    lines.append(["experiments.train_sft", "--config=configs/sft.py:8b", "--workdir=x"])
    *right, wrong, missing = parse(lines)
    assert not [output for code, output in right if code]
    assert wrong[0] and "unknown setting config.rank" in wrong[1]
    assert missing[0]


@pytest.mark.parametrize("size", ["8b", "32b", "smoke"])
def test_the_model_follows_from_the_size(machine, size):
    names = {"8b": "Qwen/Qwen3-VL-8B-Instruct", "32b": "Qwen/Qwen3-VL-32B-Instruct", "smoke": "tiny_base"}
    arguments = machine.start("sh", STAGE, "sft", **VARIABLES | {"SIZE": size})
    assert {f"--config=configs/sft.py:{size}", f"--config.model={names[size]}"} <= set(arguments)


def test_each_machine_of_a_fleet_has_its_own_share(machine):
    shares = []
    for part in range(4):
        arguments = machine.start("sh", STAGE, "collect", **VARIABLES, PART=str(part), PARTS="4")
        assert f"--workdir=gs://bucket/run/collect-{part}" in arguments
        (file,) = (flag.partition("=")[2] for flag in arguments if "tasks_file" in flag)
        shares.append(Path(file).read_text().splitlines())
    assert sorted(itertools.chain(*shares)) == (machine.folder / "tasks.jsonl").read_text().splitlines()
    assert {len(share) for share in shares} == {1, 2}
    pools = ",".join(f"gs://bucket/run/collect-{part}" for part in range(4))
    corpus = machine.start("sh", STAGE, "corpus", **VARIABLES, PARTS="4")
    assert f"--config.trajectories={pools}" in corpus


@pytest.mark.parametrize(
    ("stage", "missing"),
    [
        ("sft", "STORE"),
        ("collect", "TASKS"),
        ("play", "POLICY_URL"),
        ("serve", "POLICY_KEY"),
        ("sfd", ""),
    ],
)
def test_what_is_missing_is_one_line(machine, stage, missing):
    done = machine.run("sh", STAGE, stage, **VARIABLES | {missing: ""})
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (missing or "no stage sfd") in done.stderr
    assert not (machine.called / "arguments").exists()


@pytest.mark.parametrize("name", SKYPILOT)
def test_skypilots_files_start_their_stage(machine, name):
    task = sky_task(name)
    variables = {key: value or VARIABLES.get(key, "") for key, value in task["envs"].items()}
    arguments = machine.start("bash", "-c", task["run"], **variables | HOSTS)
    script = "collect" if name == "fleet" else "train_sft"
    assert arguments[0] == f"experiments.{script}"
    assert ("--distributed" in arguments) == (name != "fleet")
    if name == "fleet":
        assert "--workdir=gs://bucket/run/collect-1" in arguments
        assert "tasks-1-of-3" in " ".join(arguments)
    else:
        assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]
    if name == "gpu":
        for line in ("JAX_COORDINATOR_ADDRESS=10.0.0.1:8476", "JAX_NUM_PROCESSES=3", "JAX_PROCESS_ID=1"):
            assert line in machine.environment().splitlines()


@pytest.mark.parametrize("stage", TRAINING)
def test_the_jobset_starts_its_stage_again_after_exit_code_75(machine, stage):
    spec = filled("jobset", STAGE=stage)["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    arguments = started(machine, "jobset", stage)
    assert arguments[0] == f"experiments.train_{stage}" and "--distributed" in arguments
    pods = job["template"]["spec"]
    chips = container["resources"]["limits"]["google.com/tpu"] * job["parallelism"]
    assert chips == math.prod(map(int, pods["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")))
    # A pod's rule fails its job with the reason that the set's rule restarts on.
    saved, reclaimed = job["podFailurePolicy"]["rules"]
    assert saved["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [75]}
    assert saved["action"] == reclaimed["action"] == "FailJob"
    (rule,) = spec["failurePolicy"]["rules"]
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"


@pytest.mark.parametrize("stage", TRAINING)
@pytest.mark.parametrize("name", TPU_FILES)
def test_what_a_tpu_file_starts_is_compiled_with_the_same_settings(machine, name, stage):
    assert slices(name) == {"tpu": ["v6e:4x4", "v5e:4x4"], "jobset": ["v6e:4x4"]}[name]
    command = started(machine, name, stage)
    flags = compile_flags(command, "v6e:4x4")
    assert flags == (f"--config=configs/{stage}.py:8b", "--topology=v6e:4x4")
    changes = ("--config.mesh.fsdp=4", "--config.mesh.tensor=4")
    assert compile_flags([*command, *changes], "v6e:4x4") == (*flags, *changes)


@pytest.mark.parametrize(
    ("code", "restarts", "again"), [(0, 0, False), (75, 0, True), (75, 100, False), (1, 0, False)]
)
def test_the_slurm_job_is_queued_again_after_exit_code_75(machine, code, restarts, again):
    variables = VARIABLES | HOSTS | {"CODE": str(code), "SLURM_RESTART_COUNT": str(restarts), "STAGE": "rl"}
    done = machine.run("bash", "scripts/launch/slurm.sh", **variables)
    assert done.returncode == code, done.stderr
    assert (machine.called / "scontrol").exists() == again
    assert (machine.called / "arguments").read_text().split()[1] == "experiments.train_rl"
    assert "JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7" in machine.environment().splitlines()


def test_the_ray_clusters_command_has_settings_that_exist(machine):
    comments = re.findall(r"^#(.*)$", (KIT / "ray.yaml").read_text(), re.MULTILINE)
    text = "\n".join(comments).replace("\\\n", " ")
    command = re.search(r"ray exec ray.yaml '(.*?)'", text, re.DOTALL)[1]
    machine.start("sh", "-c", command.replace("/mnt/store/tasks.jsonl", "tasks.jsonl"))
    arguments = (machine.called / "arguments").read_text().split()[1:]
    assert "--config.fleet.engine=ray" in arguments and "--workdir=/mnt/store/collect-0" in arguments
    ((code, output),) = parse([arguments])
    assert code == 0, output


def test_extras_and_image_targets_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    texts = [dockerfile, *(path.read_text() for path in KIT.iterdir())]
    wanted = set()
    for text in texts:
        for names in re.findall(r"(?:whl\)|'\.)\[([\w,]+)\]", text):
            wanted |= set(names.split(","))
    assert {"tpu", "fleet", "gcs", "s3"} <= wanted <= extras.keys()
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, re.MULTILINE))
    assert set(re.findall(r"--target=(\w+)", dockerfile)) <= stages
