"""Does the miner choose the step of the mistake, where that is known? On the demo's own pool.

python -m tests.proofs.demo_mining --run=runs/demo --output=docs/results/demo_mining.md
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from collection.llm.scripted.mistakes import KINDS
from collection.mining.divergence import KEPT, MiningConfig
from rmsweb_jax.errors import UserError
from tests.mining.demo_choices import Choice, Known, Measured, measure, read_teacher
from tests.mining.demo_mistakes import Acts
from tests.proofs.result import demo_run

GOAL = 0.80
POOLS = {"The teacher's runs": ("collect",), "The teacher's and the policy's": ("collect", "collect_policy")}
_PARTS = ("state", "action", "category")
_GATES = MiningConfig()
_WEIGHTS = dict(zip(_PARTS, (_GATES.state_weight, _GATES.action_weight, _GATES.category_weight), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="workdir of experiments.demo; otherwise the demo runs first")
    parser.add_argument("--output", type=Path, default=Path("docs/results/demo_mining.md"))
    options = parser.parse_args()
    options.run = options.run or demo_run()
    try:
        known = read_teacher(options.run / "collect")
        measured = [measure(name, options.run, folders, known) for name, folders in POOLS.items()]
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    text = page(known, measured)
    print(text)
    options.output.write_text(text)
    if not all(reading.agrees for _, reading in known.values()):
        raise SystemExit("error: not every run of the teacher is known")
    if not all(one.share >= GOAL for one in measured):
        raise SystemExit(f"error: fewer than {GOAL:.0%} of the mined tasks choose the mistake's step")


def page(known: Known, measured: Sequence[Measured]) -> str:
    runs = list(known.values())
    agree = sum(reading.agrees for _, reading in runs)
    idle = sum(reading.drawn is not None and reading.found is None for _, reading in runs)
    failed = [reading for run, reading in runs if not run.success]
    return _PAGE.format(
        goal=f"{GOAL:.0%}",
        tasks=len({run.task.task_id for run, _ in runs}),
        runs=len(runs),
        steps=sum(len(run.steps) for run, _ in runs),
        agree=agree,
        clean=sum(reading.drawn is None for _, reading in runs),
        idle=idle,
        failed=len(failed),
        explained=sum(reading.found is not None for reading in failed),
        known="\n".join(_known_row(kind, known) for kind in KINDS),
        pools="\n\n".join(map(_pool, measured)),
    )


def _known_row(kind: str, known: Known) -> str:
    runs = [run for run, reading in known.values() if reading.found and reading.found.kind == kind]
    failed = sum(not run.success for run in runs)
    return f"| {kind} | {len(runs)} | {failed} | {len(runs) - failed} |"


def _pool(one: Measured) -> str:
    hits = sum(choice.hit for choice in one.mined)
    gated = [choice for choice in one.choices if not choice.kept]
    misses = [choice for choice in one.mined if not choice.hit]
    decisions = ", ".join(f"{name} {count}" for name, count in one.decisions.most_common())
    return _POOL.format(
        name=one.name,
        decisions=decisions,
        mined=one.decisions[KEPT],
        with_known=len(one.mined),
        policy=one.by_policy,
        clean=one.by_clean,
        hits=hits,
        share=f"{one.share:.1%}",
        holds="yes" if one.share >= GOAL else "NO",
        kinds="\n".join(_kind_row(kind, one.choices) for kind in KINDS),
        miss_head=_MISS_HEAD,
        misses="\n".join(map(_miss, misses)) or "| none | | | | | | |",
        gated=len(gated),
        near=sum(choice.hit for choice in gated),
        groups="\n".join(_groups(gated)) or "| none | | | | | | |",
        gated_misses="\n".join(_miss(choice) for choice in gated if not choice.hit) or "| none | | | | | | |",
    )


def _kind_row(kind: str, choices: Sequence[Choice]) -> str:
    cells = []
    for kept in (True, False):
        some = [choice for choice in choices if choice.kept == kept and choice.mistake.kind == kind]
        cells += [len(some)]
        cells += [
            sum(getattr(choice, name) for choice in some) for name in ("at_mistake", "at_remedy", "hit")
        ]
    return f"| {kind} | {' | '.join(map(str, cells))} |"


def _miss(choice: Choice) -> str:
    audit, mistake = choice.audit, choice.mistake
    cells = (
        audit.task_id,
        f"{mistake.kind}, step {mistake.step}: {_words(mistake.made)} for {_words(mistake.right)}",
        f"{choice.right_at or '-'}, {mistake.step}",
        f"{audit.success_step}, {audit.localization_step}",
        f"{audit.decision}; {audit.category} {audit.label_confidence:.2f}",
        f"{_scores(choice.there)} / {_scores(audit.scores)}",
        _reason(choice),
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _words(acts: Acts) -> str:
    names = [name.split("_")[0] + (f" {target}" if target else "") for name, target, _ in acts]
    return f"`{', '.join(names)}`"


def _scores(scores: dict[str, float]) -> str:
    if not scores:
        return "-"
    parts = " ".join(f"{name[0]}{scores[name]:.2f}" for name in _PARTS)
    return f"{scores['total']:.3f} ({parts})"


def _reason(choice: Choice) -> str:
    """Why the pair at the mistake was not the one."""
    there, chosen = choice.there, choice.audit.scores
    if not there:
        return "no step of the success does what was right there"
    if not there["eligible"]:
        return "the pair at the mistake is not eligible"
    for name, least in (("state", _GATES.min_state), ("category", _GATES.min_category)):
        if there[name] < least <= chosen[name]:
            return f"the pair at the mistake stays below the gate of S_{name}"
    leads = {name: _WEIGHTS[name] * (chosen[name] - there[name]) for name in _PARTS}
    if abs(sum(leads.values())) < 1e-6:
        return "equal scores: the later step"
    best = max(leads, key=lambda name: leads[name])
    detail = [
        f"{name} {there[name]:.2f} against {chosen[name]:.2f}"
        for name in ("closure", "violation", "recovered")
        if abs(there[name] - chosen[name]) > 1e-6
    ]
    told = f": {', '.join(detail)}" if best == "category" and detail else ""
    return f"S_{best} is higher, by {leads[best]:.3f} of the total{told}"


def _groups(gated: Sequence[Choice]) -> list[str]:
    """The tasks that a gate stopped, by what the gate missed."""
    groups: defaultdict[tuple[str, ...], list[Choice]] = defaultdict(list)
    for choice in gated:
        ended = "succeeded later" if choice.localization.success else "failed"
        key = (choice.mistake.kind, ended, choice.audit.decision, choice.audit.category, _lacks(choice))
        groups[key].append(choice)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"| {len(some)} | {' | '.join(key)} | {', '.join(sorted(_sites(some)))} ({some[0].audit.task_id}) |"
        for key, some in ordered
    ]


def _sites(some: Sequence[Choice]) -> Counter[str]:
    return Counter(choice.audit.site for choice in some)


def _lacks(choice: Choice) -> str:
    """Which evidence of S_category was missing at the chosen pair."""
    scores = choice.audit.scores
    if "closure" not in scores:
        return "-"
    lacking = [name for name in ("closure", "violation") if not scores[name]]
    told = f"no {' and no '.join(lacking)} of this label" if lacking else "evidence on both sides"
    return told + (f"; recovered {scores['recovered']:.1f}" if scores["recovered"] else "")


_MISS_HEAD = """\
| task | mistake: made for right | its steps | chosen | decision; label | scores there / chosen | why |
|---|---|---|---|---|---|---|"""
_POOL = """## {name}

