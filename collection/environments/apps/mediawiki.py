"""MediaWiki 1.39 on PHP's own web server and SQLite, all from Debian's packages."""

from __future__ import annotations

import pathlib
import re
import urllib.parse
from typing import Any

import orjson

from collection.environments.apps.application import Application, digest, run_quietly
from collection.environments.apps.articles import ARTICLES, USERS
from collection.environments.apps.debian import unpack
from collection.environments.apps.server import ServerCommand, ServerProcess, get
from rmsweb_jax.errors import UserError

PACKAGES = (
    *("mediawiki", "mediawiki-classes"),
    *(f"php8.2-{part}" for part in ("cli", "common", "sqlite3", "mbstring", "xml", "intl")),
    # What PHP is linked with and a small system may lack.
    *("libxml2", "libicu72", "libonig5", "libsodium23", "libargon2-1", "libpcre2-8-0", "libsqlite3-0"),
)
_EXTENSIONS = (
    *("ctype", "dom", "fileinfo", "iconv", "intl", "mbstring", "pdo", "pdo_sqlite", "posix", "simplexml"),
    *("sqlite3", "tokenizer", "xml", "xmlreader", "xmlwriter"),
)
WORKERS = 4
_KEEPER = "Keeper"
_DATA = re.compile(r"^\$wgSQLiteDataDir = .*;$", re.MULTILINE)
# Nothing runs behind a visitor's back, and nothing is sent anywhere.
_SETTINGS = """
$wgJobRunRate = 0;
$wgEnableEmail = false;
$wgUseImageMagick = false;
$wgDiff3 = '';
$wgCacheDirectory = '{cache}';
$wgMainCacheType = CACHE_DB;
$wgMessageCacheType = CACHE_DB;
$wgParserCacheType = CACHE_NONE;
$wgInvalidateCacheOnLocalSettingsChange = false;
"""


class MediaWiki(Application):
    """http://wiki.test/: the articles of `articles.ARTICLES`, accounts for `articles.USERS`.

    A reset sets pages, accounts, sessions and caches back.
    """

    name = "wiki"
    host = "wiki.test"
    version = digest(PACKAGES, ARTICLES, USERS, _SETTINGS)

    def page(self, title: str) -> dict[str, Any] | None:
        """Current `content`, `user` and `comment` of a page, by the wiki's own API; None: there is none."""
        revision = {"prop": "revisions", "rvprop": "content|user|comment", "rvslots": "main"}
        page = self._query(revision | {"titles": title})["pages"][0]
        if "revisions" not in page:
            return None
        newest = page["revisions"][0]
        return {
            "content": newest["slots"]["main"]["content"],
            "user": newest["user"],
            "comment": newest["comment"],
        }

    def _query(self, parameters: dict[str, str]) -> dict[str, Any]:
        asked = {"action": "query", "format": "json", "formatversion": "2"} | parameters
        status, body = get(self.address, self.host, f"/api.php?{urllib.parse.urlencode(asked)}")
        if status != 200:
            raise UserError(f"{self.url}/api.php answered {status}; see {self.live / 'log'}")
        return orjson.loads(body)["query"]

    def _make(self) -> None:
        unpack(PACKAGES, self.folder)
        site = self._site
        for link in ("extensions", "config", "images", "LocalSettings.php"):
            (site / link).unlink()  # To where the packages would be installed.
        (site / "images").mkdir()
        modules = next((self.folder / "usr/lib/php").glob("2*"))
        lines = [f"extension_dir={modules}", *(f"extension={name}" for name in _EXTENSIONS)]
        (self.folder / "php.ini").write_text("\n".join(lines) + "\n")
        self._install()

    def _install(self) -> None:
        """Database, accounts and articles."""
        cache = self.folder / "cache"
        cache.mkdir()
        site = ["--server", self.url, "--scriptpath", "", "--skins", "Vector", "--confpath", str(self._site)]
        base = ["--dbtype", "sqlite", "--dbpath", str(self.kept), "--dbname", "wiki"]
        self._maintain("install", *base, *site, "--pass", USERS[_KEEPER], "Wiki of the Isles", _KEEPER)
        settings = self._site / "LocalSettings.php"
        text, changed = _DATA.subn("$wgSQLiteDataDir = getenv( 'WIKI_DATA' );", settings.read_text())
        if changed != 1:
            raise UserError(f"{settings} names no database folder; use Debian 12's package of MediaWiki")
        settings.write_text(text + _SETTINGS.replace("{cache}", str(cache)))
        for user, password in USERS.items():
            if user != _KEEPER:
                self._maintain("createAndPromote", user, password)
        texts = self.folder / "articles"
        texts.mkdir()
        for title, text in ARTICLES.items():
            (texts / f"{title}.txt").write_text(text, encoding="utf-8")
        files = [str(path) for path in sorted(texts.iterdir())]
        self._maintain("importTextFiles", "--user", _KEEPER, "--overwrite", "--rc", *files)
        self._maintain("rebuildtextindex")
        self._maintain("rebuildLocalisationCache", "--lang", "en")

    def _serve(self) -> str:
        (self.data / "locks").mkdir()
        command = ServerCommand(
            arguments=lambda port: [*self._php, "-S", f"127.0.0.1:{port}"],
            host=self.host,
            path="/index.php?title=Main_Page",
            log=self.live / "log",
            folder=self._site,
            environment={**self._environment(self.data), "PHP_CLI_SERVER_WORKERS": str(WORKERS)},
        )
        self._server = ServerProcess(command)
        return self._server.address

    def _stop(self) -> None:
        self._server.close()

    @property
    def _site(self) -> pathlib.Path:
        return self.folder / "usr/share/mediawiki"

    @property
    def _php(self) -> list[str]:
        return [str(self.folder / "usr/bin/php8.2"), "-c", str(self.folder / "php.ini")]

    def _environment(self, data: pathlib.Path) -> dict[str, str]:
        # Only PHP needs the unpacked libraries: the rest of the system keeps its own. No system-wide php.ini.
        libraries = next((self.folder / "usr/lib").glob("*-linux-gnu"))
        return {"LD_LIBRARY_PATH": str(libraries), "PHP_INI_SCAN_DIR": "", "WIKI_DATA": str(data)}

    def _maintain(self, script: str, *arguments: str) -> None:
        run_quietly(
            [*self._php, f"{self._site}/maintenance/{script}.php", *arguments], self._environment(self.kept)
        )
