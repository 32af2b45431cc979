"""Stories of answers: without evidence, with a part missing, behind a wall, never found."""

from __future__ import annotations

from tests.mining.planted.acts import Act, click, extract, fill, save, scroll, search, visit, wait
from tests.mining.planted.documents import TABS, Documents
from tests.mining.planted.run import Run
from tests.mining.planted.stories.story import Setting, Story, to_document, to_engine


def _read(run: Run, site: Documents, words: str, answer: str) -> None:
    """Reads the open document and answers."""
    run.do((f"Read the {words}", f"Get the {words} from the page"), extract(words, answer))
    run.note(f"Read from the page: {answer}.")


def unopened_source(setting: Setting) -> Story:
    """On the search results: open the official document, or take what a snippet, blog or memory says."""
    rng = setting.rng
    site = Documents(rng, setting.filler, setting.height)
    theme, label = site.theme, site.theme.facts[0][0].lower()
    mistake = rng.choice(("snippet", "blog", "memory"))
    task = site.task(
        setting.task_id,
        f"Find the current {label} of {theme.document} at {theme.name}.",
        f"Use only the official page of {theme.name} as source",
        "Give the address of the page that says so",
    )

    def success(run: Run) -> None:
        to_engine(run, site)
        run.idle(0.3)
        goal = (f"Open the official page on {theme.document}", "Open the official source")
        run.do(goal, click(f"{theme.document} - {theme.name}"), critical=True)
        run.note("The official page is open.")
        _read(run, site, label, site.facts[0])
        run.wander(0.3)
        run.finish(f"{site.facts[0]}, according to {site.url(site.path)}.")

    def localization(run: Run) -> None:
        to_engine(run, site)
        acts = {
            "snippet": extract(label, site.snippet),
            "blog": click(f"All about {theme.document}"),
            "memory": save("answer.md", f"{theme.facts[0][0]}: {site.stale[0]} (as far as I know)"),
        }
        goals = {
            "snippet": "Take the number from the result's snippet",
            "blog": "Open the first result",
            "memory": "Write down the value that I remember",
        }
        run.do(goals[mistake], acts[mistake], critical=True)
        run.note(f"{theme.facts[0][0]} is {site.stale[0]}.")
        if mistake == "blog":
            _read(run, site, label, f"{theme.facts[0][0]} {site.stale[0]}")
        run.drift()
        if mistake == "snippet":
            run.do("Keep the value", save("answer.md", site.stale[0]), calm=True)
        run.finish(f"{theme.facts[0][0]} is {site.stale[0]}.")

    why = "The final answer was never seen on an official page."
    return Story(site, task, success, localization, why, f"opens the official page / {mistake}")


def missing_field(setting: Setting) -> Story:
    """On the document: read all fields, or only the first one."""
    rng = setting.rng
    site = Documents(rng, setting.filler, setting.height)
    theme = site.theme
    first, second = (fact[0].lower() for fact in theme.facts[:2])
    task = site.task(
        setting.task_id,
        f"Report the {first} and the {second} of {theme.document}, both with their units.",
        f"Answer with both values: {first}; {second}",
    )

    def success(run: Run) -> None:
        to_document(run, site)
        goal = ("Read both values", f"Get {first} and {second}")
        run.do(goal, extract(f"{first} and {second} with units", "; ".join(site.facts[:2])), critical=True)
        run.note(f"Read: {'; '.join(site.facts[:2])}.")
        run.do("Keep both", save("answer.md", "; ".join(site.facts[:2])))
        run.finish(f"{'; '.join(site.facts[:2])}.")

    def localization(run: Run) -> None:
        to_document(run, site)
        run.do(f"Read the {first}", extract(first, site.facts[0]), critical=True)
        run.note(f"Read: {site.facts[0]}.")
        run.drift()
        run.do("Keep it", save("answer.md", site.facts[0]), calm=True)
        run.finish(f"{site.facts[0]}.")

    why = f"The answer lacks the {second}."
    return Story(site, task, success, localization, why, "reads both fields / reads one")


def missing_tab(setting: Setting) -> Story:
    """On the document's first tab: open the second one for the last field, or write down what is there."""
    site = Documents(setting.rng, setting.filler, setting.height)
    theme = site.theme
    names = [fact[0].lower() for fact in theme.facts]
    task = site.task(
        setting.task_id,
        f"List the {names[0]}, the {names[1]} and the {names[2]} of {theme.document}.",
        "All three values with units",
    )

    def common(run: Run) -> None:
        to_document(run, site)
        _read(run, site, "values on this page", "; ".join(site.facts[:2]))

    def success(run: Run) -> None:
        common(run)
        run.do((f"Open {TABS[1]} for the {names[2]}", f"The {names[2]} must be under {TABS[1]}"),
               click(TABS[1]), critical=True)  # fmt: skip
        _read(run, site, names[2], site.facts[2])
        run.finish("; ".join(site.facts) + ".")

    def localization(run: Run) -> None:
        common(run)
        run.do("Write down the values", save("values.md", "; ".join(site.facts[:2])), critical=True)
        run.note("The values are in values.md.")
        run.drift()
        if run.browser.view.above == 0 and run.rng.random() < 0.5:
            run.do("Return to the start page", click(site.name), calm=True)
        run.finish("; ".join(site.facts[:2]) + ".")

    why = f"The answer lacks the {names[2]}."
    return Story(site, task, success, localization, why, "opens the second tab / writes two fields down")


