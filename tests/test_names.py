"""Every name of the documents that kharness unites exists, or docs/names.md says what it is called here.

tests/data/reference holds the documents.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import keyword
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kharness.config.make import variables as make_variables
from kharness.config.tree import Tree
from monitoring.errors import MissingPackage
from monitoring.journal.fields import row_of
from monitoring.journal.fields.row import UNKNOWN_UNIT

from .documented_names import DocumentedName, names_in

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted((ROOT / "tests/data/reference").glob("*.md"))
PAGE = ROOT / "docs/names.md"
SOURCES = ("lib", "scripts", "examples", *(path.parent.name for path in ROOT.glob("*/model.py")))
# Programs of the system, and Python itself.
OF_THE_SYSTEM = {"make", "pip", "python"}

HINT = "no such name: build it, or say in docs/names.md what it is called here"

Nodes = Callable[[Path], list[Any]]


def renamed() -> dict[str, str]:
    """Documented names and what they are called here: the rows of docs/names.md."""
    rows = re.findall(r"^\| `([^|]+)` \| ([^|]+) \|", PAGE.read_text(), flags=re.M)
    return {name: here.strip() for name, here in rows}


@pytest.fixture(scope="module")
def code_names(nodes: Nodes) -> frozenset[str]:
    """Names that code defines, takes or writes: functions, classes, arguments, attributes, whole strings."""
    return frozenset(
        name
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for node in nodes(path)
        for name in names_of(node)
    )


def names_of(node: Any) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg | ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)


@cache
def symbols() -> frozenset[str]:
    files = [ROOT / "Kconfig", *ROOT.glob("*/Kconfig"), *ROOT.glob("lib/**/Kconfig")]
    return frozenset(
        name for file in files for name in re.findall(r"^\t?config (\w+)", file.read_text(), re.M)
    )


@cache
def make_words() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text()
    return frozenset(re.findall(r"^([\w-]+):", text, re.M)) | frozenset(re.findall(r"\b[A-Z][A-Z_]+\b", text))


@cache
def tracked() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(listed.split())


def exists(name: DocumentedName, code: frozenset[str], table: Mapping[str, str]) -> bool:
    """Whether kharness has a documented name as it stands; a flag, that of a program called otherwise."""
    match name.kind:
        case "command":
            return command_exists(name.text.split(), code)
        case "flag":
            return flag_exists(name.text, table.get(name.command, name.command).strip("`"), code)
        case "import":
            return import_exists(name.text)
        case "path":
            return path_exists(name.text, code)
        case "key":
            return key_exists(name.text, code)


def command_exists(words: list[str], code: frozenset[str]) -> bool:
    if words[0] == "make":
        return len(words) == 1 or words[1] in make_words()
    if words[:2] == ["python", "-m"]:
        return importlib.util.find_spec(words[2]) is not None
    if words[0] == "python" and len(words) > 1:
        return words[1] in tracked()
    if "=" in words[0]:
        return words[0].split("=")[0] in code
    program = words[0].removeprefix("./")
    return (
        program in OF_THE_SYSTEM
        or program in tracked()
        or shutil.which(program, path=str(Path(sys.executable).parent)) is not None
    )


def flag_exists(flag: str, command: str, code: frozenset[str]) -> bool:
    if not command.startswith("python"):
        return command_exists(command.split(), code)  # of another program
    symbol = flag.removeprefix("--").replace("-", "_").upper()
    if command.endswith("/train.py") and symbol in symbols():
        return True
    return command_exists(command.split(), code) and flag in code


def path_exists(path: str, code: frozenset[str]) -> bool:
    """A file of the repository, or one whose name, up to what is filled in, stands in the code."""
    if path.strip("/") in code or any(f"/{file}".endswith(f"/{path}") for file in tracked()):
        return True
    path = path.replace("XXXX", "0000")  # of a rank
    fixed = path.split("YYYY")[0]
    if fixed != path:
        return any(name.startswith(fixed.rstrip("_")) for name in code)
    return is_made(path, code)


def is_made(text: str, code: frozenset[str]) -> bool:
    """Whether an f-string of the code may give it, one that has more than a separator of its own."""
    return made_by(code).match(text) is not None


@cache
def made_by(code: frozenset[str]) -> re.Pattern[str]:
    """Pattern of the names that f-strings in the code may give; compiling one per question takes seconds."""
    made = (name for name in code if "*" in name and len(re.sub(r"\W", "", name)) > 4)
    return re.compile("|".join(map(fnmatch.translate, made)))


def import_exists(text: str) -> bool:
    """A module, or a name that one defines."""
    module, _, last = text.rpartition(".")
    if text == "config.config":
        return "config.py" in (ROOT / ".gitignore").read_text()  # generated at the root
    try:
        if importlib.util.find_spec(text) is not None:
            return True
    except ModuleNotFoundError:
        pass
    try:
        return bool(module) and hasattr(importlib.import_module(module), last)
    except MissingPackage:  # it is known, and needs one that another test has taken away
        return True
    except ModuleNotFoundError:
        return False


def key_exists(text: str, code: frozenset[str]) -> bool:
    *sections, last = text.split(".")
    if sections:  # of a configuration: an option of that name, or of a section's and that
        options = {last.upper(), *(f"{section}_{last}".upper() for section in sections)}
        return bool(options & symbols())
    return (
        text in code
        or is_made(text, code)
        or keyword.iskeyword(text)
        or text.removeprefix("CONFIG_").upper() in symbols()
        or text in make_words()
        or row_of(text).unit != UNKNOWN_UNIT
        or importlib.util.find_spec(text) is not None
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_name_exists_or_is_in_the_table(
    document: Path, code_names: frozenset[str], without_transformers: None
) -> None:
    table = renamed()
    missing = [
        name.text
        for name in dict.fromkeys(names_in(document.read_text()))
        if name.text not in table and not exists(name, code_names, table)
    ]
    assert not missing, f"{HINT}: {missing}"


def test_a_name_in_the_table_stands_in_a_document() -> None:
    texts = [document.read_text() for document in DOCUMENTS]
    documented = {name.text for text in texts for name in names_in(text)}
    assert [n for n in renamed() if n not in documented and not any(n in text for text in texts)] == []


def is_here(name: str, code: frozenset[str]) -> bool:
    """Whether what the table says a name is called here can be typed, set, imported or found."""
    words = name.split()
    if words[0] == "make":
        return make_takes(words[1:])
    if words[0] in ("pip", "wandb"):
        return words[1] in ("install", "sync")  # tests/test_commands.py knows both
    if words[0] == "python":
        return words[1] in tracked()
    if re.fullmatch(r"[A-Z]+=\w+", name):
        return make_takes(["train", name])
    if re.fullmatch(r"[A-Z][A-Z0-9_]+(\.\.\.)?", name):
        return any(s == name or (name.endswith("...") and s.startswith(name[:-3])) for s in symbols())
    if call := re.fullmatch(r"(\w+)\(\w+\)", name):
        return import_exists(f"monitoring.{call[1]}")
    if name.startswith("results/"):  # of a run, or the folder of all
        made = "/".join(name.rstrip("/").split("/")[2:])
        return not made or made in code
    return name in OF_OTHERS or (ROOT / name).exists() or name in code or import_exists(name)


# A program of the system, and Trackio's own default place.
OF_OTHERS = {"rsync", "~/.cache/huggingface/trackio/PROJECT.db"}


def make_takes(words: list[str]) -> bool:
    goals = [word for word in words if "=" not in word] or ["train"]
    given = [word for word in words if "=" in word]
    make_variables.check_call({"KHARNESS_GOALS": " ".join(goals)}, ROOT)
    read = make_variables.given(given, {"KHARNESS_GOALS": " ".join(goals)}, root=ROOT)
    tree = Tree.load(ROOT)
    set_here = {key: value for key, value in read.items() if goals != ["sync"]}
    tree.resolve(make_variables.layer(tree, set_here))
    return True


@pytest.mark.parametrize(("there", "here"), renamed().items())
def test_what_a_name_is_called_here_exists(there: str, here: str, code_names: frozenset[str]) -> None:
    assert [name for name in re.findall(r"`([^`]+)`", here) if not is_here(name, code_names)] == []


def test_a_name_that_does_not_exist_is_found(code_names: frozenset[str]) -> None:
    wrong = ("EPOCHS", "TELEMETRY", "monitoring.telemetry.Tracker", "results/RUN/no.log", "lib/no/")
    assert [name for name in wrong if is_here(name, code_names)] == []
