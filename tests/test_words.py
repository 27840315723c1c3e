"""The words of CONTRIBUTING and of the pages: one spelling, and docstrings that stand alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "lib",
    "scripts",
    "examples",
    "benchmarks",
    *sorted(path.parent.name for path in ROOT.glob("*/model.py")),
)
LEANING = re.compile(r'^ *r?"""(?:Of|As|By|From|So|That|What)\b.*', re.MULTILINE)
"""A docstring that only its signature completes. By text: to parse all of the tests takes seconds."""

ENDINGS = "e[drs]?|ing|ations?|ers?"
# What makes them British is in brackets or comes later, so that this file has none of them.
BRITISH = re.compile(
    rf"\b\w*(?:optimi|initiali|normali|orthogonali|tokeni|quanti|summari|recogni|synchroni|seriali"
    rf"|paralleli|regulari|visuali|emphasi|organi|minimi|maximi|utili|customi|generali|prioriti"
    rf"|characteri)s(?:{ENDINGS})\b|\b\w+metres?\b"
    r"|\b(?:art[e]fact|behavio[u]r|catalog[u]e|cent[r]e|colo[u]r|favo[u]r|gr[e]y|judg[e]ment|licen[c]e"
    r"|neighbo[u]r)s?\b|flavo[u]r|hono[u]r|labo[u]r",
    re.IGNORECASE,
)


def test_docstrings_are_sentences_of_their_own() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in (*SOURCES, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in LEANING.findall(path.read_text())
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