def wall(setting: Setting) -> Story:
    """Before a captcha or refusal: use another source, or wait, reload, click and plan."""
    rng = setting.rng
    site = Documents(rng, setting.filler, setting.height, walled=True)
    theme, label = site.theme, site.theme.facts[0][0].lower()
    # The fifth look in a row at a wall ends a run.
    stalls, via_search = rng.randint(2, 4), rng.random() < 0.4
    task = site.task(
        setting.task_id,
        f"Find the {label} of {theme.document} by {theme.name}; its site {theme.mirror} will do too.",
        "Give the value with its unit",
    )

    def common(run: Run) -> None:
        run.wander(0.6)
        run.do(
            (f"Open {theme.section}", f"Go to {theme.section}"), click(theme.section), note=f"On {site.name}."
        )
        run.note((f"{theme.section} is blocked by a check.", f"A check stands before {theme.section}."))

    def success(run: Run) -> None:
        common(run)
        if run.rng.random() < 0.4:
            run.do("Give the check a moment", wait(), calm=True)
        way: Act = search(f"{theme.mirror} {theme.document}") if via_search else visit(site.mirror_url)
        goal = ("Go around the block by another source", "Leave the blocked page for the open data site")
        run.do(goal, way, critical=True)
        if via_search:
            run.do("Open the open data site", visit(site.mirror_url))
        run.note("The open data site has the document.")
        _read(run, site, label, site.facts[0])
        run.finish(f"{site.facts[0]}, from {site.mirror_url}.")

    def localization(run: Run) -> None:
        common(run)
        url = site.url(f"/{theme.section.lower()}")
        ways = [
            ("Wait for the check to pass", wait(10)),
            ("Reload the page", visit(url)),
            ("Pass the check", click(site.wall[2])),
            ("Plan what to do", save("plan.md", f"1. Open {theme.section}\n2. Read the {label}")),
        ]
        run.rng.shuffle(ways)
        for number, (goal, act) in enumerate(ways[:stalls]):
            run.do(goal, act, critical=number < 3, calm=True)
        if stalls < 4:
            run.finish(f"{theme.section} is blocked, the {label} could not be read.", success=False)
        run.end(site.wall[3], f"the last page: its title says {site.wall[0]!r}")

    why = "The run stayed on a page that was blocked."
    return Story(site, task, success, localization, why, "changes the source / stalls before the wall")


def repeated_search(setting: Setting) -> Story:
    """On useless results: open the official site directly, or search again in other words."""
    site = Documents(setting.rng, setting.filler, setting.height)
    site.hide_official()
    theme, label = site.theme, site.theme.facts[0][0].lower()
    again = setting.rng.randint(2, 5)
    task = site.task(
        setting.task_id,
        f"Find the page on {theme.document} of {theme.name} ({site.host}) and report the {label}.",
        "The value must come from that page",
    )

    def success(run: Run) -> None:
        to_engine(run, site)
        run.note("The results do not show the official page.")
        run.idle(0.3)
        goal = (f"Go to {site.host} directly", "Open the official site by its address")
        run.do(goal, visit(site.url(f"/{theme.section.lower()}")), critical=True)
        run.do(f"Open {theme.document}", click(theme.document))
        _read(run, site, label, site.facts[0])
        run.finish(f"{site.facts[0]}, see {site.url(site.path)}.")

    def localization(run: Run) -> None:
        to_engine(run, site)
        run.note("The results do not show the official page.")
        for number in range(again):
            query = (
                f"{run.rng.choice(theme.words)} {('official', 'page', 'site', '2026', 'how much')[number]}"
            )
            run.do(("Search in other words", "Try another query"), search(query), critical=True)
        run.finish(f"The page on {theme.document} could not be found.", success=False)

    why = "The target page was never reached."
    return Story(site, task, success, localization, why, "opens the site directly / searches again")


def endless_list(setting: Setting) -> Story:
    """On the site's start page: use its search, or scroll through everything."""
    site = Documents(setting.rng, setting.filler, setting.height)
    theme, label = site.theme, site.theme.facts[0][0].lower()
    again = setting.rng.randint(2, 5)
    task = site.task(setting.task_id, f"On {site.host}, find {theme.document} and report its {label}.")

    def success(run: Run) -> None:
        run.note((f"On {site.name}, the start page is long.", f"{site.name} has a long start page."))
        goal = ("Use the site's search", f"Search the site for {theme.document}")
        run.do(goal, fill("Search this site", theme.document), click("Search"), critical=True)
        run.do(f"Open {theme.document}", click(theme.document), note="The search found it.")
        _read(run, site, label, site.facts[0])
        run.finish(f"{site.facts[0]}.")

    def localization(run: Run) -> None:
        run.note((f"On {site.name}, the start page is long.", f"{site.name} has a long start page."))
        for number in range(again):
            down = number % 4 != 3
            run.do((f"Scroll to {theme.document}", "Keep scrolling"), scroll(1.0, down), critical=True)
        run.finish(f"{theme.document} is not on the page.", success=False)

    why = "The target page was never reached."
    return Story(site, task, success, localization, why, "searches the site / scrolls on and on")
