"""The wheel holds all of the packages, and works in a folder that is not the checkout."""

import importlib.util
import re
import shlex
import subprocess
import zipfile

import pytest
from absl import flags
from ml_collections import config_flags

from experiments import cli
from tests.packaging.wheel import PACKAGES, ROOT, outside_environment, source_files

# Every module of the wheel is imported, and every config made, in one process.
_IMPORT_ALL = """
import importlib, pkgutil, sys
from importlib import metadata, resources

import rmsweb_jax

assert metadata.version("rmsweb-jax") == rmsweb_jax.__version__
for name in {packages}:
    package = importlib.import_module(name)
    assert package.__file__.startswith(sys.prefix), package.__file__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            found = importlib.import_module(module.name)
            assert found.__file__.startswith(sys.prefix), found.__file__
    if name in ("rmsweb_jax", "collection"):
        assert (resources.files(name) / "py.typed").is_file()
"""


def test_wheel_holds_every_file_of_the_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {str(path) for path in source_files()}


def test_folders_with_modules_are_packages():
    for path in source_files():
        if path.suffix == ".py":
            assert (ROOT / path).with_name("__init__.py").exists(), f"{path.parent} has no __init__.py"


@pytest.mark.slow
def test_every_module_imports_from_the_wheel(wheel_python, tmp_path):
    script = _IMPORT_ALL.format(packages=PACKAGES)
    result = subprocess.run(
        [str(wheel_python), "-c", script],
        cwd=tmp_path,
        env=outside_environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def documented_commands() -> list[list[str]]:
    """The words of every command with a config in README and docs, from the script's name on."""
    texts = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
    text = "\n".join(texts).replace("\\\n", " ")
    lines = re.findall(r"^ *(?:\w+=\S+ )*python -m (experiments\.\S+ .*--config=.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", documented_commands(), ids=" ".join)
def test_documented_commands_name_scripts_and_settings_that_exist(words, tmp_path, monkeypatch):
    script, *arguments = words
    assert importlib.util.find_spec(script)
    monkeypatch.chdir(ROOT if script.startswith("experiments.studies") else tmp_path)
    argv = [script, *(argument for argument in arguments if argument.startswith("--config"))]
    argv = cli.find_configs(argv)
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    assert values(argv) == [script]
