"""A site of one's own as an application with three templates: a shopping list, kept in a file."""

from __future__ import annotations

import html
import http.server
import json
import sys
import urllib.parse
from pathlib import Path
from typing import ClassVar

from collection.apps import (
    Application,
    Draw,
    ServerCommand,
    ServerProcess,
    World,
    ask,
    create,
    drawn,
    remove,
)

THINGS = ("apples", "bread", "candles", "honey", "milk", "rice", "soap", "tea")


def item(draw: Draw) -> str:
    """Something that few other seeds have."""
    return f"{draw.choice(THINGS)} for {draw.fake.first_name()} {draw.fake.last_name()}"


class ShoppingList(Application):
    name, host, version = "list", "list.test", "1"
    templates: ClassVar = {
        "number": ask('How many pieces of "{key}" does the shopping list have?', "items", "number"),
        "add": create(
            'Put "{name}" on the shopping list.',
            "items",
            key=lambda row: row["name"],
            name=drawn(item),
            number=1,
        ),
        "remove": remove('Take "{key}" off the shopping list.', "items"),
    }

    def make_world(self, draw: Draw) -> World:
        names = draw.distinct(lambda: item(draw), 3)
        return {"items": {name: {"name": name, "number": draw.randint(2, 20)} for name in names}}

    def read(self) -> World:
        return {"items": {row["name"]: row for row in json.loads((self.data / "items").read_text())}}

    def _make(self) -> None:
        """Nothing is to be installed: the site is in this file."""

    def _fill(self, world: World, data: Path) -> None:
        (data / "items").write_text(json.dumps(list(world["items"].values())))

    def _serve(self) -> str:
        def command(port: int) -> list[str]:
            return [sys.executable, __file__, str(port), str(self.data / "items")]

        self._server = ServerProcess(ServerCommand(command, self.host, "/", self.live / "log", self.folder))
        return self._server.address

    def _stop(self) -> None:
        self._server.close()


class Site(http.server.BaseHTTPRequestHandler):
    """The site itself: any program that listens on a port would do."""

    def do_GET(self) -> None:
        path = Path(sys.argv[2])
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        items = [row for row in json.loads(path.read_text()) if row["name"] != asked.get("remove")]
        if "add" in asked:
            items.append({"name": asked["add"], "number": 1})
        path.write_text(json.dumps(items))
        rows = "".join(self.row(one["number"], html.escape(one["name"])) for one in items)
        form = "<form><input name=add placeholder='New item'><button>Add</button></form>"
        body = f"<title>Shopping list</title><h1>Shopping list</h1><ul>{rows}</ul>{form}"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    @staticmethod
    def row(number: int, name: str) -> str:
        return f'<li>{number} {name} <a href="/?remove={name}">Remove {name}</a></li>'


if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
