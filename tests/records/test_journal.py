import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.records.journal import Journal, read_journal

RECORDS = [b'{"a":1}', b"", '{"text":"é\u2028"}'.encode(), b"\r" + b"x" * 5000]


def write(path, records):
    with Journal(path) as journal:
        for record in records:
            journal.append(record)


def test_records_come_back(tmp_path):
    path = tmp_path / "deep" / "j.jsonl"
    assert read_journal(path) == []
    write(path, RECORDS[:2])
    write(path, RECORDS[2:])
    assert read_journal(path) == RECORDS


@given(cut=st.integers(0, 5100))
def test_a_torn_end_loses_only_the_last_record(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    write(path, RECORDS)
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    left = read_journal(path)
    assert left == RECORDS[: len(left)]
    if cut == 0:
        assert left == RECORDS
    write(path, [b"after"])
    assert read_journal(path) == [*left, b"after"]


def test_a_record_is_one_line(tmp_path):
    with Journal(tmp_path / "j") as journal, pytest.raises(ValueError, match="one line"):
        journal.append(b"a\nb")


def test_appended_records_survive_a_kill(tmp_path):
    path = tmp_path / "j.jsonl"
    script = (
        "import sys\nfrom pathlib import Path\nfrom rmsweb_jax.records.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\njournal.append(b'one')\njournal.append(b'two')\n"
        # A third record reaches the file in part only, and the process says so before it is killed.
        "journal._file.write(b'{thr')\njournal._file.flush()\n"
        "print('written', flush=True)\nsys.stdin.read()\n"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert read_journal(path) == [b"one", b"two"]
    write(path, [b"three"])
    assert read_journal(path) == [b"one", b"two", b"three"]


# The file size limit simulates a full disk: writes beyond it fail in the same way.
LIMITED = """
import resource, signal, sys
from pathlib import Path
from rmsweb_jax.records.journal import Journal, read_journal

path = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Journal(path) as journal:
    journal.append(b"one")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, unlimited[1]))
    for _ in range(2):
        try:
            journal.append(b"two")
        except OSError:
            print("full", read_journal(path))
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    journal.append(b"three")
print(read_journal(path))
"""


def test_a_record_that_the_disk_had_no_room_for_leaves_no_trace(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "j")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["full [b'one']", "full [b'one']", "[b'one', b'three']"]
