"""Packages that only a proof needs, in a folder of their own instead of the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def install_apart(requirements: Path, folder: Path) -> None:
    """Puts the packages of a requirements file into `folder`, once.

    Raises:
      SystemExit: pip failed.
    """
    stamp = folder / requirements.name
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--upgrade", "--target", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        problem = done.stderr.strip()[-500:]
        raise SystemExit(f"error: {requirements.stem} could not be installed into {folder}: {problem}")
    stamp.write_text(requirements.read_text())
