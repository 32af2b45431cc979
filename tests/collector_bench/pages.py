"""Pages with a given number of elements: a list far longer than the window, and a table that fits into it."""

from __future__ import annotations

_LIST_STYLE = (
    ".item { border: 1px solid #ccc; margin: 4px; padding: 4px; position: relative } .price { float: right }"
    ".badge { position: absolute; right: 4px; top: 2px }"
)
_ITEM = (
    "<div class='item'><a href='/item/${i}'><h3>Item <b>number</b> ${i}</h3></a><p>Some words about it "
    "<i>and more</i></p><span class='price'>$${i}</span><span class='badge'>new</span>"
    "<button id='b${i}'>Add</button><input aria-label='How many'></div>"
)
_TABLE_STYLE = (
    "body { margin: 0; font-size: 4px; line-height: 4px } a, span { display: block }"
    "div { display: inline-block; width: 10px; height: 10px; margin: 1px }"
)
_CELL = "<div><a href='/i/${i}'><b>x</b></a><span><i>y</i></span></div>"
# Style, what is repeated, and of how many elements that is.
KINDS = {"list": (_LIST_STYLE, _ITEM, 10), "table": (_TABLE_STYLE, _CELL, 5)}


def make_page(kind: str, count: int) -> bytes:
    style, part, size = KINDS[kind]
    code = f"document.body.innerHTML = Array.from({{length: {count // size}}}, (_, i) => `{part}`).join('');"
    head = f"<!DOCTYPE html><title>{kind} of {count}</title><style>{style}</style>"
    return f"{head}<body></body><script>{code}</script>".encode()
