"""One owner for each fact about a run's directory: its files' names stand nowhere else in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = sorted(path.parent for path in ROOT.glob("*/model.py"))

FILE_OWNERS = ("monitoring.journal.files", "kharness.runs.files")

# The same word for another thing, by module; an entry that no longer applies fails.
NO_FILES = {
    ("kharness.config.make.known_variables", "graphs"): "a make target",
    ("scripts.graphs", "graphs"): "a make target",
}


def sources() -> dict[str, ast.Module]:
    """Every module of lib/, scripts/ and the model folders."""
    folders = [(ROOT / "lib", ROOT / "lib"), (ROOT / "scripts", ROOT), *((model, ROOT) for model in MODELS)]
    return {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text()
        )
        for folder, base in folders
        for path in sorted(folder.rglob("*.py"))
    }


SOURCES = sources()


def literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that a module computes with or prints: no docstrings, and no help texts of argparse."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            prose |= {id(part) for part in ast.walk(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def constants(module: str) -> dict[str, str]:
    """The texts that a module gives a name at its top level."""
    return {
        node.targets[0].id: node.value.value
        for node in SOURCES[module].body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def names_in(text: str, known: frozenset[str]) -> set[str]:
    """The files that a literal names: as a path, or, with their ending, within a sentence."""
    if re.search(r"\s", text):
        return {word for word in re.split(r"[\s/\"'`(),;:=]+", text) if "." in word} & known
    return set(text.split("/")) & known


def test_names_of_a_runs_files_have_one_owner() -> None:
    owned = [name for owner in FILE_OWNERS for name in constants(owner).values()]
    assert len(owned) == len(set(owned)), "each file is named once"
    known = frozenset(owned)
    found = {
        (module, name): f"{module}:{node.lineno}"
        for module, tree in SOURCES.items()
        if module not in FILE_OWNERS
        for node in literals(tree)
        for name in names_in(node.value, known)
    }
    second = {where: name for (module, name), where in found.items() if (module, name) not in NO_FILES}
    assert second == {}, f"import the name from {' or '.join(FILE_OWNERS)}"
    assert set(NO_FILES) <= set(found), "these exceptions are over"
