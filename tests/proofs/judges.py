"""Official judges by our adapter against the same code called by itself. Minutes; needs their checkouts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection.judges.official.checkouts import OFFICIAL, Repository, check_checkout
from collection.judges.official.evidence import episode
from collection.judges.official.judge import OfficialJudge
from collection.llm.cached import CachedModel
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Trajectory
from tests.judges.official import METHODS, Screenshots, episodes, rubrics, scripted, write_native
from tests.judges.server import model_at
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.proofs.result import Claim, Figures, Proof, main, table

EPISODES = 60
CHECKOUTS, PYTHON = "OFFICIAL_JUDGES", "OFFICIAL_JUDGES_PYTHON"
ENVIRONMENT = Path("build/official-judges")
# WebVoyager's program goes through tasks of these sites, 0 to 45 of each.
_SITES, _PER_SITE = ("Amazon", "Apple"), 46
_DIRECT = "tests.judges.official_direct"


def measure() -> Figures:
    runs = episodes(EPISODES)
    judged: dict[str, Any] = {}
    for method in METHODS:
        repository = OFFICIAL[method].repository
        judged[method] = _compare(method, _checkout(repository), _python(), runs)
        print(f"{method}: {judged[method]}", file=sys.stderr, flush=True)
    names = ("messages_equal", "verdicts_equal", "calls", "passed")
    return {
        "episodes": EPISODES,
        "steps": sum(len(run.steps) for run in runs),
        **{name: {method: one[name] for method, one in judged.items()} for name in names},
        "checkouts": {
            method: f"{OFFICIAL[method].repository.address}@{OFFICIAL[method].repository.commit}"
            for method in METHODS
        },
    }


def _compare(method: str, checkout: Path, python: str, runs: list[Trajectory]) -> dict[str, int]:
    ours, direct = _adapted(method, checkout, python, runs), _called(method, checkout, python, runs)
    pairs = list(zip(ours, direct, strict=True))
    return {
        "messages_equal": sum(mine[0] == theirs[0] for mine, theirs in pairs),
        "verdicts_equal": sum(mine[1] is theirs[1] for mine, theirs in pairs),
        "calls": sum(len(theirs[0]) for _, theirs in pairs),
        "passed": sum(theirs[1] is True for _, theirs in pairs),
    }


# What the model was sent in an episode, in an order that does not depend on time, and the verdict.
_Judged = tuple[list[str], bool | None]


def _adapted(method: str, checkout: Path, python: str, runs: list[Trajectory]) -> list[_Judged]:
    """Judges by our adapter, through a run's metered model."""
    found = []
    with _model(method) as server, CachedModel(model_at(server), None) as model:
        judge = OfficialJudge(method, checkout, model, rubrics(runs), python=python)
        for run in runs:
            server.calls.clear()
            verdict = judge.judge(run, Screenshots())
            found.append((_messages(server, ""), verdict.success))
    return found


