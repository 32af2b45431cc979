"""TPU memory of Qwen3.5's runs, from libtpu's compiler without a TPU. Two hours on two cores."""

from __future__ import annotations

from tests.proofs import tpu
from tests.proofs.page import publish

_9B, _27B = ("configs/{}.py:qwen35_" + size for size in ("9b", "27b"))
RUNS: tuple[tpu.Run, ...] = tuple(
    (config.format(script), topology, changes)
    for script in ("sft", "rl")
    for config, topology, changes in (
        (_9B, "v5p:2x2x2", ()),
        (_9B, "v6e:4x4", tpu.SPLIT),
        (_9B, "v5e:4x4", tpu.SPLIT),
        (_27B, "v6e:4x4", tpu.SPLIT),
        (_27B, "v5p:4x4x4", tpu.WIDE),
    )
)
ABOUT = """\
**No baseline, no control:** the compiler is the only reference, and no chip ran. That a run which
is too large is refused is on the [page of Qwen3-VL](tpu.md).

"""

if __name__ == "__main__":
    found = tpu.measure(RUNS)
    about = ABOUT + tpu.HOW.format(models="the full Qwen3.5-9B and 27B", **found)
    publish("tpu_qwen35", "TPU memory of Qwen3.5's runs", about, found, tpu.checks(found), *tpu.tables(found))
