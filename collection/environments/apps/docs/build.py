"""Writes a world's pages and builds them by Sphinx; run by the Python of its environment: `fill DATA`."""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

_CONFIG = """
project = {title!r}
author = copyright = {title!r}
release = version = "3.1"
html_theme = {theme!r}
html_show_copyright = html_show_sourcelink = html_copy_source = False
add_module_names = True
"""


def heading(title: str, line: str = "=") -> str:
    return f"{title}\n{line * len(title)}\n\n"


def indented(text: str, depth: int = 3) -> str:
    return "".join(f"{' ' * depth}{line}\n" if line else "\n" for line in text.split("\n"))


def table(head: list[str], rows: list[list]) -> str:
    lines = ["* - " + "\n  - ".join(map(str, row)) for row in [head, *rows]]
    return ".. list-table::\n   :header-rows: 1\n\n" + indented("\n".join(lines)) + "\n"


def toctree(files: list[str], caption: str, *options: str) -> str:
    lines = "\n".join([f":caption: {caption}", *options, "", *files])
    return f".. toctree::\n{indented(lines)}\n"


def function(name: str, row: dict, library: str) -> str:
    signature, alone = [], False
    for parameter, _, default, by_name in row["parameters"]:
        if by_name and not alone:
            signature.append("*")
        alone = by_name
        signature.append(f"{parameter}={default}" if default else parameter)
    fields = [f":param {kind} {one}: The {one} of the call." for one, kind, *_ in row["parameters"]]
    parts = [
        f"{row['summary']}",
        "\n".join(
            [
                *fields,
                f":raises {library}.errors.{row['error']}: If an item does not fit.",
                ":returns: What was made.",
                f":rtype: {row['returns']}",
            ]
        ),
        f"Emits the event ``{row['event']}``.",
        f".. versionadded:: {row['since']}",
        f".. versionchanged:: {row['changed']}\n   The parameter *{row['changed_parameter']}* was added.",
    ]
    if row["setting"]:
        parts.append(
            f"The number of workers is taken from the setting ``{row['setting']}``; see :doc:`/settings`."
        )
    if row["stable"]:
        parts.append(f".. note::\n   Part of the stable interface since version {row['stable']}.")
    if row["deprecated"]:
        parts.append(f".. deprecated:: {row['deprecated']}\n   Use :py:func:`{row['replacement']}` instead.")
    parts.append(f"For example:\n\n>>> {row['example']}\n{row['output']}")
    parts.append(f".. seealso::\n   The function :py:func:`{row['see']}`.")
    kind = "method" if row["class"] else "function"
    body = "\n\n".join(parts)
    return f".. py:{kind}:: {name}({', '.join(signature)})\n\n{indented(body)}\n"


def module(name: str, row: dict, functions: dict, library: str) -> str:
    text = heading(f":mod:`{name}` --- {row['summary'].rstrip('.')}")
    text += f".. py:module:: {name}\n   :synopsis: {row['summary']}\n"
    text += "   :deprecated:\n\n" if row["deprecated"] else "\n"
    text += f"**Source code:** ``{row['source']}``\n\n.. versionadded:: {row['since']}\n\n"
    if row["deprecated"]:
        text += f".. deprecated:: {row['deprecated']}\n   It will be removed in version {row['removal']}.\n\n"
    text += heading("Functions", "-")
    own = {key: one for key, one in functions.items() if one["module"] == name}
    text += "".join(
        function(key.rpartition(".")[2], one, library) for key, one in own.items() if not one["class"]
    )
    classes = {one["class"] for one in own.values() if one["class"]}
    for class_name in sorted(classes):
        methods = "".join(
            function(key.rpartition(".")[2], one, library) for key, one in own.items() if one["class"]
        )
        text += heading("Classes", "-")
        text += f".. py:class:: {class_name}\n\n   Holds what the functions return.\n\n{indented(methods)}\n"
    return text


def tree(errors: dict, above: str, depth: int = 0) -> list[str]:
    lines = []
    for name, row in errors.items():
        if row["base"] == above:
            lines += [f"{'|   ' * depth}+-- {name}", *tree(errors, name, depth + 1)]
    return lines