def _called(method: str, checkout: Path, python: str, runs: list[Trajectory]) -> list[_Judged]:
    """Judges by the code itself: WebVoyager's program, or the function that the others' programs call."""
    with _model(method) as server, tempfile.TemporaryDirectory() as scratch:
        folders = []
        for number, run in enumerate(runs):
            site, place = _SITES[number // _PER_SITE], number % _PER_SITE
            name = f"task{site}--{place}" if method == "webvoyager" else f"{number:03}"
            folders.append(Path(scratch, "episodes", name))
            shots = Path(scratch, "shots", name)
            shots.mkdir(parents=True)
            notes = rubrics([run])[run.task.task_id]
            write_native(method, episode(run, Screenshots(), notes.rubric, shots), folders[-1])
        if method == "webvoyager":
            values = _webvoyager(checkout, python, folders[0].parent, server.url)
            # One question per episode, in the order of the episodes.
            asked = [[json.dumps(call.body["messages"], sort_keys=True)] for call in server.calls]
        else:
            script = Path(__file__).parents[1] / "judges/official_direct.py"
            command = [python, "-B", str(script), method, str(checkout), str(folders[0].parent), server.url]
            values = json.loads(_run(command, {}))
            asked = [_messages(server, f"/{folder.name}/") for folder in folders]
    return [(one, OFFICIAL[method].verdicts.get(value)) for one, value in zip(asked, values, strict=True)]


def _webvoyager(checkout: Path, python: str, folder: Path, url: str) -> list[Any]:
    """Runs `auto_eval.py` with the limit on screenshots of the repository's own command."""
    command = [python, "-B", "auto_eval.py", "--api_key=key", "--api_model=judge-1", "--max_attached_imgs=15"]
    command += [f"--process_dir={folder}"]
    words = _run(command, {"OPENAI_BASE_URL": f"{url}/v1"}, checkout / "evaluation")
    found = re.findall(r"^Auto_eval_res: (\w+)$", words, re.MULTILINE)
    return [None if value == "None" else int(value) for value in found]


def _run(command: list[str], env: dict[str, str], cwd: Path | None = None) -> str:
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "ANONYMIZED_TELEMETRY": "false", **env}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command[:4])}: {done.stderr.strip()[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def _model(method: str) -> Iterator[PromptServer]:
    """An endpoint that keeps what it is sent and says the same to the same words."""
    reply = scripted(method)
    with PromptServer(lambda prompt: completion(reply(prompt))) as server:
        yield server


def _messages(server: PromptServer, part: str) -> list[str]:
    """The messages of all calls whose address has this part, sorted: some judges ask several at a time."""
    return sorted(
        json.dumps(call.body["messages"], sort_keys=True) for call in server.calls if part in call.path
    )


def _checkout(repository: Repository) -> Path:
    folder = Path(os.environ.get(CHECKOUTS, ENVIRONMENT)).resolve() / repository.address.rpartition("/")[2]
    try:
        check_checkout(folder, repository, CHECKOUTS)
    except UserError as error:
        raise SystemExit(f"error: {error}") from error
    return folder


def _python() -> str:
    """The interpreter with the judges' packages; by default one that is installed once, into `build/`."""
    if PYTHON in os.environ:
        return os.environ[PYTHON]
    python, stamp = ENVIRONMENT.resolve() / "venv/bin/python", ENVIRONMENT / "installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT / "venv")], check=True)
        for packages in dict.fromkeys(OFFICIAL[method].repository.packages for method in METHODS):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages.split()], check=True)
        stamp.touch()
    return str(python)


def claims(figures: Figures) -> list[Claim]:
    count = figures["episodes"]
    found = []
    for method in figures["checkouts"]:
        messages, verdicts = figures["messages_equal"][method], figures["verdicts_equal"][method]
        found += [
            Claim(f"{method}: same messages to the letter", f"{messages} of {count}", messages == count),
            Claim(f"{method}: same verdicts", f"{verdicts} of {count}", verdicts == count),
        ]
    return found


def tables(figures: Figures) -> str:
    rows = [
        (
            method,
            f"`{checkout}`",
            figures["calls"][method],
            figures["messages_equal"][method],
            figures["verdicts_equal"][method],
            figures["passed"][method],
        )
        for method, checkout in figures["checkouts"].items()
    ]
    head = ("judge", "code", "calls", "episodes with equal messages", "with equal verdicts", "passed")
    clones = sorted(set(figures["checkouts"].values()))
    commands = []
    for clone in clones:
        address, _, commit = clone.partition("@")
        name = address.rpartition("/")[2]
        commands.append(f"git clone https://{address} {name} && git -C {name} checkout {commit}")
    return f"{table(head, rows)}\n\n## Checkouts\n\n```sh\n" + "\n".join(commands) + "\n```"


ABOUT = """\
The code of five official judges judges {episodes} runs ({steps} steps) twice. Once by
`collection/judges/official`, as `experiments.evaluate` and `experiments.judge` do: in a child process, with
its client pointed to a run's metered model. And once by itself: WebVoyager's `auto_eval.py` as a program, and
of the others the function that their evaluation programs call, with files in their own formats and their own
clients. Both ask an endpoint on this machine, which keeps what it is sent and gives the same reply to the
same words, in the form that the judge asks for.

The runs are made by a seeded generator: pages that repeat, steps without a screenshot, unusable replies,
tasks and answers in several languages, with brackets and line breaks. No model judged here: that the code is
the same does not say how often a judge is right.

Set `OFFICIAL_JUDGES` to the folder of the checkouts below. WebJudge and the AgentTrek-style judge run from
microsoft/fara's copy of them: the repository of Online-Mind2Web itself was too large to be had here, so its
own copy is unproven. The snapshot of microsoft/fara came from a public fork whose history ends with that
commit.
"""
PROOF = Proof("Official judges, run from their own code", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
