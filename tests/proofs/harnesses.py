"""TRL, verifiers and OpenEnv with half of all episodes lost, and the SFT policy as their guest. An hour.

After `make demo`. Harnesses are installed into environments of their own in build/. What has been measured is
kept in build/harnesses and not measured again.
"""

from __future__ import annotations

import contextlib
import json
import os
import site
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Trajectory
from tests.gym.players import STEPS, TASKS
from tests.proofs.page import DEMO, ROOT, publish, table
from tests.serve.servers import Server, our_server, running

OUT = ROOT / "build/harnesses"
POLICY = Path(os.environ.get("POLICY", DEMO / "sft/export"))
APPS = os.environ.get("APPS", "")
# The first has the packages of this environment as well, and their versions.
TRL = ("trl==1.16.0", "openenv==0.10.0", "torchvision==0.28.0")
VERIFIERS = ("verifiers[openenv]==0.4.0", "uv==0.13.9", "absl-py")
# One reply does these tasks, and the policy does not do them always.
TRAINED = ("miniwob/click-link", "miniwob/click-tab", "miniwob/click-dialog-2", "miniwob/navigate-tree")
APPLICATION = ("trac/resolve", "trac/priority")
SEEDS, UPDATES = 4, 24


def install(name: str, packages: Sequence[str], ours: bool) -> Path:
    """The interpreter of an environment with these packages."""
    folder = ROOT / "build" / name
    python = folder / "bin/python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        if ours:
            (own,) = folder.glob("lib/python3*/site-packages")
            (own / "ours.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "installed").touch()
    return python


def kept(name: str, command: Sequence[object], **environment: str) -> Any:
    """What a player has written to the file that its command names as OUT; played once."""
    path = OUT / f"{name}.json"
    if not path.exists():
        words = [str(path) if word == "OUT" else str(word) for word in command]
        silent = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "ENDPOINT_KEY": "none"}
        with (OUT / f"{name}.log").open("wb") as log:
            subprocess.run(
                words, cwd=ROOT, env=os.environ | silent | environment, stdout=log, stderr=log, check=True
            )
    return json.loads(path.read_text())


@contextlib.contextmanager
def policy() -> Iterator[str]:
    """The policy's server, which keeps the last turn of a chat."""
    settings = {"turns": "last", "max_images": 2, "served_names": '("policy",)'}
    with running(our_server("policy", POLICY, OUT / "serve", **settings), OUT / "serve.log") as url:
        yield f"{url}/v1"


def environments(python: Path, kind: str) -> contextlib.AbstractContextManager[str]:
    """The OpenEnv server, whose sessions are sabotaged or undisturbed."""
    command = (str(python), "-m", "tests.gym.players", "serve", kind)
    return running(Server(kind, command, "", ""), OUT / f"environments_{kind}.log")


def evaluate(model: str) -> dict[str, float]:
    """Our own evaluation, at temperature 0, with the same server."""
    workdir = OUT / "evaluate"
    command = [sys.executable, "-m", "experiments.evaluate", "--config=configs/evaluate.py:demo"]
    command += ["--config.model=policy", "--config.label=sft", f"--config.seeds={SEEDS}", "--config.runs=1"]
    command += ["--config.actor.kind=chat", f"--config.actor.base_url={model}", "--config.fleet.workers=1"]
    command += ["--config.actor.temperature=0.0", f"--workdir={workdir}"]
    if not (workdir / "report.json").exists():
        subprocess.run(command, cwd=ROOT, check=True)
    runs = read_dataset(workdir, Trajectory)
    return {run.task.task_id: float(bool(run.success)) for run in runs}


