"""Pages of runs: all of them, one, trainings, evaluations, judges and moved dates."""

from __future__ import annotations

import datetime
import functools
import itertools
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.evaluation.dates import RECORD as DATES
from collection.evaluation.results import RESULTS as RATES
from collection.evaluation.results import compare, load_results, score
from collection.fleet.status import LIVE
from collection.llm.calls import CALLS, read_by_model
from collection.mining.taxonomy import TAXONOMY
from collection.viewer.folders import Found
from collection.viewer.index import RESULTS
from collection.viewer.pages import MOST, Asked, Page, Pages, names, whole
from rmsweb_jax.errors import UserError
from rmsweb_jax.workdir import CONFIG

# A run whose progress was not written for so many seconds has stopped.
_STOPPED_S = 60.0
# Title and caption of the plots of a training, and their lines (metric, label), or how their metrics' names
# begin.
_CURVES = (
    ("Loss", "", (("loss/train", "training"), ("eval/loss", "held out"))),
    (
        "Accuracy",
        "Of reply tokens and of whole actions, with the right tokens before them.",
        (
            ("loss/token_accuracy", "tokens"),
            ("loss/action_accuracy", "actions"),
            ("eval/action_accuracy", "held-out actions"),
        ),
    ),
    ("Learning rate", "", (("lr", "learning rate"),)),
    (
        "Reward of rollouts",
        "Best of a group, mean, and spread within a group.",
        (("reward/best_of_k", "best of K"), ("reward/mean", "mean"), ("reward/group_std", "group std")),
    ),
    (
        "Held-out prompts",
        "Greedy replies to prompts that are not trained on.",
        (("eval/reward", "reward"), ("eval/exact", "exactly right")),
    ),
    ("Held-out reward by action", "Of the replies whose target has it.", "eval/reward/type/"),
    ("Held-out reward by failure mode", "Of the mined prompts.", "eval/reward/category/"),
    (
        "Groups by gate",
        "Share of groups: accepted; all replies alike, right or wrong; no competent reply.",
        (
            ("gates/accepted", "accepted"),
            ("gates/std_rejected_solved", "all right"),
            ("gates/std_rejected_unsolved", "all wrong"),
            ("gates/competence_rejected", "not competent"),
        ),
    ),
    (
        "Log-probability of replies",
        "Of accepted groups.",
        (("logp/correct", "correct"), ("logp/wrong", "wrong"), ("logp/gap", "gap")),
    ),
    (
        "Drift",
        "KL to the reference (k3), and from the sampling policy within an iteration.",
        (("kl_ref", "KL to reference"), ("ppo_kl", "ppo_kl")),
    ),
    (
        "Clip fraction",
        "Share of tokens at a bound.",
        (("pg_clipfrac", "all"), ("pg_clipfrac_lower", "lower"), ("pg_clipfrac_upper", "upper")),
    ),
    ("Rollout log-perplexity", "", (("rollout_log_ppl", "log-perplexity"),)),
    ("Salvage anchor", "Negative log-likelihood of verified actions.", (("salvage_loss", "loss"),)),
    ("Gradient norm", "Before clipping.", (("norm/gradient", "norm"),)),
    (
        "Padding of rows",
        "Share of the tokens of a batch's rows that no sample fills.",
        (("padding", "rows"), ("update/padding", "rows")),
    ),
    (
        "Tokens a second",
        "",
        (
            ("tokens_per_second", "training"),
            ("tokens_per_second/rollout", "sampler"),
            ("tokens_per_second/update", "update"),
        ),
    ),
)
# Classes of shades, and what is shaded at most: a token of log-probability -5 is as rare as one of 150.
_SHADES, _RAREST = 5, 5.0
# Figures of a stage's report that its page shows, where it has them.
_FIGURES = (
    *("model", "teacher", "trainable", "loss", "gate", "reward", "data", "tasks", "trajectories", "steps"),
    *("successes", "solved_tasks", "reflections", "iterations", "optimizer_steps", "samples", "prompts"),
    *("held_out", "tokens", "row_tokens", "padding", "length_quantiles"),
)
_DECISIONS = {
    "no_success": "no run solved the task",
    "no_contrast": "nothing to compare a success with",
    "runtime_gate": "runtime failure, not clear enough",
    "obstruction_cap": "over the share of access obstructions",
    "domain_cap": "over the share of one site",
}
_VERDICTS = {True: "solved", False: "failed", None: "no verdict"}


