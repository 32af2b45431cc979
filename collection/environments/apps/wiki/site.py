"""MediaWiki 1.39 on PHP's own web server and SQLite, all from Debian's packages."""

from __future__ import annotations

import contextlib
import pathlib
import re
import sqlite3
from typing import Any
from xml.sax.saxutils import escape

from collection.environments.apps import sqlite
from collection.environments.apps.application import Application, digest, run_quietly, unpack
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.templates import Draw
from collection.environments.apps.wiki.tasks import CARRIED, TEMPLATES
from collection.environments.apps.wiki.world import KEEPER, USERS, article, make_world
from collection.environments.apps.world import World
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
_DATABASE = "wiki.sqlite"
_SPACES = {0: "", 1: "Talk:", 2: "User:", 3: "User talk:", 14: "Category:"}
_TEXT = """
JOIN actor ON actor_id = rev_actor JOIN revision_comment_temp ON revcomment_rev = rev_id
JOIN comment ON comment_id = revcomment_comment_id JOIN slots ON slot_revision_id = rev_id
JOIN content ON content_id = slot_content_id JOIN text ON content_address = 'tt:' || old_id
"""


def _title(space: str, name: str) -> str:
    cases = " ".join(f"WHEN {number} THEN '{prefix}'" for number, prefix in _SPACES.items())
    return f"CASE {space} {cases} ELSE {space} || ':' END || replace({name}, '_', ' ')"


_PAGE = _title("page_namespace", "page_title")
# The form for a section's text begins a comment with its heading.
_COMMENT = "substr(comment_text, iif(comment_text LIKE '/*%*/%', instr(comment_text, '*/') + 2, 1))"
_PROTECTION = """
(SELECT json_group_array(word) FROM (SELECT pr_type || '=' || pr_level || ' ' || pr_expiry AS word
  FROM page_restrictions WHERE pr_page = page_id ORDER BY 1))
"""
# A page is watched together with its talk page.
_WATCHED = f"""
(SELECT json_group_array(title) FROM (SELECT {_title("wl_namespace", "wl_title")} AS title
  FROM watchlist WHERE wl_user = user_id AND wl_namespace % 2 = 0 ORDER BY 1))
"""
# What the world has of old versions; those of the tasks are of today.
_VERSIONS = f"""
SELECT substr(rev_timestamp, 1, 4) || '-' || substr(rev_timestamp, 5, 2) || '-' || substr(rev_timestamp, 7, 2)
  || ' ' || substr(rev_timestamp, 9, 2) || ':' || substr(rev_timestamp, 11, 2), {_PAGE} AS page,
  actor_name AS user, {_COMMENT} AS comment, old_text AS text
FROM revision JOIN page ON page_id = rev_page {_TEXT} WHERE rev_timestamp < '2026' ORDER BY rev_timestamp
"""
TABLES = {
    "pages": f"""
SELECT {_PAGE}, old_text AS text, actor_name AS user, {_COMMENT} AS comment, {_PROTECTION} AS "protection[]"
FROM page JOIN revision ON rev_id = page_latest {_TEXT}
""",
    "versions": _VERSIONS,
    "users": f'SELECT user_name, user_real_name AS name, {_WATCHED} AS "watched[]" FROM user',
}
_REVISION = (
    "<revision><timestamp>{date}:00Z</timestamp><contributor><username>{user}</username></contributor>"
    "<comment>{comment}</comment><model>wikitext</model><format>text/x-wiki</format>"
    '<text xml:space="preserve">{text}</text></revision>'
)
_DATA = re.compile(r"^\$wgSQLiteDataDir = .*;$", re.MULTILINE)
# Nothing runs behind a visitor's back, nor after a page was sent; nothing is sent anywhere; a change adds
# nothing to a watch list; what a power failure spoils is set back again.
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
$wgDBservers = [ [ 'type' => 'sqlite', 'dbname' => $wgDBname, 'load' => 1, 'flags' => DBO_DEFAULT,
  'variables' => [ 'synchronous' => 'OFF' ] ] ];
