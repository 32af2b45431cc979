"""MediaWiki 1.39 on PHP's own web server and SQLite, all from Debian's packages."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import urllib.parse
from typing import Any

import orjson

from collection.environments.apps.application import Application, digest, run_quietly, unpack
from collection.environments.apps.server import ServerCommand, ServerProcess, get
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task
from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Island:
    name: str
    people: int
    lighthouse: int  # The year in which it was lit.
    ferry: str
    known_for: str

    @property
    def title(self) -> str:
        return f"{self.name} Island"

    @property
    def text(self) -> str:
        return (
            f"'''{self.title}''' is one of the [[Outer Isles]]. It is known for its {self.known_for}.\n\n"
            f"== People ==\nAt the last count {self.people} people lived on {self.title}.\n\n"
            f"== Lighthouse ==\nThe lighthouse of {self.title} was lit in {self.lighthouse} and is kept "
            f"by hand.\n\n== Getting there ==\nThe ferry ''{self.ferry}'' calls twice a week.\n"
        )


ISLANDS = (
    Island("Wren", 412, 1874, "Merle", "salt pans"),
    Island("Corran", 1280, 1851, "Saint Osyth", "boat builders"),
    Island("Tamsel", 96, 1902, "Little Auk", "black sheep"),
    Island("Ousby", 733, 1866, "Lapwing", "glass works"),
    Island("Hallin", 2054, 1839, "Northern Diver", "herring market"),
    Island("Pellow", 158, 1911, "Kittiwake", "stone circle"),
    Island("Skerrow", 341, 1888, "Grey Heron", "seal colony"),
    Island("Averne", 887, 1845, "Dunlin", "apple orchards"),
)
ARTICLES = {island.title: island.text for island in ISLANDS} | {
    "Outer Isles": "The '''Outer Isles''' are:\n" + "".join(f"* [[{island.title}]]\n" for island in ISLANDS),
    "Tide tables": "High water at the harbours of the [[Outer Isles]] is given in local time.\n",
    "Main Page": "Welcome to the wiki of the [[Outer Isles]]. See also the [[Tide tables]].\n",
}
# Passwords by account; the first keeps the wiki, the others are for episodes.
USERS = {"Keeper": "lantern-oil-1874", "Alder": "quiet-harbour-61", "Birch": "seven-gannets-28"}


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


# Their passwords are secrets of these names; the agent writes `<secret>alder</secret>`.
SECRETS = {user.lower(): password for user, password in USERS.items()}


class MediaWiki(Application):
    """http://wiki.test/: the articles of `ARTICLES`, accounts for `USERS`.

    A reset sets pages, accounts, sessions and caches back.
    """

    name = "wiki"
    host = "wiki.test"
    secrets = SECRETS
    version = digest(PACKAGES, ARTICLES, USERS, _SETTINGS)

    def page(self, title: str) -> dict[str, Any] | None:
        """Returns the current `content`, `user` and `comment` of a page from the wiki's API, or None."""
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
        """Creates database, accounts and articles."""
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


_VISITORS = ("Alder", "Birch")
_SIGHTS = ("a rope bridge", "a tide mill", "an old cannery", "a bird hide")
_PAGES = (
    ("Sela Rock", "Sela Rock is a bare rock north of the Outer Isles."),
    ("Fishing season", "The fishing season lasts from March to October."),
    ("Harbour bell", "The harbour bell is rung when there is fog."),
)


def wiki_tasks(wiki: MediaWiki, seed: int) -> list[AppTask]:
    """Returns one task of each kind."""
    return [_fact(wiki, seed), _comparison(wiki, seed), _edit(wiki, seed), _new_page(wiki, seed)]


def _fact(wiki: MediaWiki, seed: int) -> AppTask:
    island = choose(ISLANDS, seed)
    text = (
        f'Search {wiki.url}/ for the ferry "{island.ferry}" and open the page of the island that it goes to. '
        "In which year was the island's lighthouse lit? Answer with the year alone."
    )

    def check(end: Ending) -> bool:
        return _is_on(end, island) and end.answer.strip() == str(island.lighthouse)

    return make_task(wiki, "fact", seed, text, check)


def _comparison(wiki: MediaWiki, seed: int) -> AppTask:
    one, other = choose(ISLANDS, seed, 1), choose(ISLANDS, seed, 4)
    larger = max((one, other), key=lambda island: island.people)
    text = (
        f"By how many people do more live on {one.title} or {other.title}, whichever has more, than on the "
        f"other? Look it up at {wiki.url}/ and answer with the island's name and the number: Rook Island, 12"
    )
    answer = f"{larger.title}, {abs(one.people - other.people)}"
    return make_task(wiki, "comparison", seed, text, lambda end: end.answer.strip() == answer)


def _edit(wiki: MediaWiki, seed: int) -> AppTask:
    island, user, sight = choose(ISLANDS, seed, 2), choose(_VISITORS, seed), choose(_SIGHTS, seed)
    sentence = f"There is {sight} on {island.title}."
    text = (
        f'{_log_in(wiki, user)} Then add the sentence "{sentence}" at the end of the page "{island.title}", '
        'leave the rest of it as it is, and save it with the summary "A sight".'
    )

    def check(end: Ending) -> bool:
        page = wiki.page(island.title)
        expected = {"user": user, "comment": "A sight"}
        return (
            page is not None
            and {name: page[name] for name in expected} == expected
            and page["content"].split() == [*ARTICLES[island.title].split(), *sentence.split()]
        )

    return make_task(wiki, "edit", seed, text, check)


def _new_page(wiki: MediaWiki, seed: int) -> AppTask:
    (title, content), user = choose(_PAGES, seed), choose(_VISITORS, seed, 1)
    text = f'{_log_in(wiki, user)} Then make a new page "{title}" with the text "{content}" and save it.'

    def check(end: Ending) -> bool:
        page = wiki.page(title)
        return page is not None and page["user"] == user and page["content"].strip() == content

    return make_task(wiki, "new-page", seed, text, check)


def _log_in(wiki: MediaWiki, user: str) -> str:
    return f'Log in at {wiki.url}/ as "{user}" with the password <secret>{user.lower()}</secret>.'


def _is_on(end: Ending, island: Island) -> bool:
    return island.title.replace(" ", "_") in end.url