def verifiers(python: Path, url: str, model: str, kind: str) -> dict[str, Any]:
    """verifiers' own evaluation with our task set: rewards, and errors by type."""
    folder = OUT / f"verifiers_{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    names = ("*", "__all__")
    lines = [f"from collection.gym.verifiers_tasks import {name}\n" for name in names]
    (folder / "web_tasks.py").write_text("".join(lines))
    tasks = json.dumps(sorted({task for task, _ in TASKS}))
    (folder / "eval.toml").write_text(f"""\
model = "policy"
num_rollouts = 1
max_concurrent = 2
push = false
output_dir = "{folder}"
[run]
name = "run"
[client]
base_url = "{model}"
api_key_var = "ENDPOINT_KEY"
[sampling]
temperature = 0.0
max_tokens = 128
[env.taskset]
id = "web-tasks"
base_url = "{url}"
tasks = {tasks}
first_seed = 1000000
seeds = {SEEDS}
""")
    if not list(folder.rglob("traces.jsonl")):
        path = f"{folder}:{ROOT}"
        command = [python.parent / "vf-eval", "@", folder / "eval.toml", "--no-rich"]
        programs = f"{python.parent}:{os.environ['PATH']}"
        variables = os.environ | {"ENDPOINT_KEY": "none", "PYTHONPATH": path, "PATH": programs}
        with (folder / "log").open("wb") as log:
            subprocess.run(list(map(str, command)), env=variables, stdout=log, stderr=log, check=True)
    rewards: dict[str, float | None] = {}
    errors: dict[str, int] = {}
    (traces,) = folder.rglob("traces.jsonl")
    for line in traces.read_text().splitlines():
        episode = json.loads(line)
        (trace,) = episode["traces"] or [{"errors": episode["errors"], "rewards": {}}]
        scores = [reward["score"] for reward in trace["rewards"].values()]
        rewards[episode["task"]["data"]["name"]] = scores[0] if scores else None
        for error in trace["errors"]:
            errors[error["type"]] = errors.get(error["type"], 0) + 1
    return {"rewards": rewards, "errors": errors}


