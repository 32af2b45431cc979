"""The pages: from an address to a template and what it shows."""

from __future__ import annotations

import dataclasses
import datetime
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.evaluation.results import load_results
from collection.fleet.activity import WORKERS
from collection.report.dynamics import dynamics_plot
from collection.report.plots import line_plot, series, standalone
from collection.viewer.episodes import changed, heeded, parting, step_pages
from collection.viewer.folders import Folders, Found
from collection.viewer.index import COLUMNS, FILTERS, EpisodeIndex, Query
from collection.viewer.labels import Labels
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair

PAGE_SIZE = 50
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The largest number of mined pairs, groups, replies or tasks that a page lists.
_MOST = 500
# Metric -> title of its curve.
_CURVES = {
    "loss/train": "loss",
    "eval/loss": "held-out loss",
    "eval/action_accuracy": "held-out exact replies",
    "eval/exact": "held-out exact replies",
    "eval/reward": "held-out reward",
    "reward/mean": "reward",
    "reward/best_of_k": "best of k",
    "gates/accepted": "accepted groups",
    "tokens_per_second/rollout": "sampler, tokens/s",
    "tokens_per_second/update": "update, tokens/s",
}


class NotFoundError(Exception):
    """There is no such page; the text says what is missing."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A template and its values."""

    template: str
    title: str
    values: Mapping[str, Any]