foreach ( [ 'default', 'creations', 'moves', 'deletion', 'rollback' ] as $change ) {
	$wgDefaultUserOptions["watch$change"] = 0;
}
"""


class MediaWiki(Application):
    """http://wiki.test/: the wiki of some islands, with accounts for `USERS`.

    A reset sets pages, accounts, sessions and caches back.
    """

    name = "wiki"
    host = "wiki.test"
    templates = TEMPLATES
    carried = CARRIED
    # The agent writes `<secret>alder</secret>`.
    secrets = {user.lower(): password for user, password in USERS.items()}  # noqa: RUF012
    version = digest(PACKAGES, USERS, _SETTINGS, _REVISION)

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)

    def read(self) -> World:
        world = sqlite.rows(self.data / _DATABASE, TABLES)
        return {**world, "pages": {title: article(**row) for title, row in world["pages"].items()}}

    def content(self) -> dict[str, Any]:
        return sqlite.content(self.data / _DATABASE)  # Without the databases of caches and jobs.

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
        """Creates database and accounts, and removes the front page."""
        cache = self.folder / "cache"
        cache.mkdir()
        site = ["--server", self.url, "--scriptpath", "", "--skins", "Vector", "--confpath", str(self._site)]
        base = ["--dbtype", "sqlite", "--dbpath", str(self.kept), "--dbname", "wiki"]
        self._maintain(
            self.kept, "install", *base, *site, "--pass", USERS[KEEPER], "Wiki of the Isles", KEEPER
        )
        settings = self._site / "LocalSettings.php"
        text, changed = _DATA.subn("$wgSQLiteDataDir = getenv( 'WIKI_DATA' );", settings.read_text())
        if changed != 1:
            raise UserError(f"{settings} names no database folder; use Debian 12's package of MediaWiki")
        settings.write_text(text + _SETTINGS.replace("{cache}", str(cache)))
        for user, password in USERS.items():
            if user != KEEPER:
                self._maintain(self.kept, "createAndPromote", user, password)
        with contextlib.closing(sqlite3.connect(self.kept / _DATABASE)) as database, database:
            for table in ("page", "revision", "recentchanges", "watchlist"):
                database.execute(f"DELETE FROM {table}")
        self._maintain(self.kept, "rebuildLocalisationCache", "--lang", "en")

    def _fill(self, world: World, data: pathlib.Path) -> None:
        pages = data / "pages.xml"
        pages.write_text(_dump(world), encoding="utf-8")
        self._maintain(data, "importDump", str(pages))
        pages.unlink()
        self._maintain(data, "initSiteStats", "--update")
        self._maintain(data, "rebuildtextindex")
        row = "INSERT INTO watchlist (wl_user, wl_namespace, wl_title) SELECT user_id, ?, ? FROM user"
        with contextlib.closing(sqlite3.connect(data / _DATABASE)) as database, database:
            for user, one in world["users"].items():
                for title in one["watched"]:
                    for space in (0, 1):  # The page and its talk page.
                        values = (space, title.replace(" ", "_"), user)
                        database.execute(f"{row} WHERE user_name = ?", values)

    def _serve(self) -> str:
        (self.data / "locks").mkdir(exist_ok=True)
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

    def _maintain(self, data: pathlib.Path, script: str, *arguments: str) -> None:
        command = [*self._php, f"{self._site}/maintenance/{script}.php", *arguments]
        run_quietly(command, self._environment(data))


def _dump(world: World) -> str:
    """All pages with their versions, as MediaWiki imports them."""
    pages: dict[str, list[str]] = {}
    for date, one in world["versions"].items():
        values = {name: escape(value) for name, value in one.items()}
        text = _REVISION.format(date=date.replace(" ", "T"), **values)
        pages.setdefault(values["page"], []).append(text)
    spaces = {prefix: number for number, prefix in _SPACES.items() if prefix}
    found = "".join(
        f"<page><title>{title}</title><ns>{spaces.get(title[: title.find(':') + 1], 0)}</ns>"
        f"{''.join(revisions)}</page>"
        for title, revisions in pages.items()
    )
    head = 'xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"'
    return f"<mediawiki {head}>{found}</mediawiki>"
