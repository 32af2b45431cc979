"""The README's commands at smoke size, from the wheel in an empty environment and an empty folder.

    python -m tests.packaging.smoke [--reuse]

`make wheel-smoke` builds the wheel, makes an environment, checks that a missing extra is named, installs the
extras with the versions of constraints.txt, and runs every stage there. With `--reuse` the environment
borrows the dependencies of the calling one, which saves minutes and tests no extras. Chromium is needed.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.packaging.wheel import PACKAGES, ROOT, build_wheel, install_apart, outside_environment, pip

_EXTRAS = "collect,train,parquet"
_READY_S = 300.0

# After the demo, on what it has written; `{python}` is a Python with nothing but the wheel.
_COMMANDS = (
    "records list --data=demo",
    "records verify --data=demo/sft_corpus",
    "records export --data=demo/sft_corpus --format=parquet --output=corpus.parquet",
    "report --table=main --config.results=sft=demo/evaluate/sft,rl=demo/evaluate/rl --workdir=table",
    "export --config=configs/export.py:merged --config.run=demo/rl --config.base_model=a/b --workdir=release",
    "export --config=configs/export.py:adapter --config.run=demo/rl --config.base_model=a/b --workdir=peft",
    "judge --config=configs/judge.py:demo --config.data=demo/evaluate/sft --workdir=judge",
)


class Environment:
    """An environment with the wheel, and the empty folder where its commands run.

    Args:
      python: the environment's.
      folder: empty.
    """

    def __init__(self, python: Path, folder: Path):
        self._python, self.folder = python, folder

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the environment's Python; its output can be read from the process."""
        return subprocess.Popen(
            [str(self._python), *arguments],
            cwd=self.folder,
            env=outside_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, *arguments: str, code: int = 0) -> str:
        """Runs the environment's Python to its end and gives what it printed.

        Raises:
          SystemExit: it ended with another exit code than `code`.
        """
        begin = time.monotonic()
        process = self.start(*arguments)
        output, _ = process.communicate()
        name = " ".join(arguments) if "\n" not in arguments[-1] else "(a script)"
        if process.returncode != code:
            sys.exit(f"{output}\nerror: {name}: exit code {process.returncode}, not {code}")
        print(f"{time.monotonic() - begin:6.1f} s  python {name}", flush=True)
        return output

    def check_origin(self) -> None:
        """Asserts that every package comes from the environment."""
        lines = [f"import {name}; assert {name}.__file__.startswith(sys.prefix)" for name in PACKAGES]
        self.call("-c", "\n".join(["import sys", *lines]))

    def check_missing_extras(self) -> None:
        """Asserts that scripts name the extra that they miss, in one line."""
        for script, extra in (("collect", "collect"), ("mine", "collect"), ("train_sft", "train")):
            output = self.call("-m", f"experiments.{script}", "--workdir=run", code=1)
            assert output.startswith("error: ") and output.count("\n") == 1, output
            assert f"pip install '.[{extra}]'" in output, output

    def installed(self) -> dict[str, tuple[int, int]]:
        """Size and time of every installed file; Python's own caches are left out."""
        packages = next(self._python.parent.parent.glob("lib/python*/site-packages"))
        files = (path for path in packages.rglob("*") if "__pycache__" not in path.parts)
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def run_stages(environment: Environment) -> None:
    """Runs the whole recipe, then what is done with its results."""
    before = environment.installed()
    environment.call("-m", "experiments.demo", "--variant=smoke", "--workdir=demo")
    for command in _COMMANDS:
        script, *arguments = command.split()
        environment.call("-m", f"experiments.{script}", *arguments)
    serve(environment)
    assert environment.installed() == before, "something was written into the installed packages"


def serve(environment: Environment) -> None:
    """Starts the server, asks it once, and ends it."""
    begin = time.monotonic()
    settings = ("--config=configs/serve.py:smoke", "--config.model=demo/rl/export", "--workdir=serve")
    process = environment.start("-m", "experiments.serve", *settings)
    endpoint = environment.folder / "serve/endpoint.json"
    while not endpoint.exists():
        if process.poll() is not None or time.monotonic() - begin > _READY_S:
            process.kill()
            sys.exit(f"{process.communicate()[0]}\nerror: experiments.serve did not start")
        time.sleep(0.2)
    url = json.loads(endpoint.read_text())["url"].removesuffix("/v1")
    body = {"messages": [{"role": "user", "content": "Click the button."}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        assert json.load(response)["usage"]["completion_tokens"] > 0
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    print(f"{time.monotonic() - begin:6.1f} s  python -m experiments.serve {' '.join(settings)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Installs the wheel and runs every stage.")
    parser.add_argument("--reuse", action="store_true", help="borrow the dependencies of this environment")
    reuse = parser.parse_args().reuse
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-wheel-") as name:
        root = Path(name)
        wheel = build_wheel(root / "wheel")
        print(f"{time.monotonic() - begin:6.1f} s  {wheel.name}", flush=True)
        (root / "empty").mkdir()
        if reuse:
            environment = Environment(install_apart(wheel, root / "venv"), root / "empty")
        else:
            subprocess.run([sys.executable, "-m", "venv", str(root / "venv")], check=True)
            python = root / "venv/bin/python"
            environment = Environment(python, root / "empty")
            pip("--python", str(python), "install", str(wheel))
            environment.check_missing_extras()
            constraints = f"--constraint={ROOT / 'constraints.txt'}"
            pip("--python", str(python), "install", constraints, f"{wheel}[{_EXTRAS}]")
        print(f"{time.monotonic() - begin:6.1f} s  installed", flush=True)
        environment.check_origin()
        run_stages(environment)
    print(f"{time.monotonic() - begin:6.1f} s in all")


if __name__ == "__main__":
    main()
