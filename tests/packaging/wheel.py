"""The wheel of this checkout: built from a clean copy, and installed where the checkout is out of reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("rmsweb_jax", "collection", "configs", "experiments")
# These make and measure what the product ships, and stay in the checkout.
STUDIES = ("configs/studies", "experiments/studies")


def source_files() -> list[Path]:
    """Files of the packages, relative to the checkout, that the wheel must hold."""
    files = [path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*")]
    return sorted(
        path
        for path in files
        if (ROOT / path).is_file() and "__pycache__" not in path.parts and not str(path).startswith(STUDIES)
    )


def build_wheel(folder: Path) -> Path:
    """Builds the wheel into `folder`, offline: needs setuptools in this environment."""
    # setuptools would also pack what an earlier build left in build/.
    source = folder / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(source))
    return next(folder.glob("*.whl"))


def install_apart(wheel: Path, folder: Path) -> Path:
    """Installs the wheel into an environment that borrows its dependencies from this one.

    Returns:
      The environment's Python.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # Only the folder: an editable install in it, which a .pth file of its own announces, stays out of sight.
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def pip(*arguments: str) -> None:
    """Runs this environment's pip.

    Raises:
      subprocess.CalledProcessError: its output has been printed.
    """
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def outside_environment() -> dict[str, str]:
    """Environment variables without those that lead back to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
