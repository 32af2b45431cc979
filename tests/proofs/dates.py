"""All dated prompts of WebVoyager and WebTailBench, moved from three days of the year and checked.

RMSWEB_BENCHMARKS=FOLDER has the benchmarks' own files.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.dates.benchmark import DateRefresh, refresh_benchmark
from collection.evaluation.dates.moving import LEAD_DAYS, refresh
from tests.evaluation.date_checker import RULES, broken, find, read, rubric_broken
from tests.evaluation.rows import REAL, load_benchmark, real_settings
from tests.proofs.result import Claim, Figures, Proof, main, table

NAMES = ("webvoyager", "webtailbench")
DAYS = ("2026-11-25", "2027-02-10", "2027-07-15")
# One day a week for a year, for what is not claimed.
YEAR = [date(2026, 12, 1) + timedelta(weeks=week) for week in range(52)]
LIMIT = 0.20


def measure() -> Figures:
    if not (REAL / "webvoyager.jsonl").exists():
        raise SystemExit("error: set RMSWEB_BENCHMARKS to the folder of the benchmarks' files")
    benchmarks = {name: load_benchmark(real_settings(name)) for name in NAMES}
    rows, errors, texts, wrong, over, again = [], Counter(), 0, 0, {}, 0
    weeks: dict[str, dict[str, float]] = {}
    for today in map(date.fromisoformat, DAYS):
        moved: dict[str, list[date]] = {}
        for name, benchmark in benchmarks.items():
            refreshed, record = _refresh(benchmark, today)
            errors.update(_errors(benchmark, refreshed, record, today))
            pairs = [(note, task.days) for task in record.changed for note in task.notes]
            texts += len(pairs)
            wrong += sum(rubric_broken(note.old, note.new, timedelta(days=days)) for note, days in pairs)
            again += sum(refresh(task.prompt.new, today, today).days != 0 for task in record.changed)
            moved[name] = _days(record)
            rows.append(
                {
                    "day": today.isoformat(),
                    "benchmark": name,
                    "dated": record.dated,
                    "moved": len(record.changed),
                    "rules": record.rules(),
                    "outdated": len(record.outdated),
                    "relative": len(record.relative),
                }
            )
            over |= {one.partition("/")[2]: why for one, why in record.outdated.items()}
        shares = {name: _busiest(days) for name, days in moved.items()}
        weeks[today.isoformat()] = {"both": _busiest(itertools.chain(*moved.values())), **shares}
    published = {name: _published(benchmark) for name, benchmark in benchmarks.items()}
    return {
        "days": list(DAYS),
        "checker_rules": len(RULES),
        "prompts": sum(row["moved"] for row in rows),
        "rows": rows,
        "errors": {rule: errors[rule] for rule in RULES},
        "rubric_texts": texts,
        "rubric_texts_wrong": wrong,
        "moved_again": again,
        "busiest_week": weeks,
        "busiest_week_published": {name: _busiest(days) for name, days in published.items()},
        "outdated": over,
        "year": _year(benchmarks),
    }


def _refresh(benchmark: Benchmark, today: date) -> tuple[Benchmark, DateRefresh]:
    with tempfile.TemporaryDirectory(prefix="rmsweb-dates-") as folder:
        return refresh_benchmark(benchmark, today, LEAD_DAYS, None, Path(folder))


def _errors(before: Benchmark, after: Benchmark, record: DateRefresh, today: date) -> Counter[str]:
    """Broken rules of the checker; prompts about the past must be unchanged and are not checked by it."""
    assert before.written is not None
    past = record.unchanged.get("past", ())
    found: Counter[str] = Counter()
    for old, new in zip(before.tasks, after.tasks, strict=True):
        if find(old.objective) and old.task_id not in past:
            found.update(broken(old.objective, new.objective, before.written, today, LEAD_DAYS))
        elif old.objective != new.objective:
            found["words"] += 1
    return found


def _days(record: DateRefresh) -> list[date]:
    return [day for task in record.changed for change in task.prompt.dates for day in change.after]


def _published(benchmark: Benchmark) -> list[date]:
    """The days of all prompts, as they were written."""
    assert benchmark.written is not None
    seen = [find(task.objective) for task in benchmark.tasks]
    return [day for one in seen if one for day in read(one, benchmark.written)]


def _busiest(days: Iterable[date]) -> float:
    """The largest share of days within any seven successive ones."""
    days = list(days)
    starts = Counter(day - timedelta(days=back) for day in days for back in range(7))
    return round(max(starts.values()) / len(days), 3)


def _year(benchmarks: dict[str, Benchmark]) -> dict[str, Any]:
    errors, shares = 0, []
    for today in YEAR:
        days: list[date] = []
        for benchmark in benchmarks.values():
            refreshed, record = _refresh(benchmark, today)
            errors += _errors(benchmark, refreshed, record, today).total()
            days += _days(record)
        shares.append((_busiest(days), today.isoformat()))
    return {
        "days": len(YEAR),
        "errors": errors,
        "worst_week": max(shares)[0],
        "worst_day": max(shares)[1],
        "days_over_limit": sum(share > LIMIT for share, _ in shares),
    }


def claims(figures: Figures) -> list[Claim]:
    errors, weeks, year = figures["errors"], figures["busiest_week"], figures["year"]
    total = sum(errors.values())
    named = sum(
        errors[rule] for rule in ("weekday", "written weekday", "holiday", "fixed holiday", "order", "past")
    )
    worst = max(share["both"] for share in weeks.values())
    return [
        Claim(
            "weekdays, holidays, order of days, days in the past: no errors",
            f"{named} in {figures['prompts']} prompts",
            named == 0,
        ),
        Claim(f"no rule of the checker ({figures['checker_rules']}) is broken", f"{total}", total == 0),
        Claim(
            "rubrics follow their prompts",
            f"{figures['rubric_texts_wrong']} of {figures['rubric_texts']:,} texts wrong",
            figures["rubric_texts_wrong"] == 0,
        ),
        Claim(
            "a second refresh on the same day moves nothing",
            f"{figures['moved_again']}",
            figures["moved_again"] == 0,
        ),
        Claim(
            f"at most {LIMIT:.0%} of the moved dates lie in any seven days", f"{worst:.1%}", worst <= LIMIT
        ),
        Claim(
            "from one day of each week of a year: errors",
            f"{year['errors']}",
            year["errors"] == 0,
        ),
        Claim(
            f"the same: days with more than {LIMIT:.0%} in seven days",
            f"{year['days_over_limit']} of {year['days']}; {year['worst_week']:.1%} on {year['worst_day']}",
            None,
        ),
    ]


def tables(figures: Figures) -> str:
    rules = list(dict.fromkeys(rule for row in figures["rows"] for rule in row["rules"]))
    counts = [
        (
            row["day"],
            row["benchmark"],
            row["dated"],
            row["moved"],
            *(row["rules"].get(rule, 0) for rule in rules),
        )
        for row in figures["rows"]
    ]
    weeks = [
        (day, *(f"{share[name]:.1%}" for name in ("both", *NAMES)))
        for day, share in figures["busiest_week"].items()
    ]
    published = figures["busiest_week_published"]
    weeks.append(("as published", "-", *(f"{published[name]:.1%}" for name in NAMES)))
    return "\n\n".join(
        (
            "## Rules",
            table(("day of the run", "benchmark", "dated", "moved", *rules), counts),
            "## The busiest seven days",
            table(("day of the run", "both", *NAMES), weeks),
            "## The checker's rules",
            table(
                ("rule", "what it checks", "broken"),
                ((rule, RULES[rule], count) for rule, count in figures["errors"].items()),
            ),
            "## Outdated",
            table(("prompt", "reason, on the last of these days"), figures["outdated"].items()),
        )
    )


ABOUT = """\
All prompts of WebVoyager (588) and WebTailBench (609) that name a day are refreshed as an evaluation does it,
as if it started on each of three days ({days}). `collection.evaluation.dates.moving` has the rules.

`tests/evaluation/date_checker.py` checks each prompt. It reads dates and holidays with its own code, knows
only the prompts, the day on which they were written and the day of the run, and has {checker_rules} rules;
its tests plant an error for each. It assumes, like the mover, that WebVoyager was written about 15 December
2023 and WebTailBench about 10 November 2025, and that dates up to 45 days ahead are about "soon". Whether a
site still sells what a prompt asks for was not tried.

Prompts about the past (`past`) must stay as they are. In the spring, WebVoyager's dates of late February and
March are next year's, too far ahead to be sold, or have just passed, so more of them meet in one week.
"""
PROOF = Proof("Dates of benchmark prompts", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
