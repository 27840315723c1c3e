"""The words of CONTRIBUTING and of the pages: one spelling, and docstrings that stand alone."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "lib",
    "scripts",
    "examples",
    "benchmarks",
    *sorted(path.parent.name for path in ROOT.glob("*/model.py")),
)
LEANING = {"Of", "As", "By", "From", "So", "That", "What"}
"""First words of a docstring that only its signature completes."""

ENDINGS = "e[drs]?|ing|ations?|ers?"
BRITISH = re.compile(
    rf"\b\w*(?:optimis|initialis|normalis|orthogonalis|tokenis|quantis|summaris|recognis|synchronis|serialis"
    rf"|parallelis|regularis|visualis)(?:{ENDINGS})\b|\b\w+metres?\b"
    r"|\b(?:artefact|behaviour|catalogue|centre|colour|favour|grey|judgement|licence|neighbour)s?\b",
    re.IGNORECASE,
)


def explanations(node: Any) -> Iterator[tuple[int, str]]:
    """The docstring of a definition, and the strings below the assignments of its body."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(node, kinds):
        return
    if text := ast.get_docstring(node):
        yield getattr(node, "lineno", 1), text
    for assigned, below in pairwise(node.body):
        match assigned, below:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                yield below.lineno, text


def test_docstrings_are_sentences_of_their_own(nodes: Callable[[Path], list[Any]]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in nodes(path)
        for line, text in explanations(node)
        if text.split()[0] in LEANING
    ]
    assert found == [], "say it so that it can be read without the signature"


def test_spelling_is_american() -> None:
    places = (*SOURCES, "docs", "README.md", "CONTRIBUTING.md", "*Kconfig", "Makefile")
    listed = subprocess.run(
        ["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = [ROOT / name for name in listed.split() if name.endswith((".py", ".md", "Kconfig", "Makefile"))]
    found = [
        f"{path.relative_to(ROOT)}: {word.group()}"
        for path in files
        for word in BRITISH.finditer(path.read_text())
    ]
    assert found == []
