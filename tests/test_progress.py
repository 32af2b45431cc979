import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rmsweb_jax.progress import Progress, Rate

ON_A_TERMINAL = """
import sys
from pathlib import Path
from rmsweb_jax.progress import Progress

folder = Path(sys.argv[1])
with_error = len(sys.argv) > 2
(folder / "inner").mkdir()
outer = Progress(folder, "outer", total=4, done=1)
inner = Progress(folder / "inner", "inner", total=2)
outer.update(4, "loss [0.5]")
inner.update(2)
if with_error:
    raise SystemExit("failed")
inner.close()
outer.close("all done")
again = Progress(folder, "again", total=1)
again.close()
"""


def state(folder: Path) -> dict:
    return json.loads((folder / "progress.json").read_text())


def run_on_a_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, str(folder), *arguments],
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(main, 4096):
            shown += part
    except OSError:  # How a terminal without programs ends on Linux.
        pass
    os.close(main)
    return process.wait(), shown.decode()


def test_written_progress_can_be_read(tmp_path):
    progress = Progress(tmp_path, "mine", total=4, done=1)
    assert state(tmp_path) == {"stage": "mine", "done": 1, "total": 4, "eta_s": None, "note": ""}
    progress.update(6, "half", total=6)
    assert state(tmp_path) == {"stage": "mine", "done": 6, "total": 6, "eta_s": 0.0, "note": "half"}
    progress.close("done")
    assert state(tmp_path)["note"] == "done"


def test_only_the_active_one_writes(tmp_path):
    progress = Progress(tmp_path, "mine", total=4, active=False)
    progress.update(4)
    progress.close()
    assert not list(tmp_path.iterdir())


def test_a_slow_start_is_forgotten():
    rate = Rate(100, 0.0)
    assert rate.per_second() is None
    rate.update(100, 50.0)
    assert rate.per_second() is None
    rate.update(101, 300.0)
    assert rate.per_second() == pytest.approx(1 / 300)
    for second in range(1, 1200):
        rate.update(101 + 2 * second, 300.0 + second)
    assert rate.per_second() == pytest.approx(2.0, rel=1e-4)


def test_slow_units_are_averaged_over_several():
    rate = Rate(0, 0.0)
    now = 0.0
    for number in range(40):
        now += 200.0 if number % 2 else 400.0
        rate.update(number + 1, now)
    assert rate.per_second() == pytest.approx(1 / 300, rel=0.06)


def test_one_line_on_a_terminal_with_several_counters(tmp_path):
    code, shown = run_on_a_terminal(tmp_path)
    assert code == 0
    assert "outer" in shown and "4/4" in shown and "loss [0.5]" in shown and "all done" in shown
    assert "inner" not in shown and "again" in shown
    assert state(tmp_path / "inner")["done"] == 2


def test_an_error_leaves_the_cursor_visible(tmp_path):
    code, shown = run_on_a_terminal(tmp_path, "error")
    assert code == 1 and "failed" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