def plot(
    title: str, lines: Mapping[str, Mapping[float, float]], caption: str = "", **more: Any
) -> dict[str, Any]:
    """A plot as the page's script draws it.

    Args:
      lines: label -> x -> y.
      more: `names` of the places of x, `limits` of y, `bars` from low to high of each line, and numbers of
        its `colors` and `dashes`.
    """
    x = sorted(set().union(*lines.values()))
    drawn = [{"label": label, "y": [line.get(at) for at in x]} for label, line in lines.items()]
    return {"title": title, "caption": caption, "x": x, "lines": drawn, **more}


# --- Runs ---


def all_runs(pages: Pages, asked: Asked) -> Page:
    """Every run and data set below the folders: state, progress, size, cost, and what it was made from."""
    counts, folders = dict(pages.index.values("dataset")), pages.folders.all()
    rows = []
    for name, found in folders.items():
        report, progress = found.json("report.json"), found.json("progress.json")
        changed = datetime.datetime.fromtimestamp(found.written()).strftime("%Y-%m-%d %H:%M")
        rows.append(
            {
                "found": found,
                "stage": report.get("stage") or progress.get("stage") or found.kind,
                "state": _state(found),
                "progress": progress,
                "seconds": report.get("seconds"),
                "records": counts.get(name),
                "made_from": _made_from(found, folders),
                "cost": sum(row["cost_usd"] for row in read_by_model(found.path / CALLS)),
                "changed": changed,
            }
        )
    trainings = _trainings(folders)
    going = any(row["state"] == "going on" for row in rows)
    return Page("runs", "Runs", {"rows": rows, "live": going, "trainings": trainings})


def run(pages: Pages, asked: Asked) -> Page:
    """A run, also while it goes on: figures, workers, funnel, curves, models, sites, groups of a training."""
    found = pages.folder(asked)
    progress, report, now = found.json("progress.json"), found.json("report.json"), time.time()
    workers = [found.json(f"{LIVE}/{path.name}") for path in sorted(found.path.glob(f"{LIVE}/*.json"))]
    values = {
        "data": found.name,
        "found": found,
        "state": _state(found),
        "progress": progress,
        "figures": {name: report[name] for name in _FIGURES if report.get(name) not in (None, "", {})},
        "workers": [
            {**worker, "seconds": max(0, round(now - worker["since"]))}
            for worker in workers
            if isinstance(worker.get("since"), int | float)
        ],
        "funnel": _funnel(report),
        "modes": _modes(report),
        "plots": _rounds(report) + _curves({found.name: found}),
        "sites": pages.index.sites(found.name),
        "images": pages.images(found.name),
        "models": read_by_model(found.path / CALLS),
        "others": [name for name in _trainings(pages.folders.all()) if name != found.name],
        "live": _state(found) == "going on",
        **(_groups(found, asked) if "metrics.jsonl" in found.files else {}),
    }
    return Page("run", f"{report.get('stage') or progress.get('stage') or 'run'} in {found.name}", values)


def trainings(pages: Pages, asked: Asked) -> Page:
    """The curves of two or more trainings, each metric in one plot."""
    found = {name: pages.folder({"data": name}, "metrics.jsonl") for name in names(asked)}
    everything = _trainings(pages.folders.all())
    values = {"plots": _curves(found), "chosen": list(found), "all": everything}
    return Page("trainings", "Trainings compared", values)


def _trainings(folders: Mapping[str, Found]) -> list[str]:
    return [name for name, found in folders.items() if "metrics.jsonl" in found.files]


