"""MediaWiki 1.39 on PHP's own web server and SQLite, all from Debian's packages."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from collection.environments.apps.application import Application, digest, run_quietly, unpack
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.sqlite import content, reading
from collection.environments.apps.wiki.pages import (
    HISTORY,
    MAIN_PAGE,
    NAMESPACES,
    USERS,
    WATCHED,
    dump,
)
from rmsweb_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Article:
    """A page as it is now.

    Attributes:
      lines: of its text, without empty ones.
      user: who wrote this version.
      comment: the summary of this version; not compared.
    """

    lines: tuple[str, ...]
    user: str
    comment: str = dataclasses.field(default="", compare=False)


# The installation makes the last one.
_ACCOUNTS = (*USERS, "MediaWiki default")


@dataclasses.dataclass(frozen=True)
class Wiki:
    """What the wiki holds.

    Attributes:
      pages: by title; those that were deleted are not in it.
      watched: user and page of all watch lists.
      protected: page, action, and the group that alone may do it.
      names: real names by user.
    """

    pages: Mapping[str, Article]
    watched: frozenset[tuple[str, str]] = WATCHED
    protected: frozenset[tuple[str, str, str]] = frozenset()
    names: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict.fromkeys(_ACCOUNTS, ""))

    def with_page(self, title: str, text: str, user: str) -> Wiki:
        """With a page that a user has just written."""
        return dataclasses.replace(self, pages={**self.pages, title: Article(_lines(text), user)})

    def moved(self, old: str, new: str, user: str) -> Wiki:
        """With a page under another title; who watched it watches both then."""
        watched = self.watched | {(one, new) for one, title in self.watched if title == old}
        text = "\n".join(self.pages[old].lines)
        return dataclasses.replace(self.without(old).with_page(new, text, user), watched=watched)

    def without(self, title: str) -> Wiki:
        pages = {name: page for name, page in self.pages.items() if name != title}
        return dataclasses.replace(self, pages=pages)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


KEEPER = "Keeper"
WIKI = Wiki(
    {title: Article(_lines(revisions[-1].text), revisions[-1].user) for title, revisions in HISTORY.items()}
).with_page("Main Page", MAIN_PAGE, KEEPER)

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
_DATABASE = "wiki.sqlite"
_PAGES = """
SELECT page_namespace, page_title, actor_name, comment_text, old_text FROM page
JOIN revision ON rev_id = page_latest JOIN actor ON actor_id = rev_actor
JOIN revision_comment_temp ON revcomment_rev = rev_id
JOIN comment ON comment_id = revcomment_comment_id JOIN slots ON slot_revision_id = rev_id
JOIN content ON content_id = slot_content_id JOIN text ON content_address = 'tt:' || old_id
"""
_WATCHED = "SELECT user_name, wl_namespace, wl_title FROM watchlist JOIN user ON user_id = wl_user"
_PROTECTED = """
SELECT page_namespace, page_title, pr_type, pr_level FROM page_restrictions JOIN page ON page_id = pr_page
"""
_DATA = re.compile(r"^\$wgSQLiteDataDir = .*;$", re.MULTILINE)
# Nothing runs behind a visitor's back, nor after a page was sent; nothing is sent anywhere; a change adds
# nothing to a watch list.
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
$wgForceDeferredUpdatesPreSend = true;
foreach ( [ 'default', 'creations', 'moves', 'deletion', 'rollback' ] as $change ) {
	$wgDefaultUserOptions["watch$change"] = 0;
}
"""


# Their passwords are secrets of these names; the agent writes `<secret>alder</secret>`.
SECRETS = {user.lower(): password for user, password in USERS.items()}


class MediaWiki(Application):
    """http://wiki.test/: the pages of `HISTORY`, accounts for `USERS`.

    A reset sets pages, accounts, sessions and caches back.
    """

    name = "wiki"
    host = "wiki.test"
    secrets = SECRETS
    version = digest(PACKAGES, HISTORY, MAIN_PAGE, sorted(WATCHED), USERS, _SETTINGS)

    def wiki(self) -> Wiki:
        """Reads what the wiki holds."""
        with reading(self.data / _DATABASE) as database:
            database.text_factory = bytes.decode
            return Wiki(
                {
                    _title(space, name): Article(_lines(text), user, comment)
                    for space, name, user, comment, text in database.execute(_PAGES)
                },
                frozenset(
                    (user, _title(space, name))
                    for user, space, name in database.execute(_WATCHED)
                    if space % 2 == 0  # Each page is watched together with its talk page.
                ),
                frozenset(
                    (_title(space, name), action, level)
                    for space, name, action, level in database.execute(_PROTECTED)
                ),
                dict(database.execute("SELECT user_name, user_real_name FROM user")),
            )

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        return content(self.data / _DATABASE)  # Without the databases of caches and jobs.

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
        self._maintain("install", *base, *site, "--pass", USERS[KEEPER], "Wiki of the Isles", KEEPER)
        settings = self._site / "LocalSettings.php"
        text, changed = _DATA.subn("$wgSQLiteDataDir = getenv( 'WIKI_DATA' );", settings.read_text())
        if changed != 1:
            raise UserError(f"{settings} names no database folder; use Debian 12's package of MediaWiki")
        settings.write_text(text + _SETTINGS.replace("{cache}", str(cache)))
        for user, password in USERS.items():
            if user != KEEPER:
                self._maintain("createAndPromote", user, password)
        front = self.folder / "Main Page.txt"
        front.write_text(MAIN_PAGE, encoding="utf-8")
        self._maintain("importTextFiles", "--user", KEEPER, "--overwrite", str(front))
        pages = self.folder / "pages.xml"
        pages.write_text(dump(), encoding="utf-8")
        self._maintain("importDump", str(pages))
        self._maintain("runJobs")
        self._maintain("initSiteStats", "--update")
        self._watch()
        self._maintain("rebuildtextindex")
        self._maintain("rebuildLocalisationCache", "--lang", "en")

    def _watch(self) -> None:
        row = "INSERT INTO watchlist (wl_user, wl_namespace, wl_title) SELECT user_id, ?, ? FROM user"
        with contextlib.closing(sqlite3.connect(self.kept / _DATABASE)) as database, database:
            database.execute("DELETE FROM watchlist")  # Of accounts that watch their own pages.
            for user, title in sorted(WATCHED):
                for space in (0, 1):  # The page and its talk page.
                    values = (space, title.replace(" ", "_"), user)
                    database.execute(f"{row} WHERE user_name = ?", values)

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


def _title(space: int, name: str) -> str:
    return NAMESPACES.get(space, f"{space}:") + name.replace("_", " ")
