"""User-visible errors of command lines, settings and the machine."""

import errno
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from experiments import cli
from rmsweb_jax.errors import UserError
from tests.scripts import run_script

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Runs a small experiment whose body is given, in this process unless `apart`; returns how it ended."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "settings", raising=False)
    (tmp_path / "settings.py").write_text(
        textwrap.dedent("""
        from rmsweb_jax.settings import Settings, safe, variant_config
        class Small(Settings):
            '''A thing.

            Attributes:
              size: of the thing.
              note: a word
                about it.
            '''
            size: int = 1
            note: str = safe("a")
        VARIANTS = {"small": ("a small one",)}
        def get_config(variant):
            return variant_config(Small, VARIANTS, variant)
        """)
    )

    def call(
        body: str, *arguments: str, config: str | None = "small", apart: bool = False
    ) -> subprocess.CompletedProcess[str]:
        source = "from experiments import cli\nfrom settings import Small\n"
        source += f"def main(config, workdir):\n    {body}\n"
        source += f"cli.run(main, '{tmp_path}/settings.py:small', Small)\n"
        path = tmp_path / "experiment.py"
        path.write_text(source)
        command = [str(path), f"--workdir={tmp_path}/run"]
        if config is not None:
            command.append(f"--config={tmp_path}/settings.py:{config}")
        command += arguments
        if not apart:
            return run_script(*command)
        environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
        return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)

    return call


def assert_one_line(result: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    assert result.returncode == code, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    for word in words:
        assert word in result.stderr


def test_overrides_reach_the_experiment(script):
    result = script("print(config.size, workdir.name)", "--config.size=5", apart=True)
    assert result.stdout == "5 run\n"
    assert re.fullmatch(r"to look at it, .*: python -m experiments\.view \S+/run\n", result.stderr)


def test_unknown_key_variant_and_argument(script):
    assert_one_line(script("pass", "--config.siez=5", apart=True), "siez")
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


def test_workdir_of_another_version_is_refused(script, tmp_path):
    assert script("pass").returncode == 0
    settings = tmp_path / "run/config.json"
    settings.write_text('{"size": 1, "note": "a", "model": {"rank": 8}}')
    assert_one_line(script("pass"), str(settings), "(model.rank)", "another --workdir")
    settings.write_text("{")
    assert_one_line(script("pass"), str(settings), "another --workdir")


def test_the_folder_of_another_stage_is_named_in_one_line(script, tmp_path):
    assert script("pass").returncode == 0
    (tmp_path / "run/config.json").write_text('{"pools": "a", "workers": 2, "terms": "paper"}')
    (tmp_path / "run/report.json").write_text('{"stage": "mine"}')
    assert_one_line(script("pass"), "run: this is the folder of mine: give experiment another --workdir")


def test_help_prints_flags_variants_and_keys(script):
    result = script("pass", "--help", apart=True)
    assert (result.returncode, result.stderr) == (0, "")
    for text in ("--workdir=FOLDER", "a small one", "size = 1   (whole number)", "note = 'a'   (text) *"):
        assert text in result.stdout
    assert "      a word about it." in result.stdout


def test_a_missing_workdir_is_one_sentence(script):
    assert_one_line(script("pass", "--workdir="), "--workdir is missing: give --workdir=FOLDER")


def test_config_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("configs/rl.py:8b", "configs/rl.py:8b,anchor_free", "configs/rl.py"):
        assert cli.find_config(name) == f"{ROOT}/{name}"
    for name in ("settings.py:small", "configs/absent.py:demo", "configs", "/absent/configs/rl.py:8b", ""):
        with pytest.raises(UserError, match=r"no such file; .* configs/rl\.py"):
            cli.find_config(name)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/rl.py").touch()
    assert cli.find_config("configs/rl.py:8b") == "configs/rl.py:8b"
    assert cli.find_config("configs/sft.py:8b") == f"{ROOT}/configs/sft.py:8b"


def test_installed_config_with_overrides(tmp_path):
    def call(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", f"from experiments import cli\n{source}", *arguments]
        environment = {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)

    body = "cli.run_config(lambda config: print(config.run), 'configs/report.py:demo')"
    for arguments in ([], ["--config=configs/report.py:demo"], ["-config=configs/report.py:demo"]):
        assert call(body, *arguments, "--config.run=x").stdout == "x\n"
    assert_one_line(call(body, "--config=configs/absent.py:demo"), "configs/absent.py:demo: no such file")


def test_workdir_that_cannot_be_made_or_written(script, tmp_path):
    # Not even root may make a folder there.
    for folder in ("/sys/run", "/proc/run/it"):
        assert_one_line(script("pass", f"--workdir={folder}"), folder, "another --workdir")
    assert_one_line(
        script("pass", f"--workdir={tmp_path}/settings.py"), "settings.py", "a file is in the way"
    )
    assert_one_line(script(f"raise OSError({errno.EROFS}, 'Read-only', 'shard')"), "shard: Read-only")


@pytest.mark.parametrize(
    "module, package, extra",
    [
        ("selenium", "collection.browser.chromium", "collect"),
        ("google", "collection.llm.gemini", "collect"),
        # Both extras have it.
        ("httpx", "collection.fleet.policy_server", "collect"),
        ("rapidfuzz", "rmsweb_jax.actions.similarity", "train"),
        ("orbax", "rmsweb_jax.training.checkpoints", "train"),
    ],
)
def test_missing_extra_names_the_pip_command(module, package, extra):
    source = f"import sys, experiments; sys.modules['{module}'] = None; import {package}"
    result = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert_one_line(result, module, f"pip install '.[{extra}]' in the checkout", code=1)


def test_a_missing_module_of_the_package_is_a_bug_and_has_a_traceback():
    source = "import experiments, rmsweb_jax.absent"
    result = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" in result.stderr


def test_the_command_lists_stages_at_once_and_runs_them(tmp_path):
    source = "import sys; from experiments.__main__ import main; main(); assert 'numpy' not in sys.modules"

    def call(
        *arguments: str, program: tuple[str, ...] = ("-m", "experiments")
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *program, *arguments]
        environment = {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)

    listed = call("--help", program=("-c", source))
    assert listed.returncode == 0 and listed.stderr == ""
    names = re.findall(r"^  (\w+) +\S.*\.$", listed.stdout, re.MULTILINE)
    assert {"collect", "mine", "train_rl", "serve", "view", "merge"} <= set(names) and "cli" not in names
    assert_one_line(call("train_slf"), "no stage 'train_slf': did you mean train_sft?")
    assert_one_line(call("mine", "--workdir=x", "--config.siez=1"), "siez")
    help_ = call("mine", "--help")
    assert help_.returncode == 0 and "--explain" in help_.stdout and "--workdir=FOLDER" in help_.stdout


def test_interrupt_and_termination_end_in_one_line(script):
    assert_one_line(script("raise KeyboardInterrupt", apart=True), "again to continue", code=130)
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    assert_one_line(script(kill, apart=True), "again to continue", code=75)


def test_a_full_disk_is_reported_and_other_system_errors_are_raised(script):
    assert_one_line(script(f"raise OSError({errno.ENOSPC}, 'No space left', 'shard')"), "disk full", "shard")
    with pytest.raises(OSError, match="Input/output error"):
        script(f"raise OSError({errno.EIO}, 'Input/output error')")
