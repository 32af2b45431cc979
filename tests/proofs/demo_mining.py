"""The miner on the demo's own runs, whose mistakes are known: it should choose their steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from collection.llm.scripted.mistakes import KINDS
from collection.mining.divergence import KEPT, MiningConfig
from tests.mining.demo_choices import Choice, Known, Measured, read_teacher
from tests.mining.demo_choices import measure as measure_pool
from tests.mining.demo_mistakes import Acts
from tests.proofs.result import Claim, Figures, Proof, demo_run, filled, main, table

PRECISION, RECALL, RECALL_WRONG_INDEX = 0.80, 0.85, 0.80
POOLS = {"The teacher's runs": ("collect",), "The teacher's and the policy's": ("collect", "collect_policy")}
_PARTS = ("state", "action", "category")
_GATES = MiningConfig()
_WEIGHTS = dict(zip(_PARTS, (_GATES.state_weight, _GATES.action_weight, _GATES.category_weight), strict=True))


def measure() -> Figures:
    run = demo_run()
    known = read_teacher(run / "collect")
    return figures_of(known, [measure_pool(name, run, folders, known) for name, folders in POOLS.items()])


def figures_of(known: Known, measured: Sequence[Measured]) -> Figures:
    """Figures of the teacher's mistakes and of each pool."""
    runs = list(known.values())
    failed = [reading for run, reading in runs if not run.success]
    return {
        "tasks": len({run.task.task_id for run, _ in runs}),
        "runs": len(runs),
        "steps": sum(len(run.steps) for run, _ in runs),
        "agree": sum(reading.agrees for _, reading in runs),
        "clean": sum(reading.drawn is None for _, reading in runs),
        "idle": sum(reading.drawn is not None and reading.found is None for _, reading in runs),
        "failed": len(failed),
        "explained": sum(reading.found is not None for reading in failed),
        "mistakes": {kind: _outcomes(kind, known) for kind in KINDS},
        "pools": [_pool(one) for one in measured],
    }


def _outcomes(kind: str, known: Known) -> dict[str, int]:
    runs = [run for run, reading in known.values() if reading.found and reading.found.kind == kind]
    failed = sum(not run.success for run in runs)
    return {"runs": len(runs), "failed": failed, "succeeded": len(runs) - failed}


def _pool(one: Measured) -> dict[str, Any]:
    gated = [choice for choice in one.choices if not choice.kept]
    return {
        "name": one.name,
        "decisions": dict(one.decisions.most_common()),
        "with_known_mistake": len(one.mined),
        "by_policy": one.by_policy,
        "by_clean": one.by_clean,
        "hits": sum(choice.hit for choice in one.mined),
        "recall": one.recall,
        "kinds": {kind: _hits(kind, one.choices) for kind in KINDS},
        "misses": [_miss(choice) for choice in one.mined if not choice.hit],
        "gated_hits": sum(choice.hit for choice in gated),
        "gated": _groups(gated),
        "gated_misses": [_miss(choice) for choice in gated if not choice.hit],
    }


def _hits(kind: str, choices: Sequence[Choice]) -> dict[str, list[int]]:
    """Tasks, and those with the mistake's step, the right step and both; of mined and of gated tasks."""
    counts = {}
    for group, kept in (("mined", True), ("gated", False)):
        some = [choice for choice in choices if choice.kept == kept and choice.mistake.kind == kind]
        hits = [sum(getattr(choice, name) for choice in some) for name in ("at_mistake", "at_remedy", "hit")]
        counts[group] = [len(some), *hits]
    return counts


def _miss(choice: Choice) -> dict[str, str]:
    """A wrong choice: steps and scores of the pair at the mistake and of the chosen pair."""
    audit, mistake = choice.audit, choice.mistake
    return {
        "task": audit.task_id,
        "mistake": f"{mistake.kind}, step {mistake.step}: {_words(mistake.made)} for {_words(mistake.right)}",
        "its_steps": f"{choice.right_at or '-'}, {mistake.step}",
        "chosen": f"{audit.success_step}, {audit.localization_step}",
        "decision": f"{audit.decision}; {audit.category} {audit.label_confidence:.2f}",
        "scores": f"{_scores(choice.there)} / {_scores(audit.scores)}",
        "reason": _reason(choice),
    }


def _words(acts: Acts) -> str:
    names = [name.split("_")[0] + (f" {target}" if target else "") for name, target, _ in acts]
    return f"`{', '.join(names)}`"


def _scores(scores: dict[str, float]) -> str:
    if not scores:
        return "-"
    parts = " ".join(f"{name[0]}{scores[name]:.2f}" for name in _PARTS)
    return f"{scores['total']:.3f} ({parts})"


def _reason(choice: Choice) -> str:
    """The reason that the pair at the mistake was not chosen."""
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
        for name in ("closure", "violation", "taken", "reached", "apart")
        if abs(there[name] - chosen[name]) > 1e-6
    ]
    note = f": {', '.join(detail)}" if best == "category" and detail else ""
    return f"S_{best} is higher, by {leads[best]:.3f} of the total{note}"