def pages(world: dict) -> dict[str, str]:
    """The text of each page, by its path without a suffix."""
    ((library, about),) = world["library"].items()
    title, found = about["title"], {}
    for chapter, row in world["chapters"].items():
        text = heading(chapter) + f"{row['text']} [#]_\n\n"
        for section in row["sections"]:
            text += heading(section, "-") + f"{section} takes three steps. {row['text']}\n\n"
        found[f"tutorial/{row['file']}"] = text + ".. rubric:: Footnotes\n\n.. [#] Written for version 3.1.\n"
    for name, row in world["modules"].items():
        found[f"api/{name}"] = module(name, row, world["functions"], library)
    errors = world["errors"]
    text = heading("Errors") + "All exceptions are in a tree:\n\n.. code-block:: none\n\n"
    text += indented("\n".join(["Exception", *tree(errors, "Exception")])) + "\n"
    text += heading("Codes", "-")
    text += table(["Code", "Exception"], [[row["code"], name] for name, row in errors.items()])
    text += heading("Exceptions", "-") + f".. py:module:: {library}.errors\n   :synopsis: All exceptions.\n\n"
    for name, row in errors.items():
        text += f".. py:exception:: {name}\n\n   Its code is {row['code']}.\n\n"
    found["errors"] = text
    rows = [
        [f"``{name}``", row["type"], row["default"], row["since"]] for name, row in world["settings"].items()
    ]
    found["settings"] = heading("Settings") + table(["Setting", "Type", "Default", "New in"], rows)
    text = heading("Command line") + f".. program:: {library}\n\n"
    for option, row in world["options"].items():
        body = f"{row['text']} The environment variable :envvar:`{row['variable']}` does the same."
        text += f".. option:: {row['short']} <n>, {option} <n>\n\n   {body}\n\n"
    text += heading("Environment variables", "-")
    for option, row in world["options"].items():
        text += f".. envvar:: {row['variable']}\n\n   See :option:`{option}`.\n\n"
    found["command"] = text
    faq = list(dict.fromkeys(row["page"] for row in world["questions"].values()))
    for at, page in enumerate(faq):
        asked = [(one, row) for one, row in world["questions"].items() if row["page"] == page]
        found[f"faq/questions{at + 1}"] = heading(page) + "".join(
            heading(one, "-") + f"{row['text']}\n\n" for one, row in asked
        )
    for version, row in world["releases"].items():
        text = heading(f"What's new in {title} {version}")
        text += f":Editor: {row['editor']}\n:Released: {row['day']}\n\n"
        for number, feature in row["features"]:
            text += heading(f"Proposal {number}: {feature}", "-") + f"{feature} is easier now.\n\n"
        new = [f"* :py:func:`{key}`" for key, one in world["functions"].items() if one["since"] == version]
        text += heading("New functions", "-") + ("\n".join(new) or "There are none.") + "\n"
        found[f"releases/{version}"] = text
    text = heading("Glossary") + ".. glossary::\n   :sorted:\n\n"
    for term, row in world["terms"].items():
        text += f"   {term}\n      {row['text']} of :py:mod:`{row['module']}`; see proposal "
        text += f"{row['proposal']}.\n\n"
    found["glossary"] = text
    groups = {
        part: [path for path in found if path.startswith(f"{part}/")] for part in ("tutorial", "api", "faq")
    }
    text = heading(f"{title} documentation") + f"{title} is a library for everyday work.\n\n"
    text += toctree(groups["tutorial"], "Tutorial", ":numbered:")
    text += toctree(groups["api"], "Modules", ":maxdepth: 1")
    text += toctree(["errors", "settings", "command", "glossary"], "Reference", ":maxdepth: 1")
    text += toctree(groups["faq"], "Questions", ":maxdepth: 1")
    text += toctree([f"releases/{one}" for one in world["releases"]], "Releases", ":maxdepth: 1")
    text += "* :ref:`genindex`\n* :ref:`modindex`\n* :ref:`search`\n"
    return {**found, "index": text}


def fill(data: pathlib.Path) -> None:
    from sphinx.application import Sphinx

    world = json.loads((data / "world.json").read_text(encoding="utf-8"))
    world = {table: dict(rows) for table, rows in world.items()}
    ((_, about),) = world["library"].items()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        (source / "conf.py").write_text(_CONFIG.format(**about), encoding="utf-8")
        for path, text in pages(world).items():
            (source / path).parent.mkdir(exist_ok=True)
            (source / f"{path}.rst").write_text(text, encoding="utf-8")
        out = data / "html"
        # A page that refers to nothing is a fault of ours.
        Sphinx(source, source, out, source / "doctrees", "html", status=None, warningiserror=True).build()
    (out / ".buildinfo").unlink()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(pathlib.Path(sys.argv[2]))
