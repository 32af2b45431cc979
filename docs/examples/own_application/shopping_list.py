"""A site of one's own as an application with two templates: a shopping list, kept in a file."""

from __future__ import annotations

import html
import http.server
import sys
import urllib.parse
from pathlib import Path

from collection.environments.apps.application import Application
from collection.environments.apps.server import ServerCommand, ServerProcess
from collection.environments.apps.suite import ApplicationKind
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

BOUGHT = ("bread", "milk", "tea")
WANTED = ("apples", "candles", "honey", "rice", "soap")


class ShoppingList(Application):
    name, host, version = "list", "list.test", "1"

    def _make(self) -> None:
        (self.kept / "items").write_text("\n".join(BOUGHT))

    def _serve(self) -> str:
        def command(port: int) -> list[str]:
            return [sys.executable, __file__, str(port), str(self.data / "items")]

        self._server = ServerProcess(ServerCommand(command, self.host, "/", self.live / "log", self.folder))
        return self._server.address

    def _stop(self) -> None:
        self._server.close()

    def items(self) -> list[str]:
        return sorted((self.data / "items").read_text().split())


def tasks(site: ShoppingList, seed: int) -> list[AppTask]:
    """A task of each template: the seed chooses what is asked for."""
    new, old = choose(WANTED, seed), choose(BOUGHT, seed)

    def task(name: str, objective: str, expected: list[str]) -> AppTask:
        def check(ending: Ending) -> bool:
            return site.items() == sorted(expected)

        return make_task(site, name, seed, objective, check)

    return [
        task("add", f"Put {new} on the shopping list.", [*BOUGHT, new]),
        task("remove", f"Take {old} off the shopping list.", [item for item in BOUGHT if item != old]),
    ]


KIND = ApplicationKind(ShoppingList, tasks)


class Site(http.server.BaseHTTPRequestHandler):
    """The site itself: any program that listens on a port would do."""

    def do_GET(self) -> None:
        path = Path(sys.argv[2])
        items = path.read_text().split()
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        items = [item for item in items if item != asked.get("remove")] + asked.get("add", "").split()
        path.write_text("\n".join(items))
        rows = (
            f"<li>{name} <a href='/?remove={name}'>Remove {name}</a></li>" for name in map(html.escape, items)
        )
        form = "<form><input name=add placeholder='New item'><button>Add</button></form>"
        body = f"<title>Shopping list</title><h1>Shopping list</h1><ul>{''.join(rows)}</ul>{form}"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())


if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
