"""Which official judges there are, from which commits, and the check of a user's checkout.

A judge's prompts and its reading of replies stay in its own repository; nothing of them is copied here. A
checkout is used only if it is at the pinned commit and the files of the judge are unchanged.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository with judges, and the version of it that is used.

    Attributes:
      address: without `https://`.
      roots: files and folders from which the judges run.
      packages: what they import, as arguments of `pip install`.
    """

    address: str
    commit: str
    roots: tuple[str, ...]
    packages: str


@dataclasses.dataclass(frozen=True)
class OfficialMethod:
    """An official judge.

    Attributes:
      sees: the evidence it gets, as a phrase.
      evidence: limits on its evidence, for the record.
      needs_answer: a run without a final answer is a failure.
      form: what a reply must contain to be a verdict; its code takes any other reply for a failure.
      retries: its code itself asks again for a reply that it cannot read.
    """

    repository: Repository
    sees: str
    evidence: Mapping[str, int | str]
    needs_answer: bool
    form: str = ""
    retries: bool = False

    def reads(self, reply: str) -> bool:
        """Returns True if a reply contains a verdict."""
        return re.search(self.form, reply) is not None


_WEBVOYAGER = Repository(
    address="github.com/MinorJerry/WebVoyager",
    commit="5a7896738c10bfb8b9edccce6bb0e0411f8ae569",
    roots=("evaluation",),
    packages="openai",
)
_BROWSER_USE = Repository(
    address="github.com/browser-use/eval",
    commit="0ee7ae0ed296bfb4f93802a63149fb1a70c06555",
    roots=("evaluation",),
    packages="browser-use pydantic-settings langchain-openai langchain-anthropic langchain-google-genai",
)
_FARA = Repository(
    address="github.com/microsoft/fara",
    commit="9b8af39c87346bac7f2af20d8a0b586cc5e3c4a5",
    roots=("webeval/src/webeval", "src/fara"),
    packages="openai backoff tiktoken requests imagehash pyyaml jinja2 pillow pydantic playwright",
)
# The values that the judges' code returns, as a verdict; all others are none.
VERDICTS: Mapping[Any, bool] = {1: True, 0: False, "success": True, "failed": False}

OFFICIAL: dict[str, OfficialMethod] = {
    "webvoyager": OfficialMethod(
        _WEBVOYAGER, "the final answer and the last 15 screenshots", {"screenshots": 15}, True
    ),
    "browser_use": OfficialMethod(
        _BROWSER_USE,
        "the final answer and the last 4 screenshots",
        {"screenshots": 4},
        True,
        r"SUCCESS|UNKNOWN",
    ),
    "webjudge": OfficialMethod(
        _FARA,
        "the actions, and at most 50 screenshots that it gave 3 or more of 5 points",
        {"screenshots": 50, "least_score": 3},
        False,
        r"(?i)status:",
    ),
    "agenttrek": OfficialMethod(
        _FARA,
        "the agent's thoughts, the actions and the last screenshot",
        {"screenshots": 1},
        False,
        r"(?i)status:",
    ),
    "universal_verifier": OfficialMethod(
        _FARA,
        "a rubric, the agent's thoughts, the actions, the final answer and the screenshots",
        {"screenshots_per_criterion": 5, "verdict": "outcome"},
        False,
        retries=True,
    ),
}


def check_checkout(folder: Path, repository: Repository, setting: str = "config.judge.official") -> None:
    """Checks that a folder is the pinned commit of a repository and that the judge's files are unchanged.

    Raises:
      UserError: it is not; the message says which commit is there or which file differs, and what to do.
    """
    clone = f"git clone https://{repository.address} {folder}"
    if not folder.is_dir():
        raise UserError(f"{setting}={folder}: no such folder; get it with: {clone}")
    commit = "".join(_git(folder, "rev-parse", "HEAD") or ())
    if commit != repository.commit:
        found = f"at commit {commit[:12]}" if commit else "not a git checkout"
        remedy = f"git -C {folder} checkout {repository.commit}" if commit else clone
        raise UserError(
            f"{setting}={folder}: {found}; this judge is of {repository.address} at "
            f"{repository.commit[:12]}; get it with: {remedy}"
        )
    roots = ("--", *repository.roots)
    # Ignored files count as well, since Python would import them; and those that git was set to overlook.
    status = _git(folder, "status", "--porcelain", "--ignored", "--untracked-files=all", *roots)
    files = _git(folder, "ls-files", "-v", *roots)
    changed = [line[3:] for line in status or ()]
    changed += [line[2:] for line in files or () if not line.startswith("H ")]
    names = [name for name in changed if "__pycache__" not in name]
    if status is None or not files:  # A damaged index, or a folder below the checkout's own.
        names = ["what git cannot compare has"]
    if names:
        fresh = f"{clone}-new && git -C {folder}-new checkout {repository.commit}"
        raise UserError(
            f"{setting}={folder}: {', '.join(names[:3])} changed since commit {commit[:12]}; give a "
            f"fresh checkout, made with: {fresh}"
        )


def _git(folder: Path, *arguments: str) -> list[str] | None:
    """Returns the lines that git prints; None if it fails."""
    # A checkout of another user is read, too; its hooks and filters do not run in these commands.
    command = ["git", "-c", f"safe.directory={folder.resolve()}", "-c", "core.fsmonitor=false"]
    command += ["-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
