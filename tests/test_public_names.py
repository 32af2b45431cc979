"""The public interface: what it names, what it does not load, and that documentation uses nothing else."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("jax", "flax", "torch", "transformers", "selenium", "openai", "google", "httpx", "PIL")
PUBLIC = ("rmsweb_jax", "collection", "collection.apps", "collection.gym")
OURS = ("rmsweb_jax", "collection", "experiments", "configs", "tests")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "docs/examples").rglob("*.py"))


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True)


def test_import_loads_nothing_heavy():
    run(
        "import sys, collection, rmsweb_jax\n"
        f"found = set({HEAVY}) & set(sys.modules)\n"
        "assert not found, found"
    )


@pytest.mark.parametrize("package", PUBLIC)
def test_every_name_resolves_and_is_in_the_table(package):
    module = importlib.import_module(package)
    table = (ROOT / "docs/own.md").read_text().partition("## All public names")[2]
    (rows,) = re.findall(rf"\*\*`{package}`\*\*(.*?)(?=\n\| \*\*|\Z)", table, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE))))
    assert set(module.__all__) - {"__version__"} == named
    for name in named:
        assert name == "World" or inspect.getdoc(getattr(module, name)), f"{package}.{name} has no docstring"
    assert set(dir(module)) >= named
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_modules_without_jax_do_not_import_it():
    run(
        "import sys, collection, rmsweb_jax\n"
        "rmsweb_jax.read_dataset, rmsweb_jax.write_dataset, rmsweb_jax.score_response\n"
        "rmsweb_jax.Task, rmsweb_jax.parse_reply, rmsweb_jax.ImageStore\n"
        "[getattr(collection, name) for name in dir(collection)]\n"
        "assert 'jax' not in sys.modules"
    )


def imported(text: str) -> list[tuple[str, str]]:
    """Modules of ours that a program imports, with the name that it takes of each."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [one for one in found if one[0].partition(".")[0] in OURS]


def test_examples_and_documentation_use_public_names_alone():
    programs = {str(path.relative_to(ROOT)): path.read_text() for path in EXAMPLES}
    for page in DOCUMENTS:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            programs[f"{page.name}, block {number}"] = block
    assert len(programs) > 15
    for name, text in programs.items():
        for module, taken in imported(text):
            public = module in PUBLIC and taken in ("", *importlib.import_module(module).__all__)
            assert public or (module.startswith("configs.") and taken == "get_config"), (
                f"{name} imports {taken} of {module}"
            )
