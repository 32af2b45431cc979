"""A git checkout with a small judge of the tests' own, in the place of WebVoyager's."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from collection.judges.official.checkouts import OFFICIAL, OfficialMethod

ADDRESS = "github.com/tests/judge"
# It calls its model until it answers, prints, and fails in several ways if the task says so.
CODE = """
import base64, json, os, time, urllib.request
from pathlib import Path


class OpenAI:
    def __init__(self, base_url, api_key, max_retries, timeout):
        self.url, self.key = base_url, api_key

    def ask(self, model, messages):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        body = json.dumps({"model": model, "messages": messages, "temperature": 0}).encode()
        asked = urllib.request.Request(f"{self.url}/chat/completions", body, headers)
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]


def auto_eval_by_gpt4v(folder, client, model, images):
    said = json.loads(Path(folder, "interact_messages.json").read_text())
    task = said[1]["content"]
    if "crash" in task:
        raise RuntimeError("two\\nlines")
    if "leave" in task:
        os._exit(3)
    shots = sorted(Path(folder).glob("screenshot*.png"), key=lambda shot: int(shot.stem[10:]))[-images:]
    parts = [{"type": "text", "text": f"{task} {said[-1]['content']} {os.environ.get('SECRET')}"}]
    for shot in shots:
        data = base64.b64encode(shot.read_bytes()).decode()
        url = {"url": f"data:image/jpeg;base64,{data}", "detail": "high"}
        parts.append({"type": "image_url", "image_url": url})
    system = {"role": "system", "content": [{"type": "text", "text": "Judge."}]}
    messages = [system, {"role": "user", "content": parts}]
    print("a line of the judge")
    for _ in range(2 if "twice" in task else 1):
        while True:
            try:
                reply = client.ask(model, messages)
                break
            except Exception:
                time.sleep(10)
    return 0 if "NOT SUCCESS" in reply else 1 if "SUCCESS" in reply else None
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_checkout(folder: Path, code: str = CODE) -> Path:
    (folder / "evaluation").mkdir(parents=True)
    (folder / "evaluation/auto_eval.py").write_text(code)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "A judge")
    return folder


def pin(patch: pytest.MonkeyPatch, folder: Path) -> OfficialMethod:
    """Makes the checkout's commit that of `webvoyager`."""
    known = OFFICIAL["webvoyager"]
    commit = git(folder, "rev-parse", "HEAD")
    repository = dataclasses.replace(known.repository, address=ADDRESS, commit=commit)
    pinned = dataclasses.replace(known, repository=repository)
    patch.setitem(OFFICIAL, "webvoyager", pinned)
    return pinned
