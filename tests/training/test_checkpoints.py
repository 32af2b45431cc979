import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.training.checkpoints import SUMS, Checkpoints

KILLED_WHILE_SAVING = """
import os, signal, sys
from pathlib import Path
import numpy as np
import jax.numpy as jnp
from rmsweb_jax.training.checkpoints import Checkpoints

noise = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
checkpoints = Checkpoints(Path(sys.argv[1]), keep=1)
checkpoints.save(1, {"w": jnp.asarray(noise)}, {"place": 1})
checkpoints.wait()
checkpoints.save(2, {"w": jnp.asarray(noise + 1)}, {"place": 2})
os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_WHILE_HASHING = """
import os, signal, sys
from pathlib import Path
from rmsweb_jax.training import checkpoints as module
from tests.training.test_checkpoints import noise

checkpoints = module.Checkpoints(Path(sys.argv[1]), keep=1)
checkpoints.save(1, noise(1), {})
checkpoints.wait()
module._sum = lambda path: os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save(2, noise(2), {})
checkpoints.wait()
"""


def state(value: float):
    return {"w": jnp.full((3, 2), value), "count": jnp.asarray(7, jnp.int32)}


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.is_dir())


def test_restores_arrays_and_extra(tmp_path):
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() is None
        checkpoints.save(5, state(1.25), {"seconds": 2.5})
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() == 5
        assert checkpoints.best_step() is None
        restored, extra = checkpoints.restore(5, state(0.0))
    jax.tree.map(np.testing.assert_array_equal, restored, state(1.25))
    assert extra == {"seconds": 2.5}


def test_keeps_the_latest_and_ignores_an_unfinished_one(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(step), {})
    assert steps(tmp_path) == [2, 3]
    (tmp_path / "4.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 3


@pytest.mark.parametrize("higher, best", [(True, 2), (False, 3)])
def test_keeps_the_best_and_the_latest(tmp_path, higher, best):
    accuracies = {1: 0.5, 2: 0.9, 3: 0.1, 4: None, 5: float("nan"), 6: 0.4, 7: 0.4}
    options = {"keep": 2, "best": "eval/accuracy", "higher_is_better": higher}
    with Checkpoints(tmp_path, **options) as checkpoints:
        assert checkpoints.best_step() is None
        for step, accuracy in accuracies.items():
            metrics = None if accuracy is None else {"eval/accuracy": accuracy, "loss": 1.0}
            checkpoints.save(step, state(step), {}, metrics)
        assert checkpoints.best_step() == best
    assert steps(tmp_path) == [best, 6, 7]
    with Checkpoints(tmp_path, **options) as checkpoints:
        assert checkpoints.best_step() == best
        jax.tree.map(np.testing.assert_array_equal, checkpoints.restore(best, state(0))[0], state(best))
        checkpoints.save(8, state(8), {}, {"eval/accuracy": 2.0 if higher else -1.0})
        assert checkpoints.best_step() == 8
    assert steps(tmp_path) == [7, 8]


def test_the_next_step_may_donate_arrays_being_saved(tmp_path):
    @partial(jax.jit, donate_argnums=0)
    def advance(tree):
        return jax.tree.map(lambda x: x + 1, tree)

    now = {"w": jnp.zeros((512, 512)), "b": jnp.zeros(7)}
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(3):
            checkpoints.save(step, now, {})
            for _ in range(5):
                now = advance(now)
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(3):
            restored, _ = checkpoints.restore(step, now)
            assert all((leaf == 5 * step).all() for leaf in jax.tree.leaves(restored))


def test_a_kill_while_saving_leaves_a_whole_checkpoint(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    noise = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        step = checkpoints.latest_step()
        assert step in (1, 2)
        restored, extra = checkpoints.restore(step, {"w": jnp.asarray(noise)})
        np.testing.assert_array_equal(restored["w"], noise + (step - 1))
        assert extra == {"place": step}
        checkpoints.save(3, restored, {})
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "flip":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()


def files(folder: Path) -> list[Path]:
    """All that a checkpoint's values can depend on."""
    own = ("_CHECKPOINT_METADATA", "commit_success.txt")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in own)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    with Checkpoints(folder) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, noise(step), {"place": step})
    return folder


