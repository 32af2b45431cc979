"""Settings of `experiments.mine` and `experiments.failure_prior`, with the paper's values."""

from __future__ import annotations

import dataclasses

from collection.llm.config import WRITER, ModelConfig
from collection.mining.balance import BalanceConfig
from collection.mining.divergence import MiningConfig
from collection.mining.judging import JudgingConfig
from collection.mining.runs import PairConfig
from collection.tasks.benchmarks import BenchmarkFiles
from collection.tasks.contamination import OverlapThresholds
from rmsweb_jax.settings import required, safe


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineSettings:
    """Failure-mode mining (RMSWeb, section 3.3).

    Attributes:
      pools: data set folders of trajectories, separated by commas.
      replay: workdir of `experiments.verify_mined`; decisions that it found not to be critical are dropped.
      workers: number of processes; 0 for one on each core.
      threads: number of pairs labelled at the same time in each process.
      actor: the model that labels failures; with kind none they are labelled by rule.
      sizes_for, max_pixels: model (folder or name), and its limit for resized screenshots, for which tokens
        and patches are counted and stored with the prompts; with "" training counts them when it starts.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    replay: str = ""
    workers: int = safe(0)
    threads: int = safe(8)
    pairs: PairConfig = PairConfig()
    actor: ModelConfig = WRITER
    judging: JudgingConfig = JudgingConfig()
    select: MiningConfig = MiningConfig()
    balance: BalanceConfig = BalanceConfig()
    sizes_for: str = safe("")
    max_pixels: int = safe(262_144)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailurePriorSettings:
    """The failure modes of a development split (RMSWeb, "Validation-derived failure prior").

    Attributes:
      pools: data set folders of trajectories, separated by commas: the split's runs.
      workers: number of pairs labelled at the same time.
      actor: the model that labels failures; with kind none they are labelled by rule.
    """

    pools: str = required("--config.pools=DIR1,DIR2 (made by experiments.collect)")
    workers: int = safe(16)
    benchmarks: BenchmarkFiles = BenchmarkFiles()
    thresholds: OverlapThresholds = OverlapThresholds()
    actor: ModelConfig = WRITER
    judging: JudgingConfig = JudgingConfig()