def _curves(trainings: Mapping[str, Found]) -> list[dict[str, Any]]:
    """A plot for each group of metrics that a training has; of several trainings each has a colour."""
    rows = {name: _metrics(found) for name, found in trainings.items()}
    several, plots = len(rows) > 1, []
    above = f"{os.path.commonpath(rows)}/" if several else ""
    every = sorted({key for one in rows.values() for row in one for key in row})
    for title, caption, metrics in _CURVES:
        if isinstance(metrics, str):
            metrics = [(key, key.removeprefix(metrics)) for key in every if key.startswith(metrics)]
        curves = [
            (color, number, name.removeprefix(above), label, line)
            for color, name in enumerate(rows)
            for number, (metric, label) in enumerate(metrics)
            if (line := _line(rows[name], metric))
        ]
        if curves:
            alike = len({label for *_, label, _ in curves}) == 1
            form = "{1}" if not several else "{0}" if alike else "{0}: {1}"
            lines = {form.format(name, label): line for _, _, name, label, line in curves}
            colors = [color if several else at for at, (color, *_) in enumerate(curves)]
            dashes = [number if several and not alike else 0 for _, number, *_ in curves]
            plots.append(plot(title, lines, caption, colors=colors, dashes=dashes))
    return plots


def _line(rows: Sequence[Mapping[str, Any]], metric: str) -> dict[float, float]:
    """The finite values of a metric by step."""
    values = [(row.get("step"), row.get(metric)) for row in rows]
    return {
        float(step): value
        for step, value in values
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value)
    }


def _metrics(found: Found) -> list[dict[str, Any]]:
    """The metrics of a training, and of RL one row more: the evaluation after the last update.

    Each row describes the policy that sampled in that step, so the trained policy has the next step.
    """
    rows, final = found.lines("metrics.jsonl"), found.json("report.json").get("final", {})
    last = {key: value for key, value in final.items() if key.startswith("eval/")}
    is_rl = any("reward/mean" in row for row in rows) and isinstance(final.get("step"), int)
    return [*rows, {"step": final["step"] + 1, **last}] if is_rl and last else rows


def _groups(found: Found, asked: Asked) -> dict[str, Any]:
    """Held-out replies, and the groups of an iteration, or of a `prompt` in all iterations."""
    groups, replies = found.lines("groups.jsonl"), found.lines("replies.jsonl")
    steps = sorted({step for group in groups if isinstance(step := group.get("step"), int)})
    prompt, step = asked.get("prompt", ""), whole(asked.get("step"), steps[-1] if steps else 0)
    shown = [one for one in groups if (one.get("prompt_id") == prompt if prompt else one.get("step") == step)]
    last = max((reply.get("step", 0) for reply in replies), default=0)
    worst = [one for one in replies if one.get("step") == last]
    return {
        "steps": steps,
        "step": step,
        "prompt": prompt,
        "groups": [_shaded(group) for group in shown[:MOST]],
        "replies": sorted(worst, key=lambda one: float(one.get("reward", 0.0)))[:MOST],
        "replies_at": last,
    }


