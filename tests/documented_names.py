"""The names that documents promise: keys, paths, flags, commands and imports, read out of their Markdown."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["command", "flag", "import", "key", "path"]
FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", flags=re.M | re.S)
# A file with an ending that programs write or read, or a folder.
PATH = re.compile(r"[\w<>./~*-]+\.(?:jsonl?|csv|log|py|db|sh|yaml|txt)\b|(?<![\w/])[\w<>./-]+/(?=[\s`]|$)")


@dataclass(frozen=True)
class DocumentedName:
    """A name as it stands in a document; of a flag, the command it belongs to too."""

    kind: Kind
    text: str
    command: str = ""


def names_in(page: str) -> Iterator[DocumentedName]:
    """All names of a page of Markdown, in their order, some more than once."""
    readers = {"bash": in_commands, "yaml": in_yaml, "json": in_json, "python": in_python, "": in_output}
    for language, body in FENCE.findall(page):
        yield from readers.get(language, in_output)(textwrap.dedent(body))
    for span in re.findall(r"`([^`\n]+)`", FENCE.sub("", page)):
        yield from in_span(re.sub(r"^~(?=\w)", "", span))  # of a Sphinx role


def in_commands(body: str) -> Iterator[DocumentedName]:
    for line in body.replace("\\\n", " ").splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words:
            yield from in_command(words)


def in_command(words: list[str]) -> Iterator[DocumentedName]:
    """A command is its program with what it runs: a script, a module, a target, a sub-command."""
    plain = [word for word in words if word not in ("sudo", "export")]
    end = next((i for i, word in enumerate(plain) if word.startswith("-") and word != "-m"), len(plain))
    command = " ".join(plain[: min(end, 3 if "-m" in plain[:2] else 2)])
    yield DocumentedName("command", command)
    for word in plain[1:]:
        flag, assigned = re.match(r"--[\w-]+", word), re.match(r"([A-Z_]+)=", word)
        if flag:
            yield DocumentedName("flag", flag[0], command)
        elif assigned:
            yield DocumentedName("key", assigned[1])


def in_yaml(body: str) -> Iterator[DocumentedName]:
    """Keys with the sections that hold them: `training.profiler.schedule.wait`."""
    sections: list[tuple[int, str]] = []
    for indent, key in re.findall(r"^(\s*)(\w+):", body, flags=re.M):
        sections = [held for held in sections if held[0] < len(indent)] + [(len(indent), key)]
        yield DocumentedName("key", ".".join(name for _, name in sections))


def in_json(body: str) -> Iterator[DocumentedName]:
    yield from (DocumentedName("key", key) for key in re.findall(r'"(\w+)":', body))


def in_python(body: str) -> Iterator[DocumentedName]:
    try:
        tree = ast.parse(body)
    except SyntaxError:  # a formula, or lines out of the middle of a function
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (DocumentedName("import", f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (DocumentedName("import", alias.name) for alias in node.names)
        elif isinstance(node, ast.keyword) and node.arg:
            yield DocumentedName("key", node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from in_text(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            yield from (DocumentedName("key", argument.arg) for argument in node.args.args[1:])


def in_text(text: str) -> Iterator[DocumentedName]:
    """A string of a program: a key, a path, or neither."""
    if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", text):
        yield DocumentedName("key", text)
    elif PATH.fullmatch(text):
        yield DocumentedName("path", text)


def in_output(body: str) -> Iterator[DocumentedName]:
    """Names in the printed output of a program and in trees of folders."""
    yield from (DocumentedName("path", path) for path in PATH.findall(re.sub(r"\s#.*", "", body)))
    for key in re.findall(r"'(\w+)':|^(rank\d+_\w+):|^\s+([a-z_]+):", body, flags=re.M):
        yield DocumentedName("key", next(name for name in key if name))


def in_span(span: str) -> Iterator[DocumentedName]:
    """Code within prose."""
    words = span.split()
    if words[0] in ("make", "python", "tensorboard", "trackio", "wandb", "pip"):
        yield from in_commands(span)
    elif PATH.fullmatch(span):
        yield DocumentedName("path", span)
    elif brace := re.fullmatch(r"(\w*)\{([\d,]+)\}(\w*)", span):
        yield from (DocumentedName("key", brace[1] + part + brace[3]) for part in brace[2].split(","))
    elif name := re.fullmatch(r"([A-Za-z_][\w.]*)(\(.*\)|=\w+)?", span):
        yield DocumentedName("key", name[1])
