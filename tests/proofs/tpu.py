"""TPU memory of the paper's runs, from libtpu's compiler without a TPU. An hour on two cores.

A compilation that is done is not repeated with the same code: its rows are kept in build/tpu.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmsweb_jax.aot.abstract import HBM_GIB
from rmsweb_jax.records.files import write_atomic
from tests.proofs.page import ROOT, Check, publish, table

LIBTPU = "0.0.51"
FOLDER, PACKAGES = ROOT / "build/tpu", ROOT / f"build/libtpu-{LIBTPU}"
SPLIT = ("--config.mesh.fsdp=4", "--config.mesh.tensor=4")
WIDE = ("--config.mesh.fsdp=16", "--config.mesh.tensor=4")
# Config, slice and changes of a run.
Run = tuple[str, str, tuple[str, ...]]
# The last one is too large for its slice.
RUNS: tuple[Run, ...] = (
    ("configs/rl.py:8b", "v5p:2x2x2", ()),
    ("configs/rl.py:8b", "v6e:4x4", SPLIT),
    ("configs/rl.py:32b", "v6e:4x4", SPLIT),
    ("configs/rl.py:32b", "v5p:4x4x4", WIDE),
    ("configs/rl.py:8b", "v5e:4x4", SPLIT),
    ("configs/sft.py:8b", "v5e:4x4", ()),
    ("configs/sft.py:8b", "v5p:2x2x2", ()),
    ("configs/sft.py:32b", "v6e:4x4", SPLIT),
    ("configs/sft.py:32b", "v5p:4x4x4", WIDE),
    ("configs/sft.py:32b", "v5e:4x4", ()),
)
_COLUMNS = (
    *("name", "fits", "peak_gib", "parts_gib", "state_split", "useful_tflops", "executed_tflops"),
    *("mfu_ceiling", "compile_seconds"),
)
# Least share of executed operations that is useful on the slice with most memory, and the largest part of
# adapters and optimizer state on a device, over an even split.
ROOMY, LEAST_USEFUL, MOST_UNEVEN = "v5p:2x2x2", 0.95, 1.2


def measure(runs: Sequence[Run]) -> dict[str, Any]:
    install()
    # Some of them are skipped without libtpu.
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/aot"], cwd=ROOT, env=environment(), check=True
    )
    trees = [f"HEAD:{folder}" for folder in ("rmsweb_jax", "configs", "experiments")]
    code = subprocess.check_output(["git", "rev-parse", *trees], cwd=ROOT, text=True)
    arguments = [
        (f"--config={config}", f"--topology={topology}", *changes) for config, topology, changes in runs
    ]
    # Two at a time: the compiler keeps little more than one core busy.
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(functools.partial(compiled, code=code), arguments))
    ended, programs = [], []
    for (_, topology, _), one, code_and_rows in zip(runs, arguments, results, strict=True):
        name = " ".join(one)
        hbm = HBM_GIB[topology.partition(":")[0]]
        ended.append({"run": name, "exit_code": code_and_rows["exit_code"], "hbm_gib": hbm})
        programs += [{"run": name} | row for row in code_and_rows["rows"]]
    return {"libtpu": LIBTPU, "runs": ended, "programs": programs}


def install() -> None:
    """Puts libtpu into a folder of its own: in the environment, jax would look for a TPU at every start."""
    if not (PACKAGES / ".done").exists():
        print(f"installing libtpu {LIBTPU} (once)", flush=True)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        subprocess.run([*pip, "--target", str(PACKAGES), f"libtpu=={LIBTPU}"], check=True)
        (PACKAGES / ".done").touch()


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


def compiled(arguments: Sequence[str], code: str) -> dict[str, Any]:
    """Exit code and rows of `experiments.compile_tpu`, those of an earlier call at this commit if any."""
    kept = FOLDER / f"{hashlib.sha256(' '.join((code, *arguments)).encode()).hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_bytes())
    print(time.strftime("%T"), *arguments, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    output = kept.with_suffix(".rows.json")
    command = [sys.executable, "-m", "experiments.compile_tpu", *arguments, f"--output={output}"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"error: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    result = {"exit_code": done.returncode, "rows": json.loads(output.read_bytes())}
    write_atomic(kept, json.dumps(result).encode())
    return result


def checks(figures: dict[str, Any], large: Run | None = None) -> list[Check]:
    """Checks of all runs; `large` is one that must be refused."""
    refused = large and _name(*large)
    sizes = {run["run"]: run["hbm_gib"] for run in figures["runs"]}
    others = [row for row in figures["programs"] if row["run"] != refused]
    fullest = max(others, key=lambda row: row["peak_gib"] / sizes[row["run"]])
    share = fullest["peak_gib"] / sizes[fullest["run"]]
    fit = sum(row["fits"] for row in others)
    codes = {run["run"]: run["exit_code"] for run in figures["runs"]}
    roomy = [row for row in others if "gradient" in row["name"] and ROOMY in row["run"]]
    useful = min(row["mfu_ceiling"] for row in roomy)
    uneven = max(row["state_split"] for row in roomy if "mesh.tensor" not in row["run"])
    found: list[Check] = [
        (
            f"of the operations that gradients execute on {ROOMY} at least {LEAST_USEFUL:.0%} are useful",
            f"{useful:.1%}",
            useful >= LEAST_USEFUL,
        ),
        (
            f"there adapters and optimizer state take a device at most {MOST_UNEVEN:g} times an even split",
            f"{uneven:.2f} times",
            uneven <= MOST_UNEVEN,
        ),
        (
            "each program of the runs fits its slice",
            f"{fit} of {len(others)}; the fullest takes {share:.0%} of a device's memory",
            fit == len(others) and not any(code for run, code in codes.items() if run != refused),
        ),
    ]
    if large:
        text = f"{large[0]} on {large[1]}: exit code {codes[_name(*large)]}"
        found.append(
            ("a run that is too large is refused, with exit code 1", text, codes[_name(*large)] == 1)
        )
    return found


def _name(config: str, topology: str, changes: Sequence[str]) -> str:
    return " ".join((f"--config={config}", f"--topology={topology}", *changes))


def tables(figures: dict[str, Any]) -> Iterator[str]:
    for run in figures["runs"]:
        rows = [one for one in figures["programs"] if one["run"] == run["run"]]
        yield f"    python -m experiments.compile_tpu {run['run']}"
        yield table({name: value for name, value in row.items() if name in _COLUMNS} for row in rows)
        if run["exit_code"]:
            yield f"Exit code {run['exit_code']}."


HOW = """\
`experiments.compile_tpu` compiles every program of a run with the compiler of libtpu {libtpu}, without a TPU:
{models} with vision tower, adapters of the paper's rank, rows of `config.row_tokens`
tokens, one a shard, full of samples of 12,000 tokens or of a group's prompt of 12,000 tokens and its
responses, 2,048 tokens each, with one screenshot of 262,144 pixels a prompt; bfloat16 weights, fused
attention; the rematerialization that `auto` chooses. Sharding is `data x fsdp x tensor`.

- *peak gib* is what the compiler reserved of one device at its fullest moment, and what lies on the device
  without being an argument of the program, such as the optimizer state while a gradient is computed.
- *state split* is what adapters and optimizer state take of a device, over an even share of them.
- *useful* and *executed* TFLOP are of a device and call, counted from shapes
  (`rmsweb_jax/qwen/flops.py`); executed includes what rematerialisation computes again.
  *MFU ceiling* is useful over executed.
- The decoding program is named by the lanes and the prompt slots of all devices: as many as their memory
  holds beside weights, adapters and optimizer.
- *compile seconds* are on a machine that other work shared. The JSON file has the sizes of all arguments.
"""
ABOUT = """\
**Control, no baseline:** a run that is too large for its slice must be refused. The compiler is the only
reference: no chip ran, so the page does not say that what fits by it fits a device.

"""

if __name__ == "__main__":
    found = measure(RUNS)
    about = ABOUT + HOW.format(models="the full Qwen3-VL-8B and 32B", **found)
    title = "TPU memory of the paper's runs"
    publish("tpu", title, about, found, checks(found, RUNS[-1]), *tables(found))