Decisions: {decisions}.
Of {mined} mined tasks {with_known} are held against a run with a known mistake, {policy} against a run of the
policy and {clean} against a longer success of the teacher without a mistake.

**The mistake's step is chosen in {hits} of {with_known} mined tasks, {share}** (the goal is met: {holds}).

| mistake | mined | its step | right step | both | gated | its step | right step | both |
|---|---|---|---|---|---|---|---|---|
{kinds}

All misses among the mined tasks. Steps are the success's and the localization's; scores are S_total and, in
brackets, S_state, S_action and S_category, of the pair at the mistake and of the chosen one:

{miss_head}
{misses}

A gate stopped {gated} tasks with a known mistake. In {near} of them the best candidate was the mistake's
step, and its scores were too low:

| tasks | mistake | the run | gate | label | evidence at the best candidate | pages (an example) |
|---|---|---|---|---|---|---|
{groups}

All misses among those:

{miss_head}
{gated_misses}"""

_PAGE = """# Mining where the mistake is known

    make proof-demo-mining

runs `python -m tests.proofs.demo_mining --run=runs/demo --output=docs/results/demo_mining.md`, which
writes this page, after `make demo`.

**The teacher is simulated.** It solves MiniWoB++ tasks by rule, in real Chromium, and its mistakes are drawn,
so it is known at which step a run went wrong. These figures say that the miner finds such steps in such
runs; the mistakes of real models are more various.

How it is known, without the miner: the draw depends on task, attempt, settings and guidance, and is drawn
again; and the teacher without mistakes is asked again on each recorded state. The first step at which it
would have acted otherwise is the mistake's. Both agree in {agree} of {runs} runs ({tasks} tasks, {steps}
steps), and the teacher with its drawn mistake writes every reply of theirs again, to the letter. {clean}
runs are drawn clean and show no other act; {idle} have a wrong element drawn where there was no other to
take, and show none either. {explained} of {failed} failed runs show a mistake.

| mistake | runs | failed | succeeded all the same |
|---|---|---|---|
{known}

Mined with the demo's settings, labels by rule. A choice is right (*both*) when the localization's step is the
one that holds the mistake (*its step*), and the success's step does what the teacher without mistakes would
have done on that very state (*right step*): for a field that was skipped or a `done` that came too early,
what was left out. Elements are compared by their label, not by index. The goal is {goal} of the mined tasks.

{pools}
"""


if __name__ == "__main__":
    main()
