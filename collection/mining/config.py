"""Settings of `experiments.mine` and `experiments.failure_prior`, with the paper's values."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from collection.config import BenchmarkFiles
from collection.llm.config import WRITER, ModelConfig
from rmsweb_jax.settings import Settings, required, safe


class MineSettings(Settings):
    """Failure-mode mining (RMSWeb, section 3.3).

    Attributes:
      pools: data set folders of trajectories, separated by commas.
      replay: workdir of `experiments.verify_mined`; decisions that it found not to be critical are dropped.
      workers: number of processes; 0 for one on each core.
      threads: number of pairs labelled at the same time in each process.
      actor: the model that labels failures; with kind none they are labelled by rule.
      terms: terms of the scores: the `paper` has no other ones, `proven` adds those that held against replays
        (docs/results/mining.md).
      max_prompts: size of the corpus; each category gives one prompt a round, so rare ones stay whole.
        0 keeps all.
      sizes_for, max_pixels: model (folder or name), and its limit for resized screenshots, for which tokens
        and patches are counted and stored with the prompts; with "" training counts them when it starts.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    replay: str = ""
    workers: int = safe(0, ge=0)
    threads: int = safe(8, ge=1)
    actor: ModelConfig = WRITER
    terms: Literal["paper", "proven"] = "proven"
    max_prompts: int = Field(default=0, ge=0)
    sizes_for: str = safe("")
    max_pixels: int = safe(262_144, ge=1)


class FailurePriorSettings(Settings):
    """The failure modes of a development split (RMSWeb, "Validation-derived failure prior").

    Attributes:
      pools: data set folders of trajectories, separated by commas: the split's runs.
      workers: number of pairs labelled at the same time.
      actor: the model that labels failures; with kind none they are labelled by rule.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    workers: int = safe(16, ge=1)
    benchmarks: BenchmarkFiles = BenchmarkFiles()
    actor: ModelConfig = WRITER
