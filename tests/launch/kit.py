"""The launch kit's files, and the commands that they start."""

from __future__ import annotations

import os
import re
import string
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KIT = ROOT / "scripts/launch"
SKYPILOT = ("tpu", "gpu", "fleet")
STAGES = ("collect", "corpus", "sft", "serve", "play", "mine", "rl")
TRAINING = ("sft", "rl")
# What a user sets.
VARIABLES = {
    "STORE": "gs://bucket/run",
    "SIZE": "8b",
    "FLAGS": "",
    "POLICY_URL": "http://policy:8000/v1",
    "POLICY_KEY": "key",
    "IMAGE": "registry/rmsweb-jax:tpu",
    "PROJECT": "project",
    "NFS": "files:/share",
    "GEMINI_API_KEY": "key",
}
# What SkyPilot and Slurm set on the second of three hosts.
HOSTS = {
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NUM_NODES": "3",
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_JOB_ID": "7",
}
# Writes down the arguments and the environment.
_PYTHON = """\
#!/bin/sh
printf '%s\\n' "$@" >"$CALLED/arguments"
env >"$CALLED/environment"
exit "${CODE:-0}"
"""
_SLURM = {"srun": '#!/bin/sh\nexec "$@"\n', "scontrol": '#!/bin/sh\necho "$@" >"$CALLED/scontrol"\n'}


class Machine:
    """A folder as on a machine of a pod, where `python`, `srun` and `scontrol` only write down their calls.

    Args:
      folder: empty.
    """

    def __init__(self, folder: Path):
        self.folder, self.called, self._programs = folder, folder / "called", folder / "programs"
        self.called.mkdir()
        self._programs.mkdir()
        (folder / "scripts").symlink_to(ROOT / "scripts")
        for environment in ("venv", ".venv"):
            (folder / environment / "bin").mkdir(parents=True)
            (folder / environment / "bin/activate").touch()
        for name, text in {"python": _PYTHON, **_SLURM}.items():
            (self._programs / name).write_text(text)
            (self._programs / name).chmod(0o755)
        (folder / "tasks.jsonl").write_text("".join(f'{{"task_id": "{number}"}}\n' for number in range(6)))

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(self.folder), "CALLED": str(self.called), "TMPDIR": str(self.folder)}
        tasks = {"TASKS": str(self.folder / "tasks.jsonl")}
        return subprocess.run(
            command, cwd=self.folder, env=own | tasks | variables, capture_output=True, text=True
        )

    def start(self, *command: str, **variables: str) -> list[str]:
        """Script and flags that a command gives to `python -m`."""
        done = self.run(*command, **variables)
        assert done.returncode == 0, done.stderr
        module, *arguments = (self.called / "arguments").read_text().splitlines()
        assert module == "-m"
        return arguments

    def environment(self) -> str:
        return (self.called / "environment").read_text()


def sky_task(name: str) -> dict[str, Any]:
    return yaml.safe_load((KIT / f"{name}.yaml").read_text())


def filled(name: str, **variables: str) -> dict[str, Any]:
    """A file whose variables are filled in, as `envsubst` with the header's list of them does."""
    known = VARIABLES | variables
    text = (KIT / f"{name}.yaml").read_text()
    return yaml.safe_load(string.Template(text).safe_substitute(known))


def slices() -> list[str]:
    """The TPU slices that the kit names, as `experiments.compile_tpu` calls them."""
    found = set()
    for resources in sky_task("tpu")["resources"]["any_of"]:
        generation, chips = re.fullmatch(r"tpu-(\w+)-(\d+)", resources["accelerators"]).groups()
        found.add((generation, {"16": "4x4"}[chips]))
    pod = filled("jobset", STAGE="sft")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    selector = pod["nodeSelector"]
    generation = re.fullmatch(r"tpu-(\w+)-slice", selector["cloud.google.com/gke-tpu-accelerator"])[1]
    found.add((generation, selector["cloud.google.com/gke-tpu-topology"]))
    names = {"v5litepod": "v5e"}
    return sorted(f"{names.get(generation, generation)}:{shape}" for generation, shape in found)