class Pages:
    """Makes the pages of what is in some folders.

    Args:
      labels: where labels are kept.
    """

    def __init__(self, folders: Folders, index: EpisodeIndex, labels: Labels):
        self._folders, self._index, self._labels = folders, index, labels
        self.routes: dict[str, Callable[[Mapping[str, str]], Page]] = {
            "/": self.runs,
            "/live": self.live,
            "/episodes": self.episodes,
            "/episode": self.episode,
            "/chain": self.chain,
            "/mined": self.mined,
            "/pair": self.pair,
            "/training": self.training,
            "/evaluation": self.evaluation,
            "/compare": self.compare,
        }

    # --- Runs ---

    def runs(self, asked: Mapping[str, str]) -> Page:
        """Every run and data set below the folders: state, progress, size, cost."""
        rows = []
        counts = dict(self._index.values("dataset"))
        for name, found in self._folders.all().items():
            report, progress = found.json("report.json"), found.json("progress.json")
            rows.append(
                {
                    "name": name,
                    "stage": report.get("stage") or progress.get("stage") or found.kind,
                    "state": _state(found, report, progress),
                    "progress": progress,
                    "seconds": report.get("seconds"),
                    "records": counts.get(name),
                    "kind": found.kind,
                    "problem": found.problem,
                    "training": "metrics.jsonl" in found.files,
                    "results": "results.json" in found.files,
                    "changed": _changed(found),
                }
            )
        going = any(row["state"] == "going on" for row in rows)
        return Page("runs", "Runs", {"rows": rows, "live": going})

    def live(self, asked: Mapping[str, str]) -> Page:
        """A run that goes on: what each worker does, sites by outcome, and what models cost."""
        name = asked.get("data", "")
        found = self._folders.all().get(name)
        if found is None:
            raise NotFoundError(f"no run {name!r}")
        report, progress = found.json("report.json"), found.json("progress.json")
        status = found.json(WORKERS)
        now = time.time()
        workers = [
            {**worker, "seconds": max(0, round(now - worker.get("since", now)))}
            for worker in status.get("workers", [])
            if isinstance(worker, dict)
        ]
        state = _state(found, report, progress)
        return Page(
            "live",
            f"{progress.get('stage', 'run')} in {name}",
            {
                "data": name,
                "state": state,
                "progress": progress,
                "workers": workers,
                "sites": self._index.sites(name),
                "images": self._images(name),
                "live": state == "going on",
            },
        )

    # --- Episodes ---

    def episodes(self, asked: Mapping[str, str]) -> Page:
        """A list of episodes with filters, words, and an order."""
        filters = {name: asked[name] for name in FILTERS if asked.get(name)}
        query = Query(filters, asked.get("q", ""), asked.get("sort", ""), _page_number(asked))
        total = self._index.count(query)
        return Page(
            "episodes",
            "Episodes",
            {
                "rows": self._index.rows(query, PAGE_SIZE),
                "query": query,
                "total": total,
                "pages": -(-total // PAGE_SIZE),
                "choices": {name: self._index.values(name) for name in FILTERS},
                "asked": {**filters, "q": query.words, "sort": query.sort},
                "columns": [name for name in COLUMNS if name not in ("trajectory_id", "model")],
            },
        )

    def episode(self, asked: Mapping[str, str]) -> Page:
        """An episode, step by step."""
        run = self._run(asked)
        return Page(
            "episode",
            run.trajectory_id,
            {
                "run": run,
                "data": asked["data"],
                "steps": step_pages(run),
                "images": self._images(asked["data"]),
                "label": self._labels.get("episodes", run.trajectory_id),
            },
        )

    def chain(self, asked: Mapping[str, str]) -> Page:
        """The attempts at a task by one actor: attempt, reflection, retry."""
        data, task = asked.get("data", ""), asked.get("task", "")
        found = self._folders.all().get(data)
        rows = [row for row in self._index.of_task(task) if row["dataset"] == data]
        if found is None or not rows:
            raise NotFoundError(f"no attempts at {task!r} in {data!r}")
        notes = {
            line.get("attempt"): str(line.get("guidance", ""))
            for line in found.lines("reflections.jsonl")
            if line.get("task_id") == task
        }
        attempts: list[dict[str, Any]] = []
        for row in rows:
            run = self._index.read(data, row["trajectory_id"])
            assert run is not None
            earlier = attempts[-1] if attempts and attempts[-1]["row"]["actor"] == row["actor"] else None
            guidance = notes.get(row["attempt"] - 1, "") if earlier else ""
            note = notes.get(row["attempt"], "")
            attempts.append(
                {
                    "row": row,
                    "run": run,
                    "steps": step_pages(run),
                    "note": note,
                    "note_changes": changed(earlier["note"], note)
                    if earlier and earlier["note"] and note
                    else [],
                    "guidance": guidance,
                    "parting": parting(earlier["run"], run) if earlier else None,
                    "heeded": heeded(guidance, run),
                }
            )
        objective = attempts[0]["run"].task.objective
        values = {"task": task, "data": data, "objective": objective, "attempts": attempts}
        return Page("chain", f"Attempts at {task}", values | {"others": self._elsewhere(task, data)})

    def _elsewhere(self, task: str, data: str) -> list[dict[str, Any]]:
        return [row for row in self._index.of_task(task) if row["dataset"] != data]

    def _run(self, asked: Mapping[str, str]) -> Any:
        data, name = asked.get("data", ""), asked.get("id", "")
        found = self._folders.all().get(data)
        if found is None or found.kind != "trajectories":
            raise NotFoundError(found.problem if found and found.problem else f"no data set {data!r}")
        run = self._index.read(data, name)
        if run is None:
            raise NotFoundError(f"no episode {name!r} in {data}")
        return run

    def _images(self, data: str) -> Callable[[str | None], bool]:
        """Whether a screenshot is there."""
        store = ImageStore(self._folders.all()[data].path)
        return lambda sha256: sha256 is not None and bool(_SHA256.fullmatch(sha256)) and sha256 in store

    def image(self, data: str, sha256: str) -> bytes:
        """The bytes of a screenshot of a data set.

        Raises:
          NotFoundError: there is no such data set or screenshot.
        """
        found = self._folders.all().get(data)
        if found is None or not _SHA256.fullmatch(sha256):
            raise NotFoundError("no such screenshot")
        try:
            return ImageStore(found.path).get(sha256)
        except (UserError, OSError) as error:
            raise NotFoundError("this screenshot is missing or damaged") from error

    # --- Mined pairs ---

    def mined(self, asked: Mapping[str, str]) -> Page:
        """The decisions of a mining run, by gate or category."""
        audits = self._audits(asked)
        wanted = {name: asked[name] for name in ("decision", "category") if asked.get(name)}
        shown = [one for one in audits if all(getattr(one, name) == wanted[name] for name in wanted)]
        choices = {name: _counted(getattr(one, name) for one in audits) for name in ("decision", "category")}
        rows = [(one, self._labels.get("mined", one.task_id)) for one in shown[:_MOST]]
        values = {
            "data": asked["data"],
            "rows": rows,
            "total": len(shown),
            "asked": wanted,
            "choices": choices,
        }
        return Page("mined", f"Mined pairs of {asked['data']}", values)

    def pair(self, asked: Mapping[str, str]) -> Page:
        """One decision: both runs at the mined step and around it, scores, gates, and what else was tried."""
        audit = next((one for one in self._audits(asked) if one.task_id == asked.get("task")), None)
        if audit is None:
            raise NotFoundError(f"no mined pair of {asked.get('task')!r}")
        sides = [
            self._side(audit.success_id, audit.success_step, "succeeds"),
            self._side(audit.localization_id, audit.localization_step, "fails"),
        ]
        label = self._labels.get("mined", audit.task_id)
        values = {"data": asked["data"], "audit": audit, "sides": sides, "label": label}
        return Page("pair", f"Mined pair of {audit.task_id}", values)

    def _side(self, run_id: str, at: int | None, name: str) -> dict[str, Any]:
        """A run of a pair and its steps around the mined one, from the data set that has it."""
        for data in self._folders.datasets("trajectories"):
            run = self._index.read(data, run_id)
            if run is not None:
                steps = step_pages(run)
                near = [one for one in steps if at is None or abs(one.step.number - at) <= 1]
                side = {"run": run, "data": data, "images": self._images(data), "steps": near}
                return {**side, "name": name, "id": run_id, "at": at}
        return {"run": None, "name": name, "id": run_id, "at": at, "steps": []}

    def _audits(self, asked: Mapping[str, str]) -> list[AuditPair]:
        folder = self._folders.datasets("audit_pairs").get(asked.get("data", ""))
        if folder is None:
            raise NotFoundError(f"no mined pairs in {asked.get('data')!r}")
        return list(read_dataset(folder, AuditPair))

    # --- Training ---

    def training(self, asked: Mapping[str, str]) -> Page:
        """Curves of a training, held-out replies, and groups with all their replies."""
        found = self._folders.all().get(asked.get("data", ""))
        if found is None or "metrics.jsonl" not in found.files:
            raise NotFoundError(f"no training in {asked.get('data')!r}")
        rows = found.lines("metrics.jsonl")
        plots = ["dynamics"] if any("kl_ref" in row for row in rows) else []
        plots += [metric for metric in _CURVES if any(isinstance(row.get(metric), float) for row in rows)]
        groups, replies = found.lines("groups.jsonl"), found.lines("replies.jsonl")
        steps = sorted({step for group in groups if isinstance(step := group.get("step"), int)})
        prompt = asked.get("prompt", "")
        step = _number(asked.get("step"), steps[-1] if steps else 0)
        shown = [
            one for one in groups if (one.get("prompt_id") == prompt if prompt else one.get("step") == step)
        ]
        last = max((reply.get("step", 0) for reply in replies), default=0)
        wrong = sorted(
            (one for one in replies if one.get("step") == last), key=lambda one: float(one.get("reward", 0.0))
        )
        return Page(
            "training",
            f"Training {found.name}",
            {
                "name_of": found.name,
                "plots": [(metric, _CURVES.get(metric, "Training dynamics")) for metric in plots],
                "steps": steps,
                "step": step,
                "prompt": prompt,
                "groups": shown[:_MOST],
                "replies": wrong[:_MOST],
                "last": rows[-1] if rows else {},
                "live": _state(found, found.json("report.json"), found.json("progress.json")) == "going on",
            },
        )

    def plot(self, asked: Mapping[str, str]) -> str:
        """A curve of a training, or its dynamics, as an SVG file.

        Raises:
          NotFoundError: there is no such training or metric.
        """
        found, metric = self._folders.all().get(asked.get("data", "")), asked.get("metric", "")
        rows = found.lines("metrics.jsonl") if found else []
        svg = ""
        if metric == "dynamics":
            svg = dynamics_plot([rows], "dynamics", "Training dynamics")
        elif metric in _CURVES and (curve := series(rows, metric, _CURVES[metric])):
            svg = line_plot([curve], "curve", _CURVES[metric])
        if not svg:
            raise NotFoundError("no such curve")
        return standalone(svg)

    # --- Evaluation ---

    def evaluation(self, asked: Mapping[str, str]) -> Page:
        """Policies against tasks, over all evaluations below the folders or those of `data`."""
        wanted = [name for name in asked.get("data", "").split(",") if name]
        evaluations, problems = {}, {}
        for name, found in self._folders.all().items():
            if "results.json" not in found.files or (wanted and name not in wanted):
                continue
            try:
                evaluations[name] = load_results(found.path)
            except UserError as error:
                problems[name] = str(error)
        tasks: dict[str, dict[str, Sequence[bool]]] = defaultdict(dict)
        for name, results in evaluations.items():
            for task in results.tasks:
                tasks[task.task_id][name] = task.successes
        differ = asked.get("differ") == "1"
        rows = [
            (task, [found.get(name) for name in evaluations])
            for task, found in sorted(tasks.items())
            if not differ or len({_rate(found.get(name)) for name in evaluations}) > 1
        ]
        heads = [
            (name, results.label, _rate_of(results), results.judges) for name, results in evaluations.items()
        ]
        values = {"heads": heads, "rows": rows[:_MOST], "total": len(rows), "differ": differ}
        return Page(
            "evaluation", "Evaluation", values | {"problems": problems, "data": asked.get("data", "")}
        )

    def compare(self, asked: Mapping[str, str]) -> Page:
        """All episodes of a task side by side, by policy; `data` (separated by commas) chooses data sets."""
        task = asked.get("task", "")
        wanted = [name for name in asked.get("data", "").split(",") if name]
        sides = []
        for row in self._index.of_task(task):
            if wanted and row["dataset"] not in wanted:
                continue
            run = self._index.read(row["dataset"], row["trajectory_id"])
            if run is not None:
                images = self._images(row["dataset"])
                sides.append({"row": row, "run": run, "steps": step_pages(run), "images": images})
        if not sides:
            raise NotFoundError(f"no episodes of {task!r}")
        objective = sides[0]["run"].task.objective
        parts = [parting(sides[0]["run"], side["run"]) for side in sides]
        values = {"task": task, "sides": sides[:12], "objective": objective, "parts": parts}
        return Page("compare", f"Runs of {task}", values)


def _state(found: Found, report: Mapping[str, Any], progress: Mapping[str, Any]) -> str:
    if report:
        return "finished"
    if not progress:
        return "data set" if found.kind else "unknown"
    age = datetime.datetime.now().timestamp() - _mtime(found.path / "progress.json")
    return "going on" if age < 60 else "stopped"


def _changed(found: Found) -> str:
    newest = max((_mtime(found.path / name) for name in found.files), default=0.0)
    return datetime.datetime.fromtimestamp(newest).strftime("%Y-%m-%d %H:%M")


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _counted(values: Any) -> list[tuple[str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for value in values:
        counts[value] += 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _page_number(asked: Mapping[str, str]) -> int:
    return max(0, _number(asked.get("page"), 0))


def _number(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else default


def _rate(successes: Sequence[bool] | None) -> float | None:
    return None if successes is None else sum(successes) / max(1, len(successes))


def _rate_of(results: Any) -> float:
    rates = [_rate(task.successes) or 0.0 for task in results.tasks]
    return sum(rates) / max(1, len(rates))
