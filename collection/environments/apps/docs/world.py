"""What a seed's documentation is of: an invented library, with its defaults and its history."""

from __future__ import annotations

import re
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

_STARTS = (
    *("al", "bra", "cor", "del", "em", "fi", "gal", "har", "il", "jor", "kel", "lum", "mar", "nor", "or"),
    *("pel", "quil", "ros", "sal", "tor", "ul", "ver", "wil", "zan"),
)
_MIDDLES = ("a", "an", "e", "en", "er", "i", "in", "o", "or", "u", "um", "y")
_ENDS = (
    *("bine", "cast", "dex", "dra", "fold", "gram", "kit", "lith", "mesh", "mox", "nar", "pile", "quent"),
    *("rack", "sift", "stack", "tide", "vane", "weft", "yard"),
)
_VERBS = (
    *("align", "bind", "blend", "chart", "clip", "fold", "graft", "load", "merge", "mint", "pack", "plant"),
    *("probe", "prune", "rank", "route", "scan", "shift", "sift", "split", "stamp", "tally", "trim", "weave"),
)
_KINDS = (
    *("bare", "broken", "coarse", "cyclic", "dense", "frozen", "lazy", "locked", "nested", "open", "paired"),
    *("raw", "remote", "shared", "signed", "sorted", "sparse", "stale", "tiny", "wide"),
)
_THINGS = (
    *("bands", "beads", "cells", "crates", "frames", "grids", "knots", "leaves", "ledgers", "masks", "pages"),
    *("panes", "rings", "ropes", "routes", "rows", "samples", "seeds", "spans", "tags", "threads", "tiles"),
    *("tokens", "veins"),
)
_MODULES = (
    *("audit", "batch", "cache", "codec", "graph", "grid", "layout", "query", "shape", "store", "stream"),
    *("table", "text", "units"),
)
# Name of a parameter -> its type.
_PARAMETERS = {
    **dict.fromkeys(("limit", "depth", "width", "margin", "retries", "window", "stride", "offset"), "int"),
    **dict.fromkeys(("scale", "timeout", "cutoff", "ratio"), "float"),
    **dict.fromkeys(("prefix", "encoding", "order", "fill", "label"), "str"),
    **dict.fromkeys(("strict", "quiet", "copy", "reverse"), "bool"),
}
_SOURCES = ("source", "items", "target", "path", "parts")
_TEXTS = ("'left'", "'utf-8'", "'first'", "'-'", "'auto'", "'name'", "'latin-1'", "'none'", "'#'", "'size'")
_RETURNS = ("list", "dict", "int", "str", "tuple", "bool", "set")
_FAQ = ("Installation questions", "Design questions", "Performance questions")
_ASKED = (
    *("Why does {} return an empty result?", "How do I use {} with {}?", "Is {} safe with {} in threads?"),
    *("Why is {} slow for {}?", "Can I call {} twice on {}?", "What replaces {} for {}?"),
)
RELEASES = ("1.0", "1.1", "1.2", "2.0", "2.1", "2.2", "3.0", "3.1")


def things(draw: Draw) -> str:
    return draw.phrase(_KINDS, _THINGS)