def _shaded(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group whose replies' tokens have a shade each: 0 for certain ones, up to 5 for rare ones."""
    replies = []
    for reply in group.get("responses", ()):
        tokens = [
            (text, log_prob, min(_SHADES, math.ceil(-log_prob * _SHADES / _RAREST)) if log_prob < -0.1 else 0)
            for text, log_prob in reply.get("tokens", ())
        ]
        replies.append({**reply, "tokens": tokens})
    return {**group, "responses": replies}


def _funnel(report: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """What a filter or mining left after each gate that dropped any: (gate, dropped, left)."""
    for start, gates in (("trajectories", report.get("dropped")), ("tasks", report.get("decisions"))):
        if not isinstance(gates, dict) or not isinstance(report.get(start), int):
            continue
        left, rows = report[start], [(f"all {start}", 0, report[start])]
        for gate, count in gates.items():
            if gate != "kept" and count:
                left -= count
                rows.append((_DECISIONS.get(gate) or str(gate).replace("_", " "), count, left))
        samples, prompts = report.get("samples"), report.get("prompts")
        made = f"{sum(samples.values())} samples" if isinstance(samples, dict) else f"{prompts} prompts"
        rows.append((f"{made} made of them", 0, left))
        return rows
    return []


def _modes(report: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Failure mode, its share of the mined prompts in percent, and that of the paper's corpus."""
    rows = report.get("categories", {})
    return [(_title(name), row.get("share", 0), row.get("paper_share", 0)) for name, row in rows.items()]


def _title(mode: str) -> str:
    return TAXONOMY[mode].title if mode in TAXONOMY else mode


def _rounds(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The share of successes by round of a reflective collection, in percent."""
    lines = {
        label: {float(at): 100 * share for at, share in report.get(name, {}).items() if share is not None}
        for name, label in (("success_by_round", "episodes solved"), ("solve_at_2_by_round", "solve@2"))
    }
    lines = {label: line for label, line in lines.items() if line}
    if not lines:
        return []
    caption = (
        "Share of a round's episodes that were solved, and of the tasks that failed in round 1 those with "
        "two successes by that round, in percent."
    )
    return [plot("Success by round", lines, caption, axis="round", limits=[0, 100])]


def _state(found: Found) -> str:
    """What a run does: finished, going on or stopped; "data set" without a run."""
    if found.json("report.json"):
        return "finished"
    if not found.json("progress.json"):
        return "data set" if found.kind else "unknown"
    return "going on" if time.time() - found.written("progress.json") < _STOPPED_S else "stopped"


def _made_from(found: Found, folders: Collection[str]) -> list[str]:
    """Names of the runs whose folders are in the settings of a run."""
    known = {tuple(name.split("/")): name for name in folders}
    texts = itertools.chain.from_iterable(text.split(",") for text in _texts(found.json(CONFIG)))
    made_from = dict.fromkeys(_run_at(text.strip(), known) for text in texts)
    return [name for name in made_from if name and name != found.name]


def _run_at(text: str, known: Mapping[tuple[str, ...], str]) -> str | None:
    """The run in a folder or above it, such as that of a policy in `export`.

    It may have been written on another machine, so that a path only has to end with the name of the run.
    """
    for place in (Path(text), *Path(text).parents):
        for start in range(len(place.parts)):
            if name := known.get(place.parts[start:]):
                return name
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif isinstance(value, str) and "/" in value:
        yield value


# --- Evaluations ---


def evaluation(pages: Pages, asked: Asked) -> Page:
    """Policies against tasks, over all evaluations below the folders or those of `data`; why runs failed."""
    folders, wanted = pages.folders.all(), names(asked)
    everything = _in_order([name for name, found in folders.items() if RATES in found.files], folders)
    scores, problems = {}, {}
    for name in everything:
        if not wanted or name in wanted:
            try:
                scores[name] = _score(_version(folders[name]))
            except UserError as error:
                problems[name] = str(error)
    cells: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in pages.index.of_datasets(list(scores)):
        cells[row["task_id"]][row["dataset"]].append(row)
    differ = asked.get("differ") == "1"
    rows = [
        (task, [found.get(name) for name in scores])
        for task, found in cells.items()
        if not differ or len({_rate(found.get(name)) for name in scores}) > 1
    ]
    modes = pages.index.failure_modes(list(scores))
    values = {
        "scores": scores,
        "all": everything,
        "plots": _rates(scores),
        "modes": [(mode, _title(mode), counts) for mode, counts in modes.items()],
        "sites": sorted({site for one in scores.values() for site in one.get("by_site", {})}),
        "rows": rows[:MOST],
        "total": len(rows),
        "differ": differ,
        "differences": [
            {
                "first": first,
                "second": second,
                **_difference(*(_version(folders[one]) for one in (first, second))),
            }
            for second, first in itertools.combinations(scores, 2)
        ],
        "problems": problems,
        "data": asked.get("data", ""),
    }
    return Page("evaluation", "Evaluation", values)


def _in_order(evaluations: Sequence[str], folders: Mapping[str, Found]) -> list[str]:
    """Sorted by the number of runs that a policy was made from, then by name and number of a checkpoint."""

    def key(name: str) -> list[Any]:
        made, new = set(), {name}
        while new := {source for one in new for source in _made_from(folders[one], folders)} - made:
            made |= new
        parts = re.split(r"(\d+)", name)
        return [len(made), *((int(part), "") if part.isdigit() else (-1, part) for part in parts)]

    return sorted(evaluations, key=key)


def _rates(scores: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """pass@1 of the evaluations with its intervals, in percent."""
    found = [(name, one["pass_at_1"]) for name, one in scores.items() if one.get("pass_at_1")]
    if len(found) < 2:
        return []
    line = {float(at): 100 * rate["mean"] for at, (_, rate) in enumerate(found)}
    bars = [[[100 * rate["low"], 100 * rate["high"]] for _, rate in found]]
    axis = {"names": [name.rpartition("/")[2] for name, _ in found], "limits": [0, 100]}
    return [plot("pass@1", {"pass@1, %": line}, "With 95 % intervals over tasks.", bars=bars, **axis)]


def _rate(rows: Sequence[Mapping[str, Any]] | None) -> float | None:
    known = [row["result"] == "solved" for row in rows or () if row["result"] in ("solved", *RESULTS)]
    return sum(known) / len(known) if known else None


def _version(found: Found) -> tuple[Path, float]:
    return found.path, found.written(RATES)


# Both take a moment: the time of change is part of the key.
@functools.lru_cache(maxsize=200)
def _score(folder: tuple[Path, float]) -> dict[str, Any]:
    """`score` of the results in a folder, with the label of the policy and the judges."""
    results = load_results(folder[0])
    return {**score(results), "label": results.label, "judges": [judge for judge, _ in results.judges]}


@functools.lru_cache(maxsize=200)
def _difference(first: tuple[Path, float], second: tuple[Path, float]) -> dict[str, Any]:
    """`compare` of the results in two folders; why, if they cannot be compared."""
    try:
        return compare(load_results(first[0]), load_results(second[0]))
    except UserError as error:
        return {"problem": str(error)}


def judges(pages: Pages, asked: Asked) -> Page:
    """The verdicts of `experiments.judge`, an episode a row, a judge a column; at first where they differ."""
    found = pages.folder(asked, "judgements.jsonl")
    verdicts: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in found.lines("judgements.jsonl"):
        verdicts[str(line.get("trajectory_id", ""))][str(line.get("judge", ""))] = line
    all_names = sorted({judge for row in verdicts.values() for judge in row})
    rows = []
    for name, row in sorted(verdicts.items()):
        said = {judge: _VERDICTS.get(line.get("success"), "no verdict") for judge, line in row.items()}
        label = pages.labels.get("episodes", name)
        if asked.get("all") == "1" or len({*said.values(), *([label] if label else [])}) > 1:
            data = pages.index.row(name).get("dataset", "")
            rows.append({"run": name, "data": data, "said": said, "lines": row, "label": label})
    values = {
        "data": found.name,
        "names": [name for name in names(asked, "judges") if name in all_names] or all_names,
        "rows": rows[:MOST],
        "total": len(rows),
        "runs": len(verdicts),
        "all": asked.get("all") == "1",
        "pairs": found.json("report.json").get("pairs", []),
    }
    return Page("judges", f"Judges of {found.name}", values)


def dates(pages: Pages, asked: Asked) -> Page:
    """What the date refresh of a benchmark changed: each prompt before and after."""
    found = pages.folder(asked, DATES)
    changed = [line for line in found.lines(DATES) if line.get("prompt") != line.get("old")]
    return Page("dates", f"Dates of {found.name}", {"changed": changed[:MOST], "total": len(changed)})
