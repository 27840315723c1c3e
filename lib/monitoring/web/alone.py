"""A view of the page as one file that works without a server: scripts, style and what they show are in it.

The scripts are the page's own. Its policy lets no other run, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

Files = Mapping[str, tuple[bytes, str]]

STYLES = ("vendor/uPlot.min.css", "style.css")
LIBRARY = "vendor/uPlot.iife.min.js"

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_EXPORTS = re.compile(r"^export \{ ([^}]+) \};$", re.MULTILINE)
_LINKED = re.compile(r"^ *<(?:link|script)\b.*\n", re.MULTILINE)


def page_of(files: Files, scripts: Sequence[str], styles: Sequence[str], kept: Mapping[str, Any]) -> bytes:
    """Return the file: `scripts` are those that begin, in order, `kept` is what page/kept.js answers by."""
    index = _LINKED.sub("", files["index.html"][0].decode())
    icon = "data:image/svg+xml;base64," + base64.b64encode(files["icon.svg"][0]).decode()
    style = "\n".join(files[name][0].decode() for name in (*STYLES, *styles))
    library, own = files[LIBRARY][0].decode(), bundled(files, scripts)
    for part, end in ((style, "</style"), (library, "</script"), (own, "</script")):
        assert end not in part.lower(), f"{end} would end the part that it is in"
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(own)}; style-src {_hash(style)}; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    # in JSON every < may be written so: no text ends the element, or begins another
    data = _dumped(kept).decode().replace("<", "\\u003c")
    foot = f'<script type="application/json" id="kept">{data}</script>\n'
    foot += f"<script>{library}</script>\n<script>{own}</script>\n"
    # the policy stands before everything that it is about
    page = index.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{head}', 1)
    page = page.replace("page/icon.svg", icon).replace("</body>", foot + "</body>", 1)
    return page.encode()


def bundled(files: Files, scripts: Sequence[str]) -> str:
    """Return modules as one script, each after those that it imports."""
    parts = [f"modules[{orjson.dumps(name).decode()}] = {part}" for name, part in _modules(files, scripts)]
    return '"use strict";\nconst modules = {};\n' + "\n".join(parts)


def _modules(files: Files, scripts: Sequence[str]) -> Iterator[tuple[str, str]]:
    done: set[str] = set()

    def module(name: str) -> Iterator[tuple[str, str]]:
        if name in done:
            return
        done.add(name)
        text = files[name][0].decode()
        for imported in _IMPORT.finditer(text):
            yield from module(_beside(name, imported[2]))
        names = [found[1] for found in _EXPORT.finditer(text)]
        names += [one for found in _EXPORTS.finditer(text) for one in found[1].split(", ")]
        text = _EXPORTS.sub("", _EXPORT.sub("", _IMPORT.sub(lambda found: _taken(name, found), text)))
        yield name, f"(() => {{\n{text}\nreturn {{ {', '.join(names)} }};\n}})();"

    for script in scripts:
        yield from module(script)


def _taken(name: str, found: re.Match[str]) -> str:
    names = found[1].replace(" as ", ": ")
    return f"const {{ {names} }} = modules[{orjson.dumps(_beside(name, found[2])).decode()}];"


def _beside(name: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _dumped(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=str)
