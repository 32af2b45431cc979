"""The documentation site builds without warnings, and README stays short with links that resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


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
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_to_files_resolve(name):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_commands_name_scripts_and_configs_that_exist(page):
    text = page.read_text()
    for module in set(re.findall(r"python -m ((?:experiments|tests|collection|rmsweb_jax)[\w.]*)", text)):
        if module != "experiments.NAME":
            path = ROOT.joinpath(*module.split("."))
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    for config in set(re.findall(r"--config=(configs/[\w/]+\.py)", text)) - {"configs/FILE.py"}:
        assert (ROOT / config).exists(), config
