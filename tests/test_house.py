"""The rules of the house: import direction, no unused setting, no private words."""

import ast
import dataclasses
import functools
import importlib.metadata
import re
import subprocess
import sys
import tokenize
import tomllib
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict
from pydantic import create_model

from collection.config import (
    BenchmarkFiles,
    BuildSftSettings,
    ExportTracesSettings,
    ImportSettings,
    MakeTasksSettings,
    ReportSettings,
)
from collection.evaluation.benchmarks import ROWS
from collection.evaluation.config import BENCHMARKS, MiniwobSettings
from collection.fleet.config import CollectSettings
from collection.judges.config import JudgeDataSettings, OfficialSettings
from collection.mining.config import FailurePriorSettings, MineSettings, VerifySettings
from experiments.benchmark_settings import BenchmarkConfig
from experiments.online_settings import OnlineSettings, TrainedActor
from experiments.studies.tiny_base.settings import BaseConfig
from experiments.usage import meanings
from rmsweb_jax.errors import UserError
from rmsweb_jax.export.config import ExportSettings
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.serve.config import ServeSettings
from rmsweb_jax.settings import Settings, from_config, key_names, to_config_dict
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.training.config import MeshConfig
from rmsweb_jax.training.mesh import AXES

ROOT = Path(__file__).parent.parent
PACKAGES = ("rmsweb_jax", "collection", "experiments", "configs")
# What both sides share; the browser fleet's machines have no jax.
CONTRACT = tuple(
    f"rmsweb_jax.{name}"
    for name in (
        *(
            "actions",
            "records",
            "errors",
            "own",
            "processes",
            "progress",
            "settings",
            "signals",
            "storage",
            "workdir",
        ),
    )
)
ABOVE_TRAINING = tuple(
    f"rmsweb_jax.{name}" for name in ("qwen", "decoding", "data", "sft", "rl", "serve", "export", "aot")
)
ACCELERATOR = ("jax", "jaxlib", "flax", "optax", "orbax", "grain")


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports(path: Path) -> set[str]:
    """Absolute names of all modules (and names in them) that a file imports, wherever it does so."""
    found = set()
    for node in nodes_of(path):
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


def test_contract_needs_no_package_of_one_side():
    def packages(lines: list[str]) -> set[str]:
        return {re.split(r"[^\w.-]", line.lower())[0].replace("_", "-") for line in lines}

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    given = packages(project["dependencies"]) | packages(extras["collect"]) & packages(extras["train"])
    modules = {
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if given & packages(names)
    }
    # Comes with pydantic.
    modules |= {*sys.stdlib_module_names, "rmsweb_jax", "pydantic_core"}
    for path in sources("rmsweb_jax"):
        # The export as Parquet has an extra of its own.
        if within(module_name(path), CONTRACT) and path.name != "parquet.py":
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Import):
                    assert {alias.name.partition(".")[0] for alias in node.names} <= modules, path
                elif isinstance(node, ast.ImportFrom):
                    assert str(node.module).partition(".")[0] in modules, f"{path} imports {node.module}"


def test_library_does_not_import_scripts():
    for path in sources("rmsweb_jax"):
        for name in imports(path):
            assert not within(name, ("collection", "experiments", "configs")), f"{path} imports {name}"


def test_training_knows_no_model_and_no_stage():
    """The model imports the mesh, so nothing below `training` may import the model or what is built on it."""
    for path in sources("rmsweb_jax/training"):
        for name in imports(path):
            assert not within(name, ABOVE_TRAINING), f"{path} imports {name}"


def test_only_its_script_imports_the_ahead_of_time_compiler():
    allowed = ("experiments.compile_tpu", "rmsweb_jax.aot")
    for package in PACKAGES:
        for path in sources(package):
            if not within(module_name(path), allowed):
                assert not any(within(name, ("rmsweb_jax.aot",)) for name in imports(path)), (
                    f"{path} imports aot"
                )


