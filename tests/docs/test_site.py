"""The documentation site builds without warnings, and README stays short with links that resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import blocks
from tests.proofs.page import OPENINGS, RESULTS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
# Measured anew, with the paragraph that their scripts have.
PENDING = {"ablations"}
MEASURED = [page for page in sorted(RESULTS.glob("*.md")) if page.stem not in {"index", "mutants", *PENDING}]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={folder}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_every_page(site):
    for page in PAGES:
        folder = site if page.stem == "index" else site / page.stem
        assert (folder / "index.html").exists()
    settings = (site / "settings" / "index.html").read_text()
    assert "objective.salvage_weight" in settings and "play.fleet.workers" in settings


def test_the_site_loads_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        loads = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert not loads, f"{page.relative_to(site)} loads {loads}"


def test_readme_is_at_most_700_words():
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text())
    assert len(text.split()) <= 700


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_to_files_resolve(name):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_commands_name_scripts_and_configs_that_exist(page):
    text = page.read_text()
    for module in set(re.findall(r"python -m ((?:experiments|tests|collection|rmsweb_jax)[\w.]*)", text)):
        if module != "experiments.STAGE":
            path = ROOT.joinpath(*module.split("."))
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    for config in set(re.findall(r"--config=(configs/[\w/]+\.py)", text)) - {"configs/FILE.py"}:
        assert (ROOT / config).exists(), config


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.stem)
def test_a_page_of_results_says_first_what_its_baseline_is(page):
    assert any(line.startswith(OPENINGS) for line in page.read_text().splitlines()[:8])


@pytest.mark.slow
def test_every_block_of_code_names_what_exists():
    """Programs, flags, settings, files, imports; `make docs` also runs what needs no key, pod or weights."""
    found = [block for page in blocks.PAGES for block in blocks.blocks(page)]
    (one,) = (block for block in found if "records list" in block.code)
    wrong = [one._replace(code="python -m experiments.recrods list\n")]
    wrong += [one._replace(code=one.code.replace("--data=data ", "--dta=data "))]
    first, second = blocks.problems([*found, *wrong])
    assert "experiments.recrods list: " in first and "'dta'" in second and len(found) > 50
