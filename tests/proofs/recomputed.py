"""Computes the tables of trainings again from what each run gave, without any code of ours.

    python tests/proofs/recomputed.py docs/results/online.json docs/results/ablations.json

Next to NAME.json there is a folder NAME with a file for each policy, ARM-SEED.json, whose `solved` has the
share of its runs of each task that were solved; `start` or `sft` is the policy that trainings begin with.
Percentages and differences are compared with those of the page. Intervals are resampled with another
generator: a limit may lie on the next step of a few tasks.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

# Points that two bootstraps of the same data may be apart. A step of one training is 1.25 at 40 tasks.
NOISE = 1.5
RESAMPLES = 20_000


def read(folder):
    """Arm -> seed -> task -> share solved."""
    arms = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        solved = json.loads(path.read_bytes()).get("solved")
        name, _, seed = path.stem.rpartition("-")
        if solved:
            arms[name if seed.isdigit() else path.stem][int(seed) if seed.isdigit() else 1] = solved
    return arms


def page(task):
    return task.split("/")[1]


def interval(apart, clusters):
    """Mean and limits of [seeds, tasks] in points; seeds and clusters of tasks are resampled."""
    apart = np.asarray(apart) * 100
    groups = sorted(set(clusters))
    columns = np.stack([apart[:, [one == group for one in clusters]].mean(1) for group in groups], 1)
    rng = np.random.default_rng(12345)
    seeds, number = columns.shape
    rows = rng.integers(0, seeds, (RESAMPLES, seeds))
    picked = rng.integers(0, number, (RESAMPLES, number))
    by_seed = np.stack([np.bincount(one, minlength=seeds) for one in rows]) / seeds
    by_group = np.stack([np.bincount(one, minlength=number) for one in picked]) / number
    drawn = ((by_seed @ columns) * by_group).sum(1)
    return float(columns.mean()), *np.quantile(drawn, [0.025, 0.975]).tolist()


def differences(figures, path=()):
    """Yields (where, mean, low, high) of all differences in a page's figures."""
    if isinstance(figures, dict) and {"mean", "low", "high"} <= figures.keys():
        yield path, figures["mean"], figures["low"], figures["high"]
    elif isinstance(figures, dict):
        for name, one in figures.items():
            yield from differences(one, (*path, name))


def values(arms, arm, other, tasks):
    if len(arms[other]) == 1 and other in ("start", "sft"):
        (base,) = arms[other].values()
        return [[run[task] - base[task] for task in tasks] for run in arms[arm].values()]
    both = sorted(arms[arm].keys() & arms[other].keys())
    return [[arms[arm][seed][task] - arms[other][seed][task] for task in tasks] for seed in both]


def main(path):
    arms, page_of_figures = read(path.with_suffix("")), json.loads(path.read_bytes())["figures"]
    base = "start" if "start" in arms else "sft"
    played = {"enter-password", "focus-text-2", "login-user", "use-autocomplete"}
    wrong = compared = 0
    for where, mean, low, high in differences(page_of_figures):
        name = ".".join(where)
        of_online = re.fullmatch(r"(all_pages|played|unplayed)_(\w+)_minus_(\w+)", name)
        of_keeping = re.fullmatch(r"arms\.(.+)\.(played|other)", name)
        of_ablation = re.fullmatch(r"minus_start\.(.+)", name)
        if of_online:
            part, arm, other = of_online.groups()
        elif of_keeping:
            arm, part, other = *of_keeping.groups(), base
        elif of_ablation:
            part, arm, other = "all_pages", of_ablation[1], base
        else:
            continue
        arm = arm.replace(",", "").replace(" ", "_")
        tasks = sorted(next(iter(arms[base].values())))
        tasks = [t for t in tasks if part == "all_pages" or (page(t) in played) == (part == "played")]
        clusters = list(map(page, tasks)) if of_ablation else tasks
        found = interval(values(arms, arm, other, tasks), clusters)
        apart = max(abs(a - b) for a, b in zip(found, (mean, low, high), strict=True))
        compared += 1
        wrong += apart > NOISE or abs(found[0] - mean) > 1e-6
        print(f"{name:50} {found[0]:+6.1f} ({found[1]:+.1f} to {found[2]:+.1f}), {apart:.2f} from the page")
    print(f"{path}: {compared} differences, {wrong} not those of the page")
    return wrong or not compared


if __name__ == "__main__":
    sys.exit(int(max(main(Path(one)) for one in sys.argv[1:])))
