"""What a user sees when a command line, a setting or the machine is at fault."""

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from experiments import cli
from rmsweb_jax.errors import UserError

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(tmp_path):
    """Runs a small experiment whose body is given; returns the finished process."""
    (tmp_path / "settings.py").write_text(
        textwrap.dedent("""
        from ml_collections import ConfigDict
        def get_config(variant):
            return {"small": ConfigDict({"size": 1, "note": "a"})}[variant]
        """)
    )

    def call(body: str, *arguments: str, config: str | None = "small") -> subprocess.CompletedProcess[str]:
        source = f"from experiments import cli\ndef main(config, workdir):\n    {body}\n"
        source += f"cli.run(main, '{tmp_path}/settings.py:small', safe_keys=['note'])\n"
        path = tmp_path / "experiment.py"
        path.write_text(source)
        command = [sys.executable, str(path), f"--workdir={tmp_path}/run"]
        if config is not None:
            command.append(f"--config={tmp_path}/settings.py:{config}")
        command += arguments
        return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})

    return call


def assert_one_line(result: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    assert result.returncode == code, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    for word in words:
        assert word in result.stderr


def test_overrides_reach_the_experiment(script):
    result = script("print(config.size, workdir.name)", "--config.size=5")
    assert (result.stdout, result.stderr) == ("5 run\n", "")


def test_unknown_key_variant_and_argument(script):
    assert_one_line(script("pass", "--config.siez=5"), "siez")
    assert_one_line(script("pass", config="large"), "large")
    assert_one_line(script("pass", "stray"), "stray")
    assert_one_line(script("pass", "--config.size=many"), "size")
    # Overrides of the default config.
    assert_one_line(script("pass", "--config.siez=5", config=None), "siez")
    assert_one_line(script("pass", "--config.size=many", config=None), "size")
    assert script("print(config.size)", "--config.size=5", config=None).stdout == "5\n"


def test_changed_settings_are_refused_outside_the_safe_list(script):
    assert script("pass").returncode == 0
    assert_one_line(script("pass", "--config.size=2"), "size", "was 1", "is 2")
    assert script("pass", "--config.note=b").returncode == 0


def test_interrupt_and_termination_end_in_one_line(script):
    assert_one_line(script("raise KeyboardInterrupt"), "again to continue", code=130)
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    assert_one_line(script(kill), "again to continue", code=130)


def test_full_disk_is_told_and_other_system_errors_are_not_hidden(script):
    assert_one_line(script(f"raise OSError({errno.ENOSPC}, 'No space left', 'shard')"), "disk full", "shard")
    assert "Traceback" in script(f"raise OSError({errno.EIO}, 'Input/output error')").stderr


def test_second_run_in_a_workdir_is_refused(tmp_path):
    with cli.lock_workdir(tmp_path), pytest.raises(UserError, match="in use"), cli.lock_workdir(tmp_path):
        pass
    with cli.lock_workdir(tmp_path):
        pass


def test_config_check_compares_nested_keys(tmp_path):
    cli.check_config(ConfigDict({"a": {"b": 1}, "c": ()}), tmp_path, frozenset())
    cli.check_config(ConfigDict({"a": {"b": 1}, "c": ()}), tmp_path, frozenset())
    with pytest.raises(UserError, match=r"a\.b"):
        cli.check_config(ConfigDict({"a": {"b": 2}, "c": ()}), tmp_path, frozenset())
