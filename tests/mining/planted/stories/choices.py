"""Stories of choosing: limits, filters, dates and controls that have to be operated."""

from __future__ import annotations

from tests.mining.planted.acts import choose, click, extract, fill, press, save
from tests.mining.planted.catalogue import Catalogue, Wants
from tests.mining.planted.run import Run
from tests.mining.planted.stories.story import (
    Setting,
    Story,
    confirm,
    options_line,
    pick,
    report,
    take,
    to_item,
    to_results,
)


def broken_limit(setting: Setting) -> Story:
    """In the list: open the thing that keeps to the limits, or one that breaks a limit."""
    site = Catalogue(setting.rng, setting.filler, setting.height)
    theme, value = site.theme, setting.rng.choice(site.theme.option[1])
    name, unit, *_ = theme.attribute
    task = site.task(
        setting.task_id,
        f"Find {theme.noun} within the limits and complete: {theme.act}, {theme.finish}.",
        f"Price at most {site.most} {theme.price[0]}",
        f"{name} at least {site.least} {unit}",
        options_line(site, value),
    )

    def success(run: Run) -> None:
        to_results(run, site)
        run.idle(0.3)
        to_item(run, site, critical=True)
        run.note(
            f"{site.price(site.target)}, {name.lower()} {site.chosen.attribute} {unit}: within the limits."
        )
        pick(run, site, value)
        take(run, site)
        confirm(run, site)
        report(run, site)

    def localization(run: Run) -> None:
        item = site.items[site.decoy]
        to_results(run, site)
        to_item(run, site, site.decoy, critical=True)
        run.note(f"{site.price(site.decoy)}, {name.lower()} {item.attribute} {unit}.")
        pick(run, site, value)
        take(run, site)
        confirm(run, site)
        run.finish(f"{item.name}: {theme.confirmed.lower()}, reference {site.number}.")

    why = f"{site.items[site.decoy].name} is outside the limits."
    return Story(site, task, success, localization, why, "opens what is within the limits / what breaks one")


def claimed_filter(setting: Setting) -> Story:
    """In the unfiltered list: set the filter, or say that it is set."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height)
    theme, mistake = site.theme, rng.choice(("extract", "open", "dead"))
    label, (_, kind, _) = theme.finder
    order = theme.sorter[1][1]
    task = site.task(
        setting.task_id,
        f"Show only {theme.noun} with {label} {kind}, {order.lower()}; name the first and its price.",
        f"The filter {label}: {kind} must be active",
        f"{theme.sorter[0]}: {order}",
    )
    cheapest = min(site.items, key=lambda item: item.price)

    def common(run: Run) -> None:
        to_results(run, site)
        run.do((f"Sort by {order.lower()}", f"Order: {order}"), choose(theme.sorter[0], order))
        run.note(f"Sorted by {order.lower()}.")

    def success(run: Run) -> None:
        common(run)
        run.idle(0.3)
        run.do((f"Filter by {label} {kind}", f"Set {label} to {kind}"), choose(label, kind), critical=True)
        run.note(f"The page shows: Filter active: {label} {kind}.")
        answer = f"{site.chosen.name}, {site.price(site.target)}"
        run.do("Read the first entry", extract("first entry and its price", answer))
        run.finish(f"With {label} {kind}, the first is {answer}.")

    def localization(run: Run) -> None:
        common(run)
        answer = f"{cheapest.name}, {cheapest.price} {theme.price[0]}"
        reading = extract("first entry and its price", answer)
        if mistake == "extract":
            run.do(f"{label} {kind} is set; read the first entry", reading, critical=True)
        elif mistake == "open":
            run.do(f"{label} {kind} is set; open the first entry", click(cheapest.name), critical=True)
        else:
            run.do(f"Apply the filter {label} {kind}", click("Filters"), critical=True)
        run.note(f"The filter {label} {kind} is active.")
        if mistake == "extract":
            run.do("Keep it", save("answer.md", answer), calm=True)
        else:
            run.do("Read name and price", reading, calm=True)
        run.drift()
        run.finish(f"With {label} {kind} active, the first is {answer}.")

    why = f"The list was never filtered by {label}."
    return Story(site, task, success, localization, why, f"sets the filter / claims it ({mistake})")


def skipped_date(setting: Setting) -> Story:
    """On the thing's page: enter and check the date, or go on without."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height, Wants(dated=True))
    theme, value, mistake = site.theme, rng.choice(site.theme.option[1]), rng.choice(("take", "extract"))
    task = site.task(
        setting.task_id,
        f"Check that {site.chosen.name} is available on {site.day}, then {theme.act.lower()} for that date.",
        f"{theme.day}: {site.day}",
        options_line(site, value),
    )

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)

    def success(run: Run) -> None:
        common(run)
        run.idle(0.3)
        goal = (f"Enter {site.day} and check it", f"Check {theme.day.lower()} {site.day}")
        run.do(goal, fill(theme.day, site.day), click("Check date"), critical=True)
        run.note(f"Available on {site.day}: yes.")
        take(run, site)
        confirm(run, site)
        report(run, site, f" on {site.day}")

    def localization(run: Run) -> None:
        common(run)
        if mistake == "take":
            take(run, site, critical=True)
        else:
            answer = f"{site.chosen.name} can be booked"
            run.do("Read whether it is available", extract("availability", answer), critical=True)
            run.note(f"{site.chosen.name} can be booked.")
            take(run, site)
        run.wander(0.2)
        confirm(run, site)
        run.finish(f"{site.chosen.name}: {theme.confirmed.lower()}, reference {site.number}.")

    why = f"The date {site.day} was never entered or checked."
    return Story(site, task, success, localization, why, f"checks the date / goes on without ({mistake})")


