"""The pages of the widgets: libraries from npm, a page for each, bundled into `build/widgets/dist`."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.loopback import serving

PAGES = Path(__file__).with_name("pages")
BUILD = Path(__file__).parents[2] / "build/widgets"
_HTML = """\
<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>
<link rel=stylesheet href="{name}.css"><body><script src="{name}.js"></script>
"""
_FLAGS = (
    *("--bundle", "--minify", "--jsx=automatic", "--outdir=dist", "--log-level=error"),
    '--define:process.env.NODE_ENV="production"',
    # Some libraries also ask what else a process has.
    '--banner:js=var process = {env: {NODE_ENV: "production"}};',
    *(f"--loader:.{kind}=dataurl" for kind in ("svg", "png", "gif", "woff", "woff2", "ttf", "eot")),
)


def libraries() -> dict[str, str]:
    """Name and version of each library, without what pages are built with."""
    found = json.loads((PAGES / "package.json").read_bytes())["dependencies"]
    helpers = ("esbuild", "react", "react-dom", "vue", "jquery", "dayjs")
    return {name: version for name, version in found.items() if not name.startswith(("@emotion", *helpers))}


def build(names: set[str]) -> Path:
    """Installs the libraries with npm, once, and bundles the pages; returns their folder.

    Raises:
      SystemExit: npm is not installed.
    """
    if shutil.which("npm") is None:
        raise SystemExit("error: this proof needs npm (Debian: apt-get install npm)")
    BUILD.mkdir(parents=True, exist_ok=True)
    package, stamp = (PAGES / "package.json").read_bytes(), BUILD / "installed"
    if not stamp.exists() or stamp.read_bytes() != package:
        (BUILD / "package.json").write_bytes(package)
        subprocess.run(
            ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"), cwd=BUILD, check=True
        )
        stamp.write_bytes(package)
    shutil.copytree(PAGES, BUILD / "pages", dirs_exist_ok=True)
    entries = [f"pages/{path.name}" for path in PAGES.glob("*.js*") if path.stem in names]
    subprocess.run(("node_modules/.bin/esbuild", *entries, *_FLAGS), cwd=BUILD, check=True)
    for name in names:
        (BUILD / f"dist/{name}.html").write_text(_HTML.format(name=name))
        (BUILD / f"dist/{name}.css").touch()
    return BUILD / "dist"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(names: set[str]) -> Iterator[str]:
    """Serves the pages on loopback; yields the address of their folder."""
    with serving(functools.partial(_Handler, directory=str(build(names)))) as address:
        yield f"http://{address}"
