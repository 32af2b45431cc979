"""The public interface of both packages: what it names, and what it does not load."""

import importlib
import inspect
import subprocess
import sys

import pytest

HEAVY = ("jax", "flax", "torch", "transformers", "selenium", "openai", "google", "httpx", "PIL")
NAMES = {
    "rmsweb_jax": {
        *("Policy", "Processor", "load_model", "merge_adapters", "read_dataset", "score_response"),
        *("train_rl", "train_sft", "__version__"),
    },
    "collection": {"Browser", "EpisodeRunner", "collect", "evaluate", "mine"},
}


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("package", NAMES)
def test_import_loads_nothing_heavy(package):
    run(f"import sys, {package}; found = set({HEAVY}) & set(sys.modules); assert not found, found")


@pytest.mark.parametrize("package", NAMES)
def test_every_name_is_listed_resolves_and_is_described(package):
    module = importlib.import_module(package)
    assert set(dir(module)) == set(module.__all__) == NAMES[package]
    for name in NAMES[package] - {"__version__"}:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} has no docstring"
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    assert not hasattr(module, "nothing")


def test_modules_without_jax_do_not_import_it():
    run(
        "import sys, collection, rmsweb_jax\n"
        "rmsweb_jax.read_dataset, rmsweb_jax.score_response\n"
        "[getattr(collection, name) for name in dir(collection)]\n"
        "assert 'jax' not in sys.modules"
    )
