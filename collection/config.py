"""Settings of the stages that make tasks, corpora, imports, exports and reports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from collection.llm.config import WRITER, ModelConfig
from rmsweb_jax.settings import Settings, required, safe


class QualityConfig(Settings):
    """Bounds on trajectories for training. RMSWeb gives 3 to 30 steps.

    Attributes:
      min_effective_steps, max_effective_steps: bounds, inclusive, on the steps that changed something
        or produced output.
      drop_duplicates: keep one of a task's trajectories with the same pages and actions. Not in RMSWeb.
    """

    min_effective_steps: int = Field(default=3, ge=0)
    max_effective_steps: int = Field(default=30, ge=1)
    drop_duplicates: bool = True


class BuildSftSettings(Settings):
    """Settings of `experiments.build_sft`.

    Attributes:
      trajectories: data set folders of trajectories, separated by commas (made by experiments.collect or
        import_runs).
      chats: files of conversations in the messages format, separated by commas: .jsonl, .json or .parquet.
      prompts: `recorded`, or `screenshot`: made of task, history and screenshot, for policies that see no
        page text. It takes runs of other systems whose files lack results and parts of the reply.
      quality: requirements on a trajectory.
    """

    trajectories: str = ""
    chats: str = ""
    prompts: Literal["recorded", "screenshot"] = "recorded"
    quality: QualityConfig = QualityConfig()


class ImportSettings(Settings):
    """Settings of `experiments.import_runs`.

    Attributes:
      kind: format of the folder, a key of `READERS`.
      source: the folder with the runs.
      tasks: optional file with data that the runs lack, by task id: request, site, success.
      actor: name of the agent; distinguishes runs of the same task when several folders are imported.
    """

    kind: Literal[
        "browser_use", "webvoyager", "online_mind2web", "fara", "molmoweb", "openwebrl", "webgym", "atif"
    ] = "browser_use"
    source: str = required("--config.source=DIR with the runs to import")
    tasks: str = ""
    actor: str = "imported"


class ExportTracesSettings(Settings):
    """Settings of `experiments.export_traces`.

    Attributes:
      data: a trajectory data set from collect, evaluate or import_runs.
      format: `atif` (Harbor's documents) or `hub` (sessions of the Hugging Face Hub).
      page_text: whether the pages' lines are in the files, as the agent saw them.
    """

    data: str = required("--config.data=DIR with the episodes to export")
    format: Literal["atif", "hub"] = "atif"
    page_text: bool = True


class ReportSettings(Settings):
    """Settings of `experiments.report`.

    Attributes:
      run: run folder with the stages to report; unfinished stages are shown as not run.
      pages: most episodes, chains of attempts, mined pairs and comparisons, each, with an exported page; 0
        exports none.
      table: one of the paper's tables in place of a report: "main", "ablation" or "reflection" (also
        `--table=NAME`).
      results: evaluations in the table: LABEL=DIR,LABEL=DIR,... with workdirs of experiments.evaluate, one
        per label and benchmark.
      prices: LABEL=PROMPT/RESPONSE,...: US dollars per million tokens, for policies without a recorded price.
      judge_errors: LABEL=FILE:JUDGE,...: the judge_errors.json of experiments.judge and a judge in it: pass@1
        of these policies is shown corrected for its errors, too.
      across_judges: compare evaluations by different judges, or by judges that were not recorded; their
        differences are marked.
      published: show the paper's rows that were not measured, such as those of other systems, too.
      columns: titles of the columns to keep, separated by commas, such as "measured,pass@1 (points),Holm p";
        a table without any of them keeps all. Empty for all that have a value.
    """

    run: str = ""
    pages: int = Field(default=100, ge=0)
    table: str = ""
    results: str = ""
    prices: str = ""
    judge_errors: str = ""
    across_judges: bool = False
    published: bool = False
    columns: str = ""


class BenchmarkFiles(Settings):
    """The section `benchmarks`.

    Attributes:
      webvoyager, online_mind2web, webtailbench: path of the benchmark's own file; empty skips the benchmark.
    """

    webvoyager: str = ""
    online_mind2web: str = ""
    webtailbench: str = ""


class MakeTasksSettings(Settings):
    """Settings of `experiments.make_tasks`.

    Attributes:
      queries: one query per line; a .jsonl file has objects with `query` and optionally `locale`.
      today: date (YYYY-MM-DD) from which words such as "tomorrow" in a query count; empty is the day on which
        the run begins.
      workers: concurrent calls.
      actor: the model that writes the tasks.
    """

    queries: str = required("a file of search queries, one a line")
    today: str = ""
    benchmarks: BenchmarkFiles = BenchmarkFiles()
    workers: int = safe(16, ge=1)
    actor: ModelConfig = WRITER
