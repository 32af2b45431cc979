"""The rules of the house: which way imports go, and that no setting is dead."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

ROOT = Path(__file__).parent.parent
PACKAGES = ("rmsweb_jax", "collection", "experiments", "configs")
# What both sides share; the browser fleet's machines have no jax.
CONTRACT = tuple(f"rmsweb_jax.{name}" for name in ("actions", "records", "errors", "processes", "progress"))
ACCELERATOR = ("jax", "jaxlib", "flax", "optax", "orbax", "grain")


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Absolute names of all modules (and names in them) that a file imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def test_collection_uses_only_the_contract_of_the_accelerator_side():
    for path in sources("collection"):
        for name in imports(path):
            assert not within(name, ("experiments", "configs", *ACCELERATOR)), f"{path} imports {name}"
            if within(name, ("rmsweb_jax",)) and name != "rmsweb_jax":
                assert within(name, CONTRACT), f"{path} imports {name}"


def test_contract_is_free_of_jax():
    for path in sources("rmsweb_jax"):
        if within(module_name(path), CONTRACT):
            for name in imports(path):
                assert not within(name, ACCELERATOR), f"{path} imports {name}"


def test_library_does_not_import_scripts():
    for path in sources("rmsweb_jax"):
        for name in imports(path):
            assert not within(name, ("collection", "experiments", "configs")), f"{path} imports {name}"


def test_no_import_circles():
    modules = {module_name(path): path for package in PACKAGES for path in sources(package)}
    graph = {
        name: {target for target in imports(path) if target in modules and target != name}
        for name, path in modules.items()
    }
    state: dict[str, str] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != "open", " -> ".join([*trail, name])
        if name in state:
            return
        state[name] = "open"
        for target in sorted(graph[name]):
            visit(target, (*trail, name))
        state[name] = "closed"

    for name in graph:
        visit(name, ())


def test_no_module_of_collection_loads_jax():
    names = [module_name(path) for path in sources("collection")]
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'jax' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def leaves(config: ConfigDict, prefix: str = "") -> set[str]:
    names = set()
    for key, value in config.items():
        names |= leaves(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else {prefix + key}
    return names


def names_read() -> set[str]:
    """Attribute and field names in the code: what a config key can be read through."""
    read = set()
    for package in ("rmsweb_jax", "collection", "experiments"):
        for path in sources(package):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    read.add(node.attr)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    read.add(node.target.id)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    read.add(node.value)
    return read


CONFIGS = [path for path in sources("configs") if path.stem != "__init__"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_key_is_read(path):
    module = importlib.import_module(f"configs.{path.stem}")
    read = names_read()
    for variant in module.VARIANTS:
        for key in leaves(module.get_config(variant)):
            assert key.rsplit(".", 1)[-1] in read, f"{path.name}:{variant}: nothing reads {key}"
