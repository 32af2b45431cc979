"""The recipe as on a pod and a fleet: a folder or bucket for all, and a disk of its own for each machine.

Two machines collect, each its share of the tasks; two hosts train together; the other stages have a machine
each. All run on this one, each with a folder for copies (RMSWEB_CACHE) of its own.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.collect import SMOKE_PAGES
from tests.loopback import free_port
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
COLLECTORS = 2
EVALUATED_PAGES = 4


@dataclasses.dataclass(frozen=True)
class Stage:
    """Commands that run at the same time.

    Attributes:
      commands: the script and its settings, by workdir.
      hosts: that run each command together.
    """

    commands: Mapping[str, Sequence[str]]
    hosts: int = 1


def stages(root: str, hosts: int) -> dict[str, Stage]:
    """The recipe in order.

    Args:
      root: folder or bucket.
      hosts: that train together.
    """

    def shares(name: str) -> str:
        return ",".join(f"{root}/{name}-{number}" for number in range(COLLECTORS))

    def command(script: str, variant: str, **settings: object) -> tuple[str, ...]:
        changes = (f"--config.{name.replace('__', '.')}={value}" for name, value in settings.items())
        return f"experiments.{script}", f"--config=configs/{variant}", *changes

    both = range(COLLECTORS)
    mesh = {"mesh__data": hosts, "mesh__fsdp": 1} if hosts > 1 else {}
    pools = f"{shares('collect')},{shares('collect_policy')}"
    return {
        "collect": Stage(
            {
                f"collect-{number}": command(
                    "collect",
                    "collect.py:smoke",
                    pages=SMOKE_PAGES[number::COLLECTORS],
                    fleet__workers=1,
                )
                for number in both
            }
        ),
        "build_sft": Stage(
            {"sft_corpus": command("build_sft", "build_sft.py:smoke", trajectories=shares("collect"))}
        ),
        "train_sft": Stage(
            {"sft": command("train_sft", "sft.py:smoke", corpus=f"{root}/sft_corpus", **mesh)}, hosts
        ),
        "collect policy": Stage(
            {
                f"collect_policy-{number}": command(
                    "collect",
                    "collect.py:smoke_policy",
                    actor__model=f"{root}/sft/export",
                    tasks_from=f"{root}/collect-{number}",
                    fleet__workers=1,
                )
                for number in both
            }
        ),
        "mine": Stage({"mine": command("mine", "mine.py:smoke", pools=pools)}),
        "train_rl": Stage(
            {
                "rl": command(
                    "train_rl",
                    "rl.py:smoke",
                    prompts=f"{root}/mine/prompts",
                    model=f"{root}/sft/export",
                    **mesh,
                )
            },
            hosts,
        ),
        "evaluate": Stage(
            {
                f"evaluate/{label}": command(
                    "evaluate",
                    "evaluate.py:smoke",
                    label=label,
                    model=f"{root}/{label}/export",
                    training=shares("collect"),
                    pages=SMOKE_PAGES[:EVALUATED_PAGES],
                    fleet__workers=1,
                )
                for label in ("sft", "rl")
            }
        ),
        "report": Stage({"report": command("report", "report.py:smoke", run=root)}),
    }


def start(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], hosts: int = 1
) -> list[subprocess.Popen[bytes]]:
    """Starts a module on so many machines; their disks are `folder/NUMBER`, and their logs next to them.

    Args:
      command: the module and its arguments.
      variables: of the store's clients.
    """
    port, started = free_port(), []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(hosts):
        environment = {**device_environment(1), **variables, "RMSWEB_CACHE": str(folder / str(number))}
        line = [sys.executable, "-m", *command]
        if hosts > 1:
            line.append("--distributed")
            environment |= {
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(hosts),
                "JAX_PROCESS_ID": str(number),
            }
        with open(folder / f"{number}.log", "ab") as log:
            started.append(subprocess.Popen(line, cwd=ROOT, env=environment, stdout=log, stderr=log))
    return started


def last_lines(folder: Path) -> str:
    """The ends of all logs below a folder."""
    return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(folder.rglob("*.log")))


def run_stage(stage: Stage, root: str, folder: Path, variables: Mapping[str, str]) -> float:
    """Runs a stage on fresh machines and returns its seconds.

    Args:
      folder: on disk, for the machines.

    Raises:
      SystemExit: a process fails.
    """
    begin = time.monotonic()
    machines = {name: folder / name.replace("/", "-") for name in stage.commands}
    started = {
        name: start([*command, f"--workdir={root}/{name}"], machines[name], variables, stage.hosts)
        for name, command in stage.commands.items()
    }
    for name, processes in started.items():
        codes = [process.wait() for process in processes]
        if any(codes):
            for process in (one for every in started.values() for one in every):
                process.kill()
            raise SystemExit(f"error: {name}: exit codes {codes}\n{last_lines(machines[name])}")
    return round(time.monotonic() - begin, 1)
