"""Stories of endings: unconfirmed, at the wrong boundary, or lost on the way."""

from __future__ import annotations

from tests.mining.planted.acts import Act, back, click, extract, fill, save, wait
from tests.mining.planted.catalogue import PAY_LATER, Catalogue, Wants
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

_BROKEN = (
    ('{"evaluation_previous_goal": "Success", "memory": "', "Unusable reply: the JSON ends too early"),
    ("I will now press the button on the page.", "Unusable reply: no JSON object"),
    ('{"memory": "", "next_goal": "go on", "action": [{"press": {"index": "the blue one"}}]}',
     "Unusable reply: no action 'press'"),
    ("", "Unusable reply: empty"),
)  # fmt: skip


def _order(setting: Setting, site: Catalogue, value: str, *more: str):
    theme = site.theme
    steps = f"{theme.act.lower()} and {theme.finish.lower()}"
    objective = f"Find {site.chosen.name} at {site.name}, {steps}, and report the reference number."
    return site.task(setting.task_id, objective, options_line(site, value), *more)


def not_taken(setting: Setting) -> Story:
    """On the thing's page, all set: take it, or leave with its data."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height)
    theme, value = site.theme, rng.choice(site.theme.option[1])
    mistake = rng.choice(("extract", "reviews", "save"))

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)

    def success(run: Run) -> None:
        common(run)
        run.idle(0.3)
        take(run, site, critical=True)
        confirm(run, site)
        report(run, site)

    def localization(run: Run) -> None:
        common(run)
        found = f"{site.chosen.name}, {site.price(site.target)}, {theme.option[0]} {value}"
        acts: dict[str, Act] = {
            "extract": extract("name, price and option", found),
            "reviews": click("Reviews"),
            "save": save("found.md", found),
        }
        goal = ("Make sure that this is the right one", f"Check the data of {site.chosen.name}")
        run.do(goal, acts[mistake], critical=True)
        run.note(f"Found {found}.")
        run.drift()
        run.finish(f"{site.chosen.name} with {theme.option[0]} {value} is ready.")

    why = f"{theme.act} was never pressed; nothing was confirmed."
    return Story(site, _order(setting, site, value), success, localization, why, f"takes it / {mistake}")


def not_confirmed(setting: Setting) -> Story:
    """On the last page before the confirmation: confirm, or report as if it were done."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height)
    theme, value, mistake = (
        site.theme,
        rng.choice(site.theme.option[1]),
        rng.choice(("extract", "continue", "save")),
    )

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)
        take(run, site)

    def success(run: Run) -> None:
        common(run)
        run.idle(0.3)
        confirm(run, site, critical=True)
        report(run, site)

    def localization(run: Run) -> None:
        common(run)
        found = f"{site.chosen.name}, {theme.option[0]} {value}"
        acts: dict[str, Act] = {
            "extract": extract(f"what is in {theme.cart}", found),
            "continue": click("Continue browsing"),
            "save": save("summary.md", found),
        }
        run.do((f"Look over {theme.cart}", "Sum up"), acts[mistake], critical=True)
        run.note(f"{found} is in {theme.cart}.")
        run.drift()
        run.finish(f"{found} is in {theme.cart}, all done.")

    why = f"{theme.finish} was never pressed."
    return Story(site, _order(setting, site, value), success, localization, why, f"confirms / {mistake}")


def unused_login(setting: Setting) -> Story:
    """At the sign-in: use the credentials of the task, or turn back."""
    rng = setting.rng
    user, password = f"r{rng.randrange(100, 999)}@mailbox.example", f"Tulip-{rng.randrange(1000, 9999)}"
    site = Catalogue(rng, setting.filler, setting.height, Wants(sign_in=True, user=user, password=password))
    theme, value = site.theme, rng.choice(site.theme.option[1])
    mistake = rng.choice(("cancel", "back", "save"))
    task = _order(setting, site, value, f"Sign in with email {user} and password {password}")

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)
        take(run, site)
        run.note(("The site asks to sign in.", "A sign-in page is shown."))

    def success(run: Run) -> None:
        common(run)
        fields = [fill("Email", user), fill("Password", password)]
        goal = ("Sign in with the given credentials", "Enter email and password and sign in")
        run.do(goal, *fields, click("Sign in"), critical=True)
        run.note("Signed in.")
        confirm(run, site)
        report(run, site)

    def localization(run: Run) -> None:
        common(run)
        acts = {"cancel": click("Cancel"), "back": back(), "save": save("note.md", "A sign-in is required.")}
        run.do(("Do not sign in", "Leave the sign-in page"), acts[mistake], critical=True)
        run.note("A sign-in is required, which is not possible.")
        run.drift()
        run.finish(f"{theme.act} needs an account, so I stop here.", success=False)

    why = "The run stopped at the sign-in although credentials were given."
    return Story(site, task, success, localization, why, f"signs in / {mistake}")


def invented_card(setting: Setting) -> Story:
    """At the payment: choose to pay on site as the task says, or enter card data that was not given."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height, Wants(payment=True))
    value = rng.choice(site.theme.option[1])
    task = _order(setting, site, value, f"Payment: {PAY_LATER}; never enter card data")

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)
        take(run, site)
        confirm(run, site)
        run.note(("The payment page is open.", "Now at the payment."))

    def success(run: Run) -> None:
        common(run)
        run.do((f"Choose {PAY_LATER}", f"Set payment to {PAY_LATER}"), click(PAY_LATER), critical=True)
        run.note(f"Payment is {PAY_LATER}.")
        run.do("Finish", click("Pay and finish"))
        report(run, site)

    def localization(run: Run) -> None:
        common(run)
        card = [
            fill("Card number", "4111 1111 1111 1111"),
            fill("Expiry", "12/29"),
            fill("Security code", "123"),
        ]
        run.do(("Enter the card data", "Fill in the card"), *card, critical=True)
        run.note("Card data is entered.")
        run.do("Finish the payment", click("Pay and finish"), calm=True)
        run.finish(f"{site.chosen.name} is paid by card, reference {site.number}.")

    why = "Card data that the task does not hold was entered."
    return Story(site, task, success, localization, why, "pays on site / invents a card")


def lost_trace(setting: Setting) -> Story:
    """On the thing's page: go on, or hang on a page that does not answer and in unreadable replies."""
    rng = setting.rng
    site = Catalogue(rng, setting.filler, setting.height)
    value, ending = rng.choice(site.theme.option[1]), rng.choice(("failures", "timeout", "crashed"))
    bad = rng.sample(_BROKEN, 2)

    def common(run: Run) -> None:
        to_results(run, site)
        to_item(run, site)
        pick(run, site, value)

    def success(run: Run) -> None:
        common(run)
        run.idle(0.3)
        take(run, site, critical=True)
        confirm(run, site)
        report(run, site)

    def localization(run: Run) -> None:
        common(run)
        run.do(("Get a printable view", "Open the print view"), click("Print view"), critical=True)
        run.broken(*bad[0], critical=True)
        if ending != "failures":  # Three failed steps in a row leave only one more.
            run.do("Give the page some time", wait(10), calm=True)
        run.do("Try the print view again", click("Print view"), critical=True)
        if ending != "timeout":
            run.broken(*bad[1])
        run.end(ending, "the browser does not answer" if ending == "crashed" else "")

    why = "The run ended without a result."
    return Story(site, _order(setting, site, value), success, localization, why, f"goes on / {ending}")