def dead_list(setting: Setting) -> Story:
    """Before a list box: choose its option, or click on it again and again."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height)
    theme, value, stalls = site.theme, rng.choice(site.theme.option[1][1:]), rng.randint(2, 5)
    label, ending = theme.option[0], rng.choice(("done", "max_steps"))
    task = site.task(
        setting.task_id,
        f"For {site.chosen.name} choose {label} {value}, {theme.act.lower()} and {theme.finish.lower()}.",
        f"{label}: {value}",
    )

    def success(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        run.idle(0.3)
        goal = (f"Choose {value} in the list {label}", f"Set {label} to {value}")
        run.do(goal, choose(label, value), critical=True)
        run.note(f"{label} is {value}.")
        take(run, site)
        confirm(run, site)
        report(run, site)

    def localization(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        for number in range(stalls):
            goal = (
                f"Open the list {label}",
                f"Click {label} again",
                f"The list {label} did not open, click it",
            )
            run.do(goal[min(number, 2)], click(label), critical=True)
        if ending == "done":
            run.do("Try the keyboard", press("ArrowDown"), calm=True)
            run.drift(4)
            run.finish(f"{label} cannot be set.", success=False)
            return
        run.end("max_steps")

    why = f"The list {label} was never operated."
    return Story(site, task, success, localization, why, "chooses the option / clicks without effect")


def unopened_tab(setting: Setting) -> Story:
    """On the thing's page: open the tab that the answer is under, or click where nothing happens."""
    site = Catalogue(setting.rng, setting.filler, setting.height)
    theme, stalls = site.theme, setting.rng.randint(1, 3)
    name, unit, *_ = theme.attribute
    task = site.task(
        setting.task_id,
        f"Open the specifications of {site.chosen.name} and report its reference and {name.lower()}.",
    )

    def success(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        run.idle(0.3)
        run.do(
            ("Open the specifications", "Open the tab Specifications"), click("Specifications"), critical=True
        )
        run.note("The specifications are shown.")
        answer = f"{site.chosen.code}, {site.chosen.attribute} {unit}"
        run.do("Read reference and value", extract(f"reference and {name.lower()}", answer))
        run.finish(f"{site.chosen.name}: {answer}.")

    def localization(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        for _ in range(stalls):
            run.do(("Show the details", "Try to open the details"), click("Save for later"), critical=True)
        run.drift()
        run.finish(f"The reference of {site.chosen.name} is not shown.", success=False)

    why = "The specifications were never opened."
    return Story(site, task, success, localization, why, "opens the tab / clicks without effect")