def _groups(gated: Sequence[Choice]) -> list[dict[str, Any]]:
    """Rejected tasks with a known mistake, grouped by what the gate's score lacked."""
    groups: defaultdict[tuple[str, ...], list[Choice]] = defaultdict(list)
    for choice in gated:
        ended = "succeeded later" if choice.localization.success else "failed"
        key = (choice.mistake.kind, ended, choice.audit.decision, choice.audit.category, _lacks(choice))
        groups[key].append(choice)
    return [
        {
            "tasks": len(some),
            **dict(zip(("mistake", "run", "gate", "label", "evidence"), key, strict=True)),
            "pages": sorted({choice.audit.site for choice in some}),
            "example": some[0].audit.task_id,
        }
        for key, some in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _lacks(choice: Choice) -> str:
    """Evidence of S_category that the chosen pair lacks."""
    scores = choice.audit.scores
    if "closure" not in scores:
        return "-"
    lacking = [name for name in ("closure", "violation") if not scores[name]]
    missing = f"no {' and no '.join(lacking)} of this label" if lacking else "evidence on both sides"
    contained = [name for name in ("taken", "reached", "apart") if scores[name]]
    return "; ".join([missing, *contained])


# --- Page ---


def claims(figures: Figures) -> list[Claim]:
    agree, runs = figures["agree"], figures["runs"]
    found = [Claim("each run's mistake, or its absence, is known", f"{agree} of {runs} runs", agree == runs)]
    for pool in figures["pools"]:
        hits, mined = pool["hits"], pool["with_known_mistake"]
        recall = pool["recall"]
        tasks, right = (sum(counts[at] for counts in recall.values()) for at in (0, 1))
        name = pool["name"]
        wrong_index = recall["wrong_index"]
        shares = {
            f"at least {RECALL:.0%} of the tasks with a known mistake are mined": (right, tasks, RECALL),
            f"at least {RECALL_WRONG_INDEX:.0%} of those with a wrong element": (
                *wrong_index[::-1],
                RECALL_WRONG_INDEX,
            ),
            f"at least {PRECISION:.0%} of the mined tasks choose the mistake": (hits, mined, PRECISION),
        }
        found += [_share(f"{name}: {claim}", *counts) for claim, counts in shares.items()]
    return found


def _share(claim: str, part: int, whole: int, least: float) -> Claim:
    return Claim(claim, f"{part} of {whole}, {part / max(whole, 1):.1%}", part >= least * whole)


def tables(figures: Figures) -> str:
    rows = [(kind, *counts.values()) for kind, counts in figures["mistakes"].items()]
    parts = [table(("mistake", "runs", "failed", "succeeded nevertheless"), rows)]
    return "\n\n".join([*parts, filled(_READING), *map(_pool_part, figures["pools"])])


def _pool_part(pool: Mapping[str, Any]) -> str:
    decisions = ", ".join(f"{name} {count}" for name, count in pool["decisions"].items())
    gated = sum(group["tasks"] for group in pool["gated"])
    kinds = [(kind, *counts["mined"], *counts["gated"]) for kind, counts in pool["kinds"].items()]
    recall = [(kind, *counts) for kind, counts in pool["recall"].items()]
    groups = [
        (
            *(group[name] for name in ("tasks", "mistake", "run", "gate", "label", "evidence")),
            f"{', '.join(group['pages'])} ({group['example']})",
        )
        for group in pool["gated"]
    ]
    counted = ("its step", "right step", "both")
    heads = ("tasks", "mistake", "run", "gate", "label", "evidence at the best candidate", "pages (example)")
    parts = [
        f"## {pool['name']}",
        filled(
            f"Decisions: {decisions}. Of {pool['decisions'].get(KEPT, 0)} mined tasks, "
            f"{pool['with_known_mistake']} are compared with a run with a known mistake, {pool['by_policy']} "
            f"with a run of the policy and {pool['by_clean']} with a longer success of the teacher without a "
            "mistake."
        ),
        "Tasks with a success and a failed run with a known mistake, and those mined right:",
        table(("mistake", "tasks", "mined right"), recall),
        table(("mistake", "mined", *counted, "gated", *counted), kinds),
        "Misses among the mined tasks:",
        _misses(pool["misses"]),
        filled(
            f"A gate rejected {gated} tasks with a known mistake. In {pool['gated_hits']} of them the best "
            "candidate was the mistake's step, and its scores were too low."
        ),
        table(heads, groups) if groups else "None.",
        "Misses among those:",
        _misses(pool["gated_misses"]),
    ]
    return "\n\n".join(parts)


def _misses(misses: Sequence[Mapping[str, str]]) -> str:
    head = ("task", "mistake: made for right", "its steps", "chosen", "decision; label", "scores", "reason")
    return table(head, [tuple(miss.values()) for miss in misses]) if misses else "None."


_READING = """\
Mining has the demo's settings and labels by rule. A choice is right (*both*) if the localization step is the
mistake or a later step (*its step*) and the success step does what the teacher without mistakes would have
done in that state (*right step*): for a skipped field or an early `done`, the omitted action. The success
step alone is the prompt. Elements are compared by label, not by index. In the tables of misses, steps are
those of the success and of the localization run; scores are S_total and, in brackets, S_state, S_action and
S_category, of the pair at the mistake / of the chosen pair.
"""
ABOUT = """\
**The teacher is simulated.** It solves MiniWoB++ tasks by rule in real Chromium, and its mistakes are drawn,
so the step at which a run went wrong is known. The figures show that the miner finds such steps in such runs;
mistakes of real models are more varied.

The mistakes are known without the miner. The draw depends on task, attempt, settings and guidance and is
repeated; and the teacher without mistakes answers again in each recorded state. The mistake is the first step
at which it would have acted differently. Both agree in {agree} of {runs} runs ({tasks} tasks, {steps} steps),
and the teacher with its drawn mistake repeats all replies exactly. {clean} runs are drawn without a mistake
and show none; {idle} draw a wrong element where the page has no other, and show none either. {explained} of
{failed} failed runs show a mistake.
"""
PROOF = Proof("Mining with known mistakes", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
