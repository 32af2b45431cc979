"""Order of the tests, and one cache of compiled programs for all of them."""

import csv
import faulthandler
import gc
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.packaging.wheel import build_wheel, install_apart
from tests.virtual_devices import compile_quickly

_CACHE = "JAX_COMPILATION_CACHE_DIR"
# Programs that no test has read for two weeks are deleted.
_UNUSED_S = 14 * 86_400


def keep_programs() -> None:
    """Test processes, and those they start, compile a program once for all of them and for later runs."""
    if _CACHE in os.environ:  # The processes of one run inherit the folder of the first.
        return
    folder = Path(__file__).parents[1] / ".pytest_cache/d/jax"
    folder.mkdir(parents=True, exist_ok=True)
    for program in folder.iterdir():
        if program.stat().st_atime < time.time() - _UNUSED_S:
            program.unlink(missing_ok=True)
    os.environ |= {_CACHE: str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


# Before any other conftest.py of tests imports jax, which reads the environment then.
compile_quickly()
keep_programs()

# The browser and the MiniWoB++ pages, which tests of several folders use.
pytest_plugins = ("tests.browser.fixtures",)
# Files of a quarter of a minute of processor time and more, browsers and other children included, the longest
# first. The first that compares with torch brings all of `_REFERENCES` along.
_LONG = (
    "test_demo.py",
    "qwen/test_parity.py",
    "hostile/test_site.py",
    "fleet/test_moving.py",
    "experiments/test_online.py",
    "decoding/test_engine.py",
    "viewer/test_browser.py",
    "sft/test_train.py",
    "serve/test_app.py",
    "rl/test_step.py",
    "sft/test_packing_equality.py",
    "experiments/test_interrupts.py",
    "rl/test_rl_train.py",
    "fleet/test_local.py",
    "fleet/test_live_tasks.py",
    "evaluation/test_evaluate.py",
    "viewer/test_readers.py",
    "environments/test_miniwob.py",
    "browser/test_hostile_pages.py",
    "browser/guard/test_documents.py",
    "browser/test_browser_session.py",
    "mining/test_same_bytes.py",
)

# Files that compare with torch, which takes a process eight seconds to import: all of them go to one.
_REFERENCES = frozenset(
    f"tests/{name}"
    for name in (
        "decoding/test_draw.py",
        "experiments/test_export.py",
        "experiments/test_verify.py",
        "qwen/test_checkpoint.py",
        "qwen/test_images.py",
        "qwen/test_parity.py",
        "qwen/test_peft.py",
        "qwen/test_peft_kinds.py",
        "rl/test_advantages.py",
        "rl/test_losses.py",
        "sft/test_peft_parity.py",
        "studies/tiny_base/test_tokenizer.py",
        "training/test_optimizer.py",
    )
)

# The same few examples in every run, on any machine and load; `make fuzz` draws new ones, and many.
# How fast examples are drawn depends on the machine, so it fails no test.
_UNTIMED = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", max_examples=25, derandomize=True, **_UNTIMED)
settings.register_profile("fuzz", max_examples=200, print_blob=True, **_UNTIMED)
settings.load_profile("fixed")


def pytest_configure() -> None:
    """Lets the collector of garbage run less often."""
    # Importing a thousand modules, and tracing a program, allocate so much that every eighth second went into
    # the collector of garbage.
    gc.set_threshold(50_000, 20, 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", metavar="FILE", help="a row per test: file, name, seconds, CPU seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures a test and the fixtures that it starts; CPU is of this process and its ended children."""
    if path := item.config.getoption("--cpu-times"):
        start, before = time.monotonic(), _cpu_seconds()
    result = yield
    if path:
        with open(path, "a") as file:
            row = [item.location[0], item.name, time.monotonic() - start, _cpu_seconds() - before]
            csv.writer(file).writerow(row)
    return result


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives a process whole files, and all of `_REFERENCES` to the same one."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "references" if file in _REFERENCES else file

    return Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Keeps the collector of garbage from going through modules and programs again and again."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files start first, so that no process works on one of them when the others have ended."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names what failed at once, since CI may end a run before its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed ({report.when})", flush=True)


def pytest_sessionfinish() -> None:
    """Ends a process that does not end by itself after its last test, and says where it waits."""
    faulthandler.dump_traceback_later(300, exit=True)


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """Keeps the collector from going through what earlier modules left, such as their compiled programs."""
    # A call of statsmodels, for example, collects all garbage, and took a second among a thousand programs.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def random_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: a few thousand random parameters and the tiny base's tokenizer."""
    from tests.policies import save_random_policy  # Most tests need no model, and no seconds to import one.

    folder = tmp_path_factory.mktemp("policy")
    save_random_policy(folder)
    return folder


@pytest.fixture(scope="session")
def recurrent_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of Qwen3.5's kind, with a layer that has a recurrence."""
    from tests.policies import RECURRENT, save_random_policy

    folder = tmp_path_factory.mktemp("recurrent")
    save_random_policy(folder, **RECURRENT)
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment where the wheel is installed, with the dependencies of this one."""
    return install_apart(wheel, tmp_path_factory.mktemp("installed"))