def slug(title: str) -> str:
    """The identifier that Sphinx gives to a heading."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")


def make_world(draw: Draw) -> World:
    name = draw.choice(_STARTS) + draw.choice(_MIDDLES) + draw.choice(_ENDS)
    modules = {
        f"{name}.{module}": {
            "summary": f"{_doing(draw)} and {things(draw)}.",
            "since": draw.choice(RELEASES[:5]),
            "source": f"src/{name}/{draw.choice(_THINGS)}/{module}{draw.randint(2, 99)}.py",
            "deprecated": draw.choice(RELEASES[5:7]) if at in (2, 5) else "",
            "removal": f"4.{draw.randint(0, 9)}" if at in (2, 5) else "",
        }
        for at, module in enumerate(draw.sample(_MODULES, 8))
    }
    errors = _errors(draw, name)
    settings = {
        f"{module.partition('.')[2]}.{parameter}": {
            "type": "int",
            "default": draw.randint(2, 900),
            "since": draw.choice(RELEASES[:7]),
        }
        for module in modules
        for parameter in draw.sample([one for one, kind in _PARAMETERS.items() if kind == "int"], 2)
    }
    proposals = iter(draw.sample(range(11, 400), 40))
    features = iter(draw.distinct(lambda: _doing(draw), 3 * len(RELEASES)))
    return {
        "library": {name: {"title": name.capitalize(), "theme": "classic"}},
        "modules": modules,
        "functions": _functions(draw, name, modules, errors, settings),
        "errors": errors,
        "settings": settings,
        "options": _options(draw, name),
        "chapters": _chapters(draw),
        "terms": {
            term: {"module": draw.choice(list(modules)), "proposal": next(proposals), "text": _doing(draw)}
            for term in draw.distinct(lambda: things(draw).removesuffix("s"), 8)
        },
        "releases": {
            version: {
                "editor": draw.fake.name(),
                "day": draw.day(f"{2012 + at}-02-01", f"{2012 + at}-11-28"),
                "features": [[next(proposals), next(features)] for _ in range(3)],
            }
            for at, version in enumerate(RELEASES)
        },
        "questions": {
            question: {"page": page, "text": f"It depends on the {things(draw)}."}
            for page in _FAQ
            for question in draw.distinct(lambda: _question(draw), 3)
        },
    }


def _doing(draw: Draw) -> str:
    verb = draw.choice(_VERBS)
    stem = verb.removesuffix("e")
    double = stem[-1] if verb in ("clip", "plan", "scan", "split", "stop", "trim") else ""
    return f"{stem}{double}ing {things(draw)}".capitalize()


def _question(draw: Draw) -> str:
    return draw.choice(_ASKED).format(f"{draw.choice(_VERBS)}_{draw.choice(_THINGS)}()", things(draw))


def _errors(draw: Draw, name: str) -> dict[str, dict[str, Any]]:
    """A tree of exceptions: a root, three families, and three exceptions of each."""
    codes = iter(draw.sample(range(1000, 9999), 13))
    names = draw.distinct(lambda: things(draw).title().replace(" ", "").removesuffix("s") + "Error", 12)
    root = f"{name.capitalize()}Error"
    errors = {root: {"base": "Exception", "code": next(codes)}}
    for family in range(3):
        above, *below = names[4 * family : 4 * family + 4]
        errors[above] = {"base": root, "code": next(codes)}
        errors |= {one: {"base": above, "code": next(codes)} for one in below}
    return errors


def _functions(draw: Draw, name: str, modules: Any, errors: Any, settings: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    made = iter(draw.distinct(lambda: f"{draw.choice(_VERBS)}_{things(draw).replace(' ', '_')}", 6 * 8))
    leaves = [
        error
        for error, row in errors.items()
        if row["base"] not in ("Exception", f"{name.capitalize()}Error")
    ]
    for module, row in modules.items():
        own = [key for key in settings if key.startswith(f"{module.partition('.')[2]}.")]
        class_name = things(draw).title().replace(" ", "").removesuffix("s")
        for at in range(6):
            since = draw.randint(RELEASES.index(row["since"]), 5)
            parameters = _parameters(draw)
            later = parameters[-1][0]
            full = f"{module}.{class_name}.{next(made)}" if at > 3 else f"{module}.{next(made)}"
            found[full] = {
                "module": module,
                "class": class_name if at > 3 else "",
                "summary": f"{_doing(draw)}, then returns the {things(draw)}.",
                "parameters": parameters,
                "returns": draw.choice(_RETURNS),
                "error": draw.choice(leaves),
                "event": f"{name}.{draw.choice(_THINGS)}.{draw.choice(_VERBS)}",
                # A default that a setting gives.
                "setting": own[at] if at < 2 else "",
                "since": RELEASES[since],
                "changed": RELEASES[draw.randint(since + 1, 7)],
                "changed_parameter": later,
                "stable": RELEASES[draw.randint(since + 1, 7)] if at in (1, 4) else "",
                "deprecated": RELEASES[draw.randint(since + 1, 7)] if at in (2, 5) else "",
                "replacement": "",
                "see": "",
                "example": f"{full.rpartition('.')[2]}({draw.randint(2, 99)}, {draw.randint(2, 99)})",
                "output": str([draw.randint(2, 99) for _ in range(3)]),
            }
    names = list(found)
    plain = [one for one in names if not found[one]["class"] and not found[one]["deprecated"]]
    # Links from one to the next pass all of them.
    draw.shuffle(plain)
    following = dict(zip(plain, [*plain[1:], plain[0]], strict=True))
    for one, row in found.items():
        row["see"] = following.get(one) or draw.choice(plain)
        if row["deprecated"]:
            row["replacement"] = draw.choice(plain)
    return found


def _parameters(draw: Draw) -> list[list[Any]]:
    """Name, type, default ("" for none), and whether it can be given by its name alone."""
    chosen = draw.sample(list(_PARAMETERS), draw.randint(3, 5))
    alone = draw.randint(1, len(chosen) - 1)
    rows: list[list[Any]] = [[draw.choice(_SOURCES), "object", "", False]]
    for at, name in enumerate(chosen):
        kind = _PARAMETERS[name]
        default = {
            "int": str(draw.randint(2, 900)),
            "float": f"{draw.randint(1, 99) / 20:.2f}",
            "str": draw.choice(_TEXTS),
            "bool": draw.choice(("True", "False")),
        }[kind]
        rows.append([name, kind, default, at >= alone])
    return rows


def _options(draw: Draw, name: str) -> dict[str, dict[str, Any]]:
    names = draw.distinct(lambda: f"--{things(draw).replace(' ', '-')}", 8)
    letters = draw.sample("abcdefgiklmnpqrstuwxyz", 8)
    return {
        option: {
            "short": f"-{letter}",
            "variable": f"{name}{option[1:]}".upper().replace("-", "_"),
            "text": f"{_doing(draw)} first.",
        }
        for option, letter in zip(names, letters, strict=True)
    }


def _chapters(draw: Draw) -> dict[str, dict[str, Any]]:
    titles = draw.distinct(lambda: _doing(draw), 5 * 5)
    return {
        titles[5 * at]: {
            "file": f"chapter{at + 1}",
            "sections": titles[5 * at + 1 : 5 * at + 1 + draw.randint(2, 4)],
            "text": f"This is about {things(draw)}, and about {things(draw)}.",
        }
        for at in range(5)
    }
