"""Which official judges there are, from which commits, and the check of a user's checkout.

A judge's prompts and its reading of replies stay in its own repository; nothing of them is copied here. A
checkout is used only if it is at the pinned commit and the files of the judge are unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository with judges, and the version of it that is used.

    Attributes:
      address: without `https://`.
      roots: files and folders from which the judges run.
      sha256: digest of these (`files_sha256`).
      packages: what they import, as arguments of `pip install`.
    """

    address: str
    commit: str
    roots: tuple[str, ...]
    sha256: str
    packages: str


@dataclasses.dataclass(frozen=True)
class OfficialMethod:
    """An official judge.

    Attributes:
      sees: the evidence it gets, as a phrase.
      evidence: limits on its evidence, for the record.
      needs_answer: a run without a final answer is a failure.
      verdicts: the values that its code returns, as a verdict; all others are none.
      retries: its code itself asks again for a reply that it cannot read.
      form: what a reply must contain to be a verdict; its code takes any other reply for a failure.
    """

    repository: Repository
    sees: str
    evidence: Mapping[str, int | str]
    needs_answer: bool
    verdicts: Mapping[Any, bool]
    form: str = ""
    retries: bool = False

    def reads(self, reply: str) -> bool:
        """Returns True if a reply contains a verdict."""
        return re.search(self.form, reply) is not None


_WEBVOYAGER = Repository(
    address="github.com/MinorJerry/WebVoyager",
    commit="5a7896738c10bfb8b9edccce6bb0e0411f8ae569",
    roots=("evaluation",),
    sha256="89c1de030d79fe5dad13e531d074fcb3bb29bb059f2884cc3cce37ba5f99821d",
    packages="openai",
)
_BROWSER_USE = Repository(
    address="github.com/browser-use/eval",
    commit="0ee7ae0ed296bfb4f93802a63149fb1a70c06555",
    roots=("evaluation",),
    sha256="bea46525917743b4db55d75413c8647e9f8026bee76425ada8c0d72828fd3f45",
    packages="browser-use pydantic-settings langchain-openai langchain-anthropic langchain-google-genai",
)
_FARA = Repository(
    address="github.com/microsoft/fara",
    commit="9b8af39c87346bac7f2af20d8a0b586cc5e3c4a5",
    roots=("webeval/src/webeval", "src/fara"),
    sha256="5f55cfc9391a99a970eac130e119eb7e2f193e07ac5ba6a160d50467f27999a8",
    packages="openai backoff tiktoken requests imagehash pyyaml jinja2 pillow pydantic playwright",
)
# Code and the prompts that it reads, without the repository's pictures and example runs.
_SUFFIXES = (".py", ".j2", ".yaml", ".md")
_STATUS = MappingProxyType({1: True, 0: False})

OFFICIAL: Mapping[str, OfficialMethod] = MappingProxyType(
    {
        "webvoyager": OfficialMethod(
            _WEBVOYAGER,
            "the final answer and the last 15 screenshots",
            MappingProxyType({"screenshots": 15}),
            True,
            _STATUS,
        ),
        "browser_use": OfficialMethod(
            _BROWSER_USE,
            "the final answer and the last 4 screenshots",
            MappingProxyType({"screenshots": 4}),
            True,
            MappingProxyType({"success": True, "failed": False}),
            r"SUCCESS|UNKNOWN",
        ),
        "webjudge": OfficialMethod(
            _FARA,
            "the actions, and at most 50 screenshots that it gave 3 or more of 5 points",
            MappingProxyType({"screenshots": 50, "least_score": 3}),
            False,
            _STATUS,
            r"(?i)status:",
        ),
        "agenttrek": OfficialMethod(
            _FARA,
            "the agent's thoughts, the actions and the last screenshot",
            MappingProxyType({"screenshots": 1}),
            False,
            _STATUS,
            r"(?i)status:",
        ),
        "universal_verifier": OfficialMethod(
            _FARA,
            "a rubric, the agent's thoughts, the actions, the final answer and the screenshots",
            MappingProxyType({"screenshots_per_criterion": 5, "verdict": "outcome"}),
            False,
            _STATUS,
            retries=True,
        ),
    }
)


def check_checkout(folder: Path, repository: Repository, setting: str = "config.judge.official") -> None:
    """Checks that a folder is the pinned commit of a repository and that the judge's files are unchanged.

    Raises:
      UserError: it is not; the message says which commit is there or which file differs, and what to do.
    """
    clone = f"git clone https://{repository.address} {folder}"
    if not folder.is_dir():
        raise UserError(f"{setting}={folder}: no such folder; get it with: {clone}")
    commit = _git(folder, "rev-parse", "HEAD")
    if commit != repository.commit:
        found = f"at commit {commit[:12]}" if commit else "not a git checkout"
        remedy = f"git -C {folder} checkout {repository.commit}" if commit else clone
        raise UserError(
            f"{setting}={folder}: {found}; this judge is of {repository.address} at "
            f"{repository.commit[:12]}; get it with: {remedy}"
        )
    if files_sha256(folder, repository.roots) != repository.sha256:
        changed = _git(folder, "status", "--porcelain", "--ignored", "--", *repository.roots).splitlines()
        names = [line.split(maxsplit=1)[1] for line in changed if "__pycache__" not in line]
        raise UserError(
            f"{setting}={folder}: {', '.join(names[:3]) or 'its files'} changed since commit "
            f"{commit[:12]}; restore with: git -C {folder} checkout {repository.commit} -- "
            f"{' '.join(repository.roots)}"
        )


@functools.cache
def files_sha256(folder: Path, roots: tuple[str, ...]) -> str:
    """Returns the SHA-256 of names and contents of all code and prompts under `roots`.

    Computed once per process: it is a fact about the run.
    """
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted((folder / root).rglob("*")):
            if path.is_file() and path.suffix in _SUFFIXES:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str:
    """Returns what git prints; "" if it fails."""
    # A checkout of another user is read, too; its hooks and filters do not run in these commands.
    command = ["git", "-c", f"safe.directory={folder.resolve()}", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")
    except (OSError, subprocess.CalledProcessError):
        return ""