def train(python: Path, kind: str, steps: int, tasks: Sequence[str]) -> dict[str, Any]:
    """TRL's trainer: its curve, and what its episodes were paid."""
    name = f"train_{tasks[0].partition('/')[0]}_{kind}"
    command = [python, "-m", "tests.gym.players", "train", "OUT", POLICY, steps, kind, APPS, *tasks]
    found = kept(name, command)
    rewards = [episode["reward"] for episode in found["episodes"]]
    paid = [reward for reward in rewards if reward is not None]
    # Each half has all tasks equally often.
    first, last = found["curve"][: steps // 2], found["curve"][-(steps // 2) :]
    return {
        "updates": len(found["curve"]),
        "episodes": len(rewards),
        "sabotaged": sum(map(bool, found["faults"])),
        "masked": rewards.count(None),
        "paid": sum(paid) / max(1, len(paid)),
        "first half": sum(first) / max(1, len(first)),
        "last half": sum(last) / max(1, len(last)),
        "seconds an update": found["seconds"] / steps,
        "curve": found["curve"],
    }


ABOUT = f"""\
**Baseline:** TRL with a learning rate of 0 on the same tasks and seeds; our own evaluation is the reference
of the guests. Control: about half of the episodes are lost, and exactly these must be masked; an undisturbed
run masks none. Each run is of one seed.

**Guests.** The SFT policy plays {len(TASKS)} held-out tasks of 15 MiniWoB++ pages once, at temperature 0
and at most {STEPS} steps each: by our own evaluation, by verifiers with `collection.gym.verifiers_tasks`, by
OpenEnv's client, and by TRL's class. The chats of the last three grow, and our server keeps their last turn
(`--config.turns=last`).

**Losses.** When its page was shown, half of all episodes lose their browser, their network or their
application. TRL trains the policy by GRPO, all its weights in float32, by `WebReplies` at pages that a reply
does, and by the same at an application, where it is paid nothing: it has learned MiniWoB++ alone.
The untrained run has a learning rate of 0. verifiers evaluates the policy on the {len(TASKS)} tasks.
"""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    trl = install("trl", TRL, ours=True)
    vf = install("verifiers", VERIFIERS, ours=False)
    rewards: dict[str, dict[str, float | None]] = {}
    with policy() as model:
        rewards["our evaluation"] = dict(evaluate(model))
        with environments(trl, "undisturbed") as url:
            command = [trl, "-m", "tests.gym.players", "openenv", "OUT", url, model]
            rewards["OpenEnv's client"] = kept("openenv", command)["rewards"]
            rewards["verifiers"] = verifiers(vf, url, model, "undisturbed")["rewards"]
        with environments(trl, "sabotaged") as url:
            session = kept("lost", [trl, "-m", "tests.gym.players", "lost", "OUT", url])["rewards"]
            lost = verifiers(vf, url, model, "sabotaged")
        command = [trl, "-m", "tests.gym.players", "trl", "OUT", model]
        rewards["TRL's class"] = kept("trl", command)["rewards"]
    trained = {
        f"{place}, {kind}": train(trl, kind, steps, tasks)
        for place, steps, tasks in (("MiniWoB++", UPDATES, TRAINED), ("trac", 3, APPLICATION))
        for kind in ("undisturbed", "sabotaged", *(("untrained",) if steps == UPDATES else ()))
    }
    own = rewards["our evaluation"]
    rates = {
        name: 100 * sum(paid == 1.0 for paid in one.values()) / len(own) for name, one in rewards.items()
    }
    guests = [
        {
            "by": name,
            "solved of 60": sum(paid == 1.0 for paid in one.values()),
            "points from ours": rates[name] - rates["our evaluation"],
            "same result as ours": sum((one[task] == 1.0) == (own[task] == 1.0) for task in own),
        }
        for name, one in rewards.items()
    ]
    known = {task: paid for task, paid in lost["rewards"].items() if paid is not None}
    alike = sum(known[task] == rewards["verifiers"][task] for task in known)
    plain, sabotaged, untrained = (
        trained[f"MiniWoB++, {kind}"] for kind in ("undisturbed", "sabotaged", "untrained")
    )
    checks: list[Any] = [
        (
            f"{name} is within 5 points of our evaluation",
            f"{rate:.1f} %",
            abs(rate - rates["our evaluation"]) <= 5,
        )
        for name, rate in rates.items()
        if name != "our evaluation"
    ]
    checks += [
        (
            f"TRL, {name}: all updates; masked are the lost",
            f"{one['masked']} of {one['episodes']}",
            one["masked"] == one["sabotaged"],
        )
        for name, one in trained.items()
    ]
    checks += [
        (
            "TRL's curve rises",
            f"{plain['first half']:.2f} to {plain['last half']:.2f}",
            plain["last half"] > plain["first half"],
        ),
        (
            "and ends above that of a rate of 0, on the same tasks and seeds",
            f"{plain['last half']:.2f}, {untrained['last half']:.2f}",
            plain["last half"] > untrained["last half"],
        ),
        (
            "the sabotaged one ends where the undisturbed one does",
            f"{sabotaged['last half']:.2f}, {plain['last half']:.2f}",
            abs(sabotaged["last half"] - plain["last half"]) < 0.15,
        ),
        (
            "an OpenEnv session outlives its lost episodes, which `state` knows",
            json.dumps(session),
            session["lost"] == session["lost by state"] == 12 - session["played"] > 0,
        ),
        (
            "verifiers has an error for each lost episode, and no reward",
            json.dumps(lost["errors"]),
            sum(lost["errors"].values()) == len(own) - len(known),
        ),
        ("verifiers' other rewards are those of the undisturbed", f"{alike} of {len(known)}", None),
    ]
    figures = {"rewards": rewards, "sabotaged": lost, "trained": trained}
    rows = [
        {"TRL": name, **{key: one[key] for key in one if key != "curve"}} for name, one in trained.items()
    ]
    publish("harnesses", "Other harnesses", ABOUT, figures, checks, table(guests), table(rows))


if __name__ == "__main__":
    main()
