"""Applications: policies that solve, remember or guess, on unseen worlds. Debian 12, an hour each.

What each application has given is kept in docs/results/apps, and only what is missing there is measured;
APPS=trac,wiki measures these again.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.environments.apps.application import Application
from collection.environments.apps.suite import NAMES, check_application, level, make_application
from collection.environments.apps.tasks import Ending, shortfalls, template_task
from rmsweb_jax.records.files import write_atomic
from tests.apps.mutants import mutants, right
from tests.apps.play import other_ways, play, template_of
from tests.apps.players import guess
from tests.apps.policies import policies_of
from tests.proofs.page import RESULTS, publish, table

REMEMBERED = range(1000)
UNSEEN = range(1000, 1016)
PLAYED = range(1000, 1005)
GUESSED = PLAYED[:1]
KEPT = RESULTS / "apps"
LEVELS = ("easy", "medium", "hard")


def measure(name: str, folder: Path) -> dict[str, Any]:
    application = make_application(name, folder / "apps")
    start = time.monotonic()
    application.prepare()
    installed = time.monotonic()
    with application:
        check_application(application, PLAYED[0])
        found = {
            "install_s": round(installed - start, 1),
            **_speed(application),
            **_played(application, folder),
        }
    return {**found, **memory(application), "mutants": _mutants(application)}


def _speed(application: Application) -> dict[str, float]:
    """Seconds that a new world takes, and milliseconds of a reset to one that is there."""
    fills, resets = [], []
    for seed in PLAYED:
        start = time.monotonic()
        application.reset(seed)
        fills.append(time.monotonic() - start)
    for seed in 4 * tuple(PLAYED):
        start = time.monotonic()
        application.reset(seed)
        resets.append(1000 * (time.monotonic() - start))
    return {
        "fill_s": round(statistics.median(fills), 1),
        "reset_ms": round(statistics.median(resets), 1),
        "reset_ms_most": round(max(resets), 1),
    }


def _played(application: Application, folder: Path) -> dict[str, Any]:
    """By template: how often the hand-written and the random policy are paid, and the steps of the former."""
    tasks = [template_task(application, name, seed) for seed in PLAYED for name in application.templates]
    rows = collections.defaultdict(list)
    for one in play(application, tasks, policies_of(application.name), folder / "oracles"):
        rows[template_of(one.task)].append(one)
        if one.lacks:
            print(f"{one.task.task.task_id}: {one.lacks} {one.text!r}", flush=True)
    first = [one for one in tasks if one.task.seed in GUESSED]
    guessed = collections.Counter(
        template_of(one.task)
        for one in play(application, first, dict.fromkeys(application.templates, guess), folder / "guesses")
        if not one.lacks
    )
    ways = [paid == (not one.lacks) for paid, one in other_ways(application, PLAYED[0], folder / "ways")]
    return {
        "templates": [
            {
                "template": name,
                "level": level(application.name, name),
                "carried": name in application.carried,
                "episodes": len(episodes),
                "solved": sum(not one.lacks for one in episodes),
                "guesses": len(GUESSED),
                "guessed": guessed[name],
                "steps": max(one.steps for one in episodes),
                "pages": max(one.pages for one in episodes),
                "seconds": round(statistics.mean(one.seconds for one in episodes), 1),
            }
            for name, episodes in rows.items()
        ],
        "other_ways": len(ways),
        "other_ways_right": sum(ways),
    }


def memory(application: Application, unseen: Sequence[int] = UNSEEN) -> dict[str, Any]:
    """What a policy is paid that opens no page: by the same words, or the most frequent answer."""
    questions, chance, repeated, tasks = 0, 0, 0, 0
    paid = collections.Counter()
    answers = collections.defaultdict(dict)
    for seed in REMEMBERED:
        for name in application.templates:
            goal = application.goal(name, seed)
            answers[name][goal.words] = goal.answer.text if goal.answer else ""
    common = {name: collections.Counter(seen.values()).most_common(1)[0][0] for name, seen in answers.items()}
    for seed in unseen:
        world = application.world(seed)
        for name in application.templates:
            goal = application.goal(name, seed)
            tasks += 1
            repeated += goal.words in answers[name]
            questions += goal.answer is not None
            given = answers[name].get(goal.words, common[name])
            paid[level(application.name, name)] += not shortfalls(goal, world, Ending("", given))
            chance += not shortfalls(goal, world, Ending("", common[name]))
    return {
        "questions": questions,
        "remembered": paid.total(),
        "remembered_by_level": paid,
        "constant": chance,
        "repeated": repeated,
        "tasks": tasks,
    }


def _mutants(application: Application) -> list[int]:
    """How many wrong endings were tried, and how many of them are paid."""
    tried = paid = 0
    for seed in PLAYED:
        world = application.world(seed)
        for name in application.templates:
            goal = application.goal(name, seed)
            assert not shortfalls(goal, *right(goal)), name
            for _, holds, end in mutants(goal, world):
                tried += 1
                paid += not shortfalls(goal, holds, end)
    return [tried, paid]


def main() -> None:
    asked = [name for name in os.environ.get("APPS", "").split(",") if name]
    for name in asked or [name for name in NAMES if not (KEPT / f"{name}.json").exists()]:
        with tempfile.TemporaryDirectory(prefix="rmsweb-apps-") as folder:
            found = measure(name, Path(folder))
        KEPT.mkdir(exist_ok=True)
        write_atomic(KEPT / f"{name}.json", json.dumps(found, indent=1).encode())
    kept = {
        name: json.loads((KEPT / f"{name}.json").read_bytes())
        for name in NAMES
        if (KEPT / f"{name}.json").exists()
    }
    _publish(kept)


def _publish(kept: Mapping[str, dict[str, Any]]) -> None:
    rows = [row for one in kept.values() for row in one["templates"]]
    episodes, solved = (sum(row[name] for row in rows) for name in ("episodes", "solved"))
    slowest = max(one["reset_ms"] for one in kept.values())
    sums = {
        name: sum(one[name] for one in kept.values())
        for name in ("remembered", "constant", "questions", "other_ways", "other_ways_right")
    }
    worst = max(one["repeated"] / one["tasks"] for one in kept.values())
    guesses, guessed = (sum(row[name] for row in rows) for name in ("guesses", "guessed"))
    tried, paid = (sum(one["mutants"][at] for one in kept.values()) for at in (0, 1))
    fewest = min(sum(row["level"] == "hard" for row in one["templates"]) for one in kept.values())
    checks = [
        ("all applications are measured", f"{len(kept)} of {len(NAMES)}", len(kept) == len(NAMES)),
        (
            "hand-written policies solve every template on five unseen worlds",
            f"{solved} of {episodes}",
            solved == episodes,
        ),
        (
            "other ways to do a task are paid",
            f"{sums['other_ways_right']} of {sums['other_ways']}",
            sums["other_ways_right"] == sums["other_ways"],
        ),
        ("wrong endings are not paid", f"{paid} of {tried}", not paid),
        (
            "memory of seeds 0 to 999 is paid on 1000 to 1015 no more often than the most frequent answer",
            f"{sums['remembered']} and {sums['constant']} of {sums['questions']} questions",
            all(one["remembered"] <= one["constant"] for one in kept.values()),
        ),
        (
            "less than 5 % of tasks repeat words of seeds 0 to 999",
            f"{100 * worst:.1f} % at most",
            worst < 0.05,
        ),
        ("a reset takes at most 15 ms, in the median", f"{slowest:g} ms at most", slowest <= 15),
        ("every application has hard tasks", f"{fewest} templates at least", fewest > 0),
    ]
    sites = [
        {
            "application": name,
            "templates": len(one["templates"]),
            **{title: sum(row["level"] == title for row in one["templates"]) for title in LEVELS},
            "carried": sum(row["carried"] for row in one["templates"]),
            "install s": one["install_s"],
            "new world s": one["fill_s"],
            "reset ms": one["reset_ms"],
            "remembered": f"{one['remembered']} of {one['questions']}",
            "most frequent": f"{one['constant']} of {one['questions']}",
            "repeated words": f"{one['repeated']} of {one['tasks']}",
        }
        for name, one in kept.items()
    ]
    levels = [
        {
            "level": title,
            "templates": len(found := [row for row in rows if row["level"] == title]),
            "episodes": sum(row["episodes"] for row in found),
            "hand-written policy": sum(row["solved"] for row in found),
            "random policy": sum(row["guessed"] for row in found),
            "its episodes": sum(row["guesses"] for row in found),
            "memory, of 16 seeds": sum(one["remembered_by_level"].get(title, 0) for one in kept.values()),
        }
        for title in LEVELS
    ]
    templates = [
        {
            "template": f"{name}/{row['template']}",
            "level": row["level"],
            "carried": "yes" if row["carried"] else "",
            "solved": f"{row['solved']} of {row['episodes']}",
            "steps": row["steps"],
            "pages": row["pages"],
            "seconds": row["seconds"],
        }
        for name, one in kept.items()
        for row in one["templates"]
    ]
    about = f"""\
**Baseline:** a random policy is paid {guessed} of {guesses} episodes, the most frequent answer
{sums["constant"]} of {sums["questions"]} questions, wrong endings {paid} of {tried}. Control: the
hand-written policies must solve every template.

Policies written by hand (`tests/apps`) play each template in the worlds of seeds {PLAYED[0]} to
{PLAYED[-1]}, in Chromium behind the guard. A random policy clicks up to six times and answers with a word of
the page. A policy that remembers opens no page: it knows every answer of seeds 0 to 999, and gives that of
the same words, or the template's most frequent one.

A check compares all that the application holds, read from its database, and the value of the answer. Wrong
endings are made from right ones: a wrong value, a change left out, one more, or at the wrong place. Steps and
pages are the most of five seeds."""
    publish(
        "apps",
        "Real applications on loopback",
        about,
        dict(kept),
        checks,
        table(sites),
        table(levels),
        table(templates),
    )


if __name__ == "__main__":
    main()
