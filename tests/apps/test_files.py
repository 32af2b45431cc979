"""Files of an application: a folder gets those that are kept, and has no others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.environments.apps.files import files_of, read_files, replace_files, restore_files

_CONTENTS = st.dictionaries(st.sampled_from(("a", "b", "sub/a", "sub/deep/b")), st.binary(max_size=12))


@pytest.mark.parametrize("from_memory", [False, True])
@given(wanted=_CONTENTS, held=_CONTENTS)
def test_a_folder_gets_the_kept_files(
    from_memory: bool, wanted: dict[str, bytes], held: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept, live = Path(folder, "kept"), Path(folder, "live")
        for place, contents in ((kept, wanted), (live, held)):
            for name, data in contents.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(data)
        for name in held:
            os.utime(live / name, (1, 1))  # A file of the same size from another time is another one.
        if from_memory:
            replace_files(wanted, live)
        else:
            restore_files(kept, live)
        assert read_files(live) == wanted
        if not from_memory:
            for name in files_of(kept):
                assert (live / name).stat().st_mtime_ns == (kept / name).stat().st_mtime_ns
