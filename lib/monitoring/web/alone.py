"""The page in few files: three that are served, or one that works without a server, with what it shows in it.

The scripts are the page's own. The policy of the one file lets no other run, and nothing be fetched.
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

# What the page asks for in any view, while its scripts are still being loaded.
ASKED_FIRST = "api/runs?since=0&epoch=0"

STYLES = ("vendor/uPlot.min.css", "style.css")
LIBRARY = "vendor/uPlot.iife.min.js"

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_EXPORTS = re.compile(r"^export \{ ([^}]+) \};$", re.MULTILINE)
_LINKED = re.compile(r"^ *<link\b.*\n", re.MULTILINE)


def served(files: Files, scripts: Sequence[str], styles: Sequence[str]) -> dict[str, tuple[bytes, str]]:
    """Return index.html, and the script and the style that it loads, whose names are made from them."""
    own = f"{files[LIBRARY][0].decode()}\n{bundled(files, scripts)}".encode()
    style = _styled(files, styles).encode()
    script_name, style_name = f"all-{_short_hash(own)}.js", f"all-{_short_hash(style)}.css"
    head = (
        f'  <link rel="stylesheet" href="page/{style_name}">\n'
        f'  <link rel="preload" href="{ASKED_FIRST.replace("&", "&amp;")}" as="fetch" crossorigin>\n'
        f'  <script src="page/{script_name}" defer></script>\n</head>'
    )
    page, kind = files["index.html"]
    return {
        "index.html": (page.replace(b"</head>", head.encode(), 1), kind),
        script_name: (own, files["main.js"][1]),
        style_name: (style, files["style.css"][1]),
    }


def page_of(files: Files, scripts: Sequence[str], styles: Sequence[str], kept: Mapping[str, Any]) -> bytes:
    """Return the file: `scripts` are those that begin, in order, `kept` is what page/kept.js answers by."""
    index = _LINKED.sub("", files["index.html"][0].decode())
    icon = "data:image/svg+xml;base64," + base64.b64encode(files["icon.svg"][0]).decode()
    style = _styled(files, styles)
    library, own = files[LIBRARY][0].decode(), bundled(files, scripts)
    for part, end in ((style, "</style"), (library, "</script"), (own, "</script")):
        assert end not in part.lower(), f"{end} would end the part that it is in"
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(own)}; style-src {_hash(style)}; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    # in JSON every < may be written so: no text ends the element, or begins another
    data = dumped(kept).decode().replace("<", "\\u003c")
    foot = f'<script type="application/json" id="kept">{data}</script>\n'
    foot += f"<script>{library}</script>\n<script>{own}</script>\n"
    # the policy stands before everything that it is about
    page = index.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{head}', 1)
    page = page.replace("page/icon.svg", icon).replace("</body>", foot + "</body>", 1)
    return page.encode()


def bundled(files: Files, scripts: Sequence[str]) -> str:
    """Return modules as one script, each after those that it imports."""
    parts = [f"modules[{orjson.dumps(name).decode()}] = {part}" for name, part in _modules(files, scripts)]
    return '(() => {\n"use strict";\nconst modules = {};\n' + "\n".join(parts) + "\n})();\n"


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


def _styled(files: Files, styles: Sequence[str]) -> str:
    return "\n".join(files[name][0].decode() for name in (*STYLES, *styles))


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def dumped(content: object) -> bytes:
    """Return JSON as the page reads it."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=str)
