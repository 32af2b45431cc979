"""The mining stage, killed at its writes and reads and run again, against an uninterrupted run. Minutes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.mining.disk_pools import put_pool
from tests.mining.kill_mine import every
from tests.mining.test_same_bytes import SMALL
from tests.proofs.result import Claim, Figures, Proof, main, table

STRIDE = 4


def measure() -> Figures:
    with tempfile.TemporaryDirectory(prefix="rmsweb-mining-kill-") as name:
        root = Path(name)
        found = every(root, put_pool(root / "pool", SMALL), STRIDE)
    kills = [{"writing": kind, "kills": number} for kind, number in sorted(found["kills"].items())]
    return {"stride": STRIDE, "kills": kills, "different": found["different"]}


def claims(figures: Figures) -> list[Claim]:
    kills, different = sum(row["kills"] for row in figures["kills"]), len(figures["different"])
    return [
        Claim(
            "a killed run that is run again leaves the files of an uninterrupted one",
            f"{different} of {kills} differ",
            different == 0,
        )
    ]


def tables(figures: Figures) -> str:
    return table(("while writing", "kills"), [list(row.values()) for row in figures["kills"]])


ABOUT = """\
`experiments.mine` is killed with SIGKILL before, in the middle of and after each {stride}th change that it
makes to the disk, at the first and the last change of each kind of file, and at three reads. Each killed run
is run again to its end; its files must equal those of a run that was not killed, byte for byte.
"""
PROOF = Proof("Mining, killed and run again", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