def test_library_neither_starts_scripts_nor_reads_configs_by_path():
    """A message may name the next command; a string that is nothing but such a name is used as one."""
    name = re.compile(r"(--\w+=)?(experiments\.[\w.]+|configs/\S*)")
    for path in (*sources("rmsweb_jax"), *sources("collection")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not name.fullmatch(node.value), f"{path}:{node.lineno}: {node.value}"


def test_settings_become_paths_by_the_storage_alone():
    """`Path("gs://b/x")` is a local folder named `gs:`."""
    for path in (path for package in PACKAGES for path in sources(package)):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Path", "pathlib.Path"):
                given = " ".join(map(ast.unparse, node.args))
                assert not re.search(r"\b_?(config|settings)\b|\.value\b", given), f"{path}:{node.lineno}"


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


# They need openenv, which takes half a gigabyte, and verifiers.
OPTIONAL = ("collection.gym.openenv_server", "collection.gym.verifiers_tasks")


def test_no_module_of_collection_loads_jax():
    names = [name for path in sources("collection") if (name := module_name(path)) not in OPTIONAL]
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'jax' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


# The settings of each config file. Those of an evaluation depend on its benchmark.
SETTINGS: dict[str, Callable[[str], type]] = {
    "benchmark": lambda variant: BenchmarkConfig,
    "build_sft": lambda variant: BuildSftSettings,
    "collect": lambda variant: CollectSettings,
    "evaluate": lambda variant: BENCHMARKS.get(variant.rpartition(",")[2], MiniwobSettings),
    "export": lambda variant: ExportSettings,
    "export_traces": lambda variant: ExportTracesSettings,
    "failure_prior": lambda variant: FailurePriorSettings,
    "import_runs": lambda variant: ImportSettings,
    "judge": lambda variant: JudgeDataSettings,
    "make_tasks": lambda variant: MakeTasksSettings,
    "mine": lambda variant: MineSettings,
    "report": lambda variant: ReportSettings,
    "rl": lambda variant: OnlineSettings if "online" in variant else RlConfig,
    "serve": lambda variant: ServeSettings,
    "sft": lambda variant: SftConfig,
    "studies.tiny_base": lambda variant: BaseConfig,
    "verify_mined": lambda variant: VerifySettings,
}
VARIANTS = [
    (name, variant) for name in SETTINGS for variant in importlib.import_module(f"configs.{name}").VARIANTS
]


def test_every_config_file_is_checked():
    names = {module_name(path).removeprefix("configs.") for path in sources("configs")}
    assert names - {"configs", "studies"} == SETTINGS.keys()


# Read by a loop over their fields.
LOOPED = (BenchmarkFiles, OfficialSettings, MeshConfig, TrainedActor)


def make_config(name: str, variant: str) -> ConfigDict:
    return importlib.import_module(f"configs.{name}").get_config(variant)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_config_holds_the_keys_of_its_class_and_no_others(name, variant):
    settings, config = SETTINGS[name](variant), make_config(name, variant)
    given = config.copy_and_resolve_references()
    for key, field in settings.model_fields.items():
        if field.description and not given[key]:
            given[key] = "given:name"
    if settings is OnlineSettings:
        given.pages = ("click-button",)
    assert to_config_dict(from_config(settings, given)).to_dict() == given.to_dict()
    config.rubric, config.headers = 1, 2
    with pytest.raises(UserError, match=r"unknown setting config\.(rubric|headers)"):
        from_config(settings, config)


def sections(settings: type) -> set[type]:
    """A class of settings and those of its sections."""
    found = {settings}
    for hint in typing.get_type_hints(settings).values():
        for one in (hint, *typing.get_args(hint)):
            if isinstance(one, type) and issubclass(one, Settings):
                found |= sections(one)
    return found


@dataclasses.dataclass(frozen=True)
class Module:
    """Names used or defined in a module, its imports from its own folder, and attributes it reads."""

    name: str
    names: set[str]
    imports: set[str]
    reads: set[str]


@functools.cache
def modules() -> list[Module]:
    found = []
    for path in (path for package in PACKAGES[:3] for path in sources(package)):
        nodes, folder = nodes_of(path), module_name(path).rpartition(".")[0]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        reads = {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_read(node)}
        own = {name for name in imports(path) if name.startswith(f"{folder}.")}
        found.append(Module(module_name(path), names, own, reads))
    return found


def is_read(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


@functools.cache
def readers(classes: frozenset[str]) -> list[Module]:
    """Modules that name one of the classes, or import such a module of their own folder."""
    using = [module for module in modules() if module.names & classes]
    named = {module.name for module in using}
    return using + [module for module in modules() if module.imports & named]


def unread_keys(settings: type) -> list[str]:
    """Keys that no module reads that uses the class which states them, one below it, or one that holds it."""
    everything = sections(settings)
    unread = []
    for section in everything - set(LOOPED):
        bases = {base for one in everything for base in one.__mro__ if issubclass(base, Settings)}
        kinds = set(section.__mro__)
        holders = {one.__name__ for one in bases - {section} if kinds & (sections(one) - {one})}
        for name in {key.partition(".")[0] for key in key_names(section)}:
            stating = [one for one in section.__mro__ if name in vars(one).get("__annotations__", {})]
            using = {one.__name__ for top in stating for one in (top, *below(top))} | holders
            if not any(name in module.reads for module in readers(frozenset(using))):
                unread.append(f"{section.__name__}.{name}")
    return sorted(unread)


def below(settings: type) -> set[type]:
    direct = set(settings.__subclasses__())
    return direct.union(*map(below, direct))


def test_every_setting_is_read():
    for settings in {SETTINGS[name](variant) for name, variant in VARIANTS}:
        assert not unread_keys(settings), settings
    assert BenchmarkFiles.model_fields.keys() == ROWS.keys()
    assert tuple(MeshConfig.model_fields) == AXES


def test_every_key_has_a_meaning():
    """`--help` and the documentation print it."""
    for settings in {SETTINGS[name](variant) for name, variant in VARIANTS if not name.startswith("studies")}:
        for section in sections(settings):
            names = key_names(section)
            missing = [name for name in names if "." not in name and name not in meanings(section)]
            assert not missing, f"{section.__name__}: {missing}"


def test_a_setting_that_nothing_reads_is_found():
    dead: Any = {"rubric": (int, 1), "headers": (int, 2)}
    settings = create_model("CollectSettings", __base__=CollectSettings, **dead)
    assert unread_keys(settings) == ["CollectSettings.headers", "CollectSettings.rubric"]


# Private names of earlier versions. Ordinary English stays allowed: plots are drawn, an excerpt has room in
# its line, and a shop has an `Order`.
OLD_CLASSES = {
    *("Lanes", "Rooms", "Room", "Line", "Ticket", "Kind", "Front", "Policies", "Asked", "Answers", "Drawing"),
    *("Place", "Station", "Wear", "Kept", "Played", "Board", "Look", "Contrast", "Teacher"),
    "Dialect",
}
OLD_NAMES = {
    *("refill", "surplus", "settled_prompts", "dialects", "told_wait", "blackout", "stayed", "told", "mend"),
    *("whoever", "nobody", "dialect", "expansion"),
}
OLD_PARAMETERS = {"room"}
OLD_MODULES = {
    *("refill", "dialects", "tally", "station", "lanes", "rooms", "making", "importing", "told_wait")
}


def checked() -> list[Path]:
    return [path for package in (*PACKAGES, "tests") for path in sources(package) if path != Path(__file__)]


def definitions(path: Path) -> Iterator[tuple[set[str], str]]:
    """Names that a file defines, each with the list that forbids it."""
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef):
            yield OLD_CLASSES, node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield OLD_NAMES, node.name
        elif isinstance(node, ast.arg):
            yield OLD_NAMES | OLD_PARAMETERS, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield OLD_NAMES, node.id if isinstance(node, ast.Name) else node.attr


def test_replaced_names_do_not_return():
    found = []
    for path in checked():
        if path.stem in OLD_MODULES:
            found.append(str(path))
        found += [f"{path}: {name}" for old, name in definitions(path) if name in old]
    assert not found


PRIVATE_WORDS = re.compile(r"\b(told|tells|besides?|nobody|whoever|mend(s|ed)?)\b", re.IGNORECASE)
# Texts of generated pages and requests, recorded figures, and sentences that a test gives to a model.
ALLOWED = ("unless told otherwise", "tells repaired replies from others")  # A prompt's text; plain English.
DATA = (
    "tests/mining/cases",
    "tests/environments",
    "tests/hostile/network.py",
    "tests/rl",
)


def test_prose_has_the_fields_words():
    """Docstrings and comments of the product and documentation pages."""
    found = []
    for path in checked():
        name = str(path.relative_to(ROOT))
        if not name.startswith(DATA):
            found += [f"{name}: {text}" for text in prose(path) if is_private(text)]
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        found += [f"{page.name}: {line}" for line in page.read_text().splitlines() if is_private(line)]
    assert not found


def is_private(text: str) -> bool:
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    return PRIVATE_WORDS.search(text) is not None


def prose(path: Path) -> Iterator[str]:
    with tokenize.open(path) as file:
        yield from (
            token.string
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
        )
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