def noise(step: int):
    return {"w": jnp.asarray(np.random.default_rng(step).normal(size=(64, 64)), jnp.float32)}


@pytest.mark.parametrize(
    "how, what", [("flip", "has changed"), ("cut", "bytes instead of"), ("gone", "missing")]
)
def test_whatever_file_is_damaged_the_checkpoint_before_is_restored(
    two_checkpoints, tmp_path, capfd, how, what
):
    for number, path in enumerate(files(two_checkpoints / "2")):
        folder = tmp_path / str(number)
        shutil.copytree(two_checkpoints, folder)
        name = path.relative_to(two_checkpoints / "2")
        damage(folder / "2" / name, how)
        with Checkpoints(folder) as checkpoints:
            resumed = checkpoints.resume(noise(0))
            assert resumed is not None
            step, restored, extra = resumed
            assert (step, extra) == (1, {"place": 1}), name
            np.testing.assert_array_equal(restored["w"], noise(1)["w"])
            lines = capfd.readouterr().err.splitlines()
            begin = f"{folder}/2: this checkpoint is damaged ({name} "
            assert [line.startswith(begin) and what in line for line in lines] == [True] or name.name == SUMS
            assert lines[0].endswith("): going on from step 1") and len(lines) == 1
            # It is made again, and then is whole.
            assert steps(folder) == [1]
            checkpoints.save(2, noise(2), {"place": 2})
        with Checkpoints(folder) as checkpoints:
            restored, _ = checkpoints.restore(2, noise(0))
            np.testing.assert_array_equal(restored["w"], noise(2)["w"])


def test_without_a_whole_checkpoint_nothing_is_deleted(two_checkpoints, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(two_checkpoints, folder)
    for step in (1, 2):
        damage(max(files(folder / str(step)), key=lambda path: path.stat().st_size), "flip")
    with (
        Checkpoints(folder) as checkpoints,
        pytest.raises(UserError, match=r"2: .*has changed.*1: .*has changed.*; no other is left: put"),
    ):
        checkpoints.resume(noise(0))
    assert steps(folder) == [1, 2]


def test_a_damaged_metric_does_not_choose_another_best_checkpoint(tmp_path):
    with Checkpoints(tmp_path, best="loss", higher_is_better=False) as checkpoints:
        for step, loss in enumerate((1.25, 2.5, 3.5), 1):
            checkpoints.save(step, state(step), {}, {"loss": loss})
    path = tmp_path / "1/metrics/metrics"
    path.write_text(path.read_text().replace("1", "9"))
    with pytest.raises(
        UserError, match=r"1: this checkpoint is damaged \(metrics/metrics has changed\): put"
    ):
        Checkpoints(tmp_path, best="loss", higher_is_better=False)


def test_a_kill_while_hashing_leaves_the_checkpoint_before(tmp_path):
    """The sums are a part of the commit: a checkpoint without them does not count."""
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_HASHING, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        resumed = checkpoints.resume(noise(0))
        assert resumed is not None and resumed[0] == 1
        checkpoints.save(2, noise(2), {})
    assert steps(tmp_path) == [2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_an_error_of_one_line_and_keeps_the_checkpoint_before(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(small)], check=True)
    try:
        large = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1024, 1024)), jnp.float32)}
        checkpoints = Checkpoints(small / "checkpoints", keep=1)
        checkpoints.save(1, large, {})
        checkpoints.wait()
        (small / "ballast").write_bytes(bytes(6 * 2**20))
        with pytest.raises(OSError) as raised:
            checkpoints.save(2, large, {})
            checkpoints.wait()
        line = f"disk full while writing {small / 'checkpoints'}: free space, then run the same command again"
        assert user_message(raised.value) == (line, 2)
        (small / "ballast").unlink()
        with Checkpoints(small / "checkpoints", keep=1) as checkpoints:
            resumed = checkpoints.resume(large)
            assert resumed is not None and resumed[0] == 1
            np.testing.assert_array_equal(resumed[1]["w"], large["w"])
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_another_shape_is_one_clear_line(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(1.0), {})
        other = {"w": jnp.zeros((4, 2)), "count": jnp.asarray(0, jnp.int32)}
        with pytest.raises(UserError, match="does not fit"):
            checkpoints.restore(1, other)
