"""A mining run with two processes that is killed when its first tasks are mined.

    python -m tests.mining.kill_mine WORKDIR POOL

It prints the ids of its processes before.
"""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

from collection.mining import mine
from tests.mining.disk_pools import mine_pools_at


def update(*_: Any, **__: Any) -> None:
    print(json.dumps([child.pid for child in multiprocessing.active_children()]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    mine._SMALL_BYTES = 0
    mine.Progress.update = update
    mine_pools_at(*map(Path, sys.argv[1:]), workers=2)
