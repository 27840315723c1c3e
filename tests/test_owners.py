"""One owner for each fact about a run: its files' names, statuses, causes, exit codes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitoring.host import correlation

ROOT = Path(__file__).resolve().parent.parent
MODELS = sorted(path.parent for path in ROOT.glob("*/model.py"))

FILE_OWNERS = ("monitoring.journal.files", "kharness.runs.files")

# The same word for another thing, by module; an entry that no longer applies fails.
NO_FILES = {
    ("kharness.config.make.known_variables", "graphs"): "a make target",
    ("scripts.graphs", "graphs"): "a make target",
    ("monitoring.web.details", "checkpoints"): "a part of a page",
}

STATUSES = "kharness.runs.status"
END_STATUSES = "monitoring.journal.end_status"
EXIT_CODES = "kharness.runs.exit_codes"

# The same word for another thing, by module; an entry that no longer applies fails.
NO_STATUSES = {
    ("kharness.matrix.sweep.leaderboard", "complete"): "a column: how many trials are",
}
# Numbers from sysexits.h on are unlike any other number of the code.
FIRST_OWN_CODE = 64
NO_EXIT_CODES = {
    ("kharness.report.plots.cost_plots", 75): "a percentile",
    ("kharness.report.judging.statistics", 69): "points of a grid",
    ("monitoring.samplers._xid", 74): "an Xid",
}


@dataclass(frozen=True)
class Sources:
    """Every module of lib/, scripts/ and the model folders, by its name."""

    nodes: dict[str, list[Any]]
    texts: dict[str, list[ast.Constant]]


@pytest.fixture(scope="module")
def sources(nodes: Callable[[Path], list[Any]]) -> Sources:
    return read_sources(nodes)


def read_sources(nodes: Callable[[Path], list[Any]]) -> Sources:
    folders = [(ROOT / "lib", ROOT / "lib"), (ROOT / "scripts", ROOT), *((model, ROOT) for model in MODELS)]
    found = {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): nodes(path)
        for folder, base in folders
        for path in sorted(folder.rglob("*.py"))
    }
    return Sources(found, {module: texts(inside) for module, inside in found.items()})


def texts(nodes: list[Any]) -> list[ast.Constant]:
    """Strings that a module computes with or prints: no docstrings, and no help texts of argparse."""
    prose: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr):
            prose.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            prose |= {id(part) for part in ast.walk(node.value)}
    return [
        node
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def constants(module: ast.Module) -> dict[str, str]:
    """The texts that a module gives a name at its top level."""
    return {
        node.targets[0].id: node.value.value
        for node in module.body
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


def test_names_of_a_runs_files_have_one_owner(sources: Sources) -> None:
    owned = [name for owner in FILE_OWNERS for name in constants(sources.nodes[owner][0]).values()]
    assert len(owned) == len(set(owned)), "each file is named once"
    known = frozenset(owned)
    found = {
        (module, name): f"{module}:{node.lineno}"
        for module, found_in in sources.texts.items()
        if module not in FILE_OWNERS
        for node in found_in
        for name in names_in(str(node.value), known)
    }
    second = {where: name for (module, name), where in found.items() if (module, name) not in NO_FILES}
    assert second == {}, f"import the name from {' or '.join(FILE_OWNERS)}"
    assert set(NO_FILES) <= set(found), "these exceptions are over"


def test_names_that_are_near_have_one_owner(sources: Sources) -> None:
    found = {
        module
        for module, nodes in sources.nodes.items()
        for node in nodes
        if isinstance(node, ast.ImportFrom | ast.Import) and "get_close_matches" in ast.unparse(node)
    }
    # Requests to a running training, and conditions, are read where kharness cannot be imported.
    assert found == {"kharness.config.refused", "monitoring.control", "monitoring.where"}


def words(owner: ast.Module) -> frozenset[str]:
    """The statuses or causes that a module names; those that are a word of their own, as `timeout` is."""
    return frozenset(
        value.value
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Final"
        for value in [node.value]
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def public(nodes: list[Any]) -> set[int]:
    """Words that mypy checks against a Literal: the types themselves, and what Run.finish is given."""
    found: set[int] = set()
    for node in nodes:
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "Literal"
        ):
            found |= {id(part) for part in ast.walk(node.slice)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "finish":
            found |= {id(argument) for argument in node.args}
    return found


def test_statuses_and_causes_have_one_owner(sources: Sources) -> None:
    statuses, ends, exits = (words(sources.nodes[owner][0]) for owner in (STATUSES, END_STATUSES, EXIT_CODES))
    causes = {word for word in exits if "_" in word}  # `error`, `device` are words for much else
    owned = statuses | ends | causes
    found = {
        (module, node.value): f"{module}:{node.lineno}"
        for module, found_in in sources.texts.items()
        if module not in (STATUSES, END_STATUSES, EXIT_CODES)
        for free in [public(sources.nodes[module])]
        for node in found_in
        # monitoring stands alone: of the statuses it knows those of an end record
        if id(node) not in free and node.value in (ends if module.startswith("monitoring") else owned)
    }
    second = {where: word for (module, word), where in found.items() if (module, word) not in NO_STATUSES}
    assert second == {}, f"import the word from {STATUSES}, {END_STATUSES} or {EXIT_CODES}"
    assert set(NO_STATUSES) <= set(found), "these exceptions are over"


def test_exit_codes_have_one_owner(sources: Sources) -> None:
    codes = {
        node.value
        for owner in (EXIT_CODES, "monitoring.errors")
        for node in sources.nodes[owner]
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= FIRST_OWN_CODE
    }
    assert codes == {65, 69, 71, 74, 75}
    found = {
        (module, node.value): f"{module}:{node.lineno}"
        for module, nodes in sources.nodes.items()
        if module not in (EXIT_CODES, "monitoring.errors")
        for node in nodes
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in codes
    }
    second = {where: code for (module, code), where in found.items() if (module, code) not in NO_EXIT_CODES}
    assert second == {}, f"import the code from {EXIT_CODES}"
    assert set(NO_EXIT_CODES) <= set(found), "these exceptions are over"


@pytest.mark.parametrize(
    ("constant", "owner"), [("STATUS_JSON", STATUSES), ("MATRIX_JSON", "kharness.runs.matrix_plan")]
)
def test_a_file_of_the_harness_has_one_parser(sources: Sources, constant: str, owner: str) -> None:
    readers = ("read_bytes", "read_text", "open", "loads", "load")
    found = [
        f"{module}:{node.lineno}"
        for module, nodes in sources.nodes.items()
        if module != owner
        for node in nodes
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) in readers
        and any(isinstance(part, ast.Name) and part.id == constant for part in ast.walk(node))
    ]
    assert found == [], f"{owner} reads it"


def test_which_attempts_failed_has_one_owner(sources: Sources) -> None:
    users = [
        module
        for module, nodes in sources.nodes.items()
        for node in nodes
        if isinstance(node, ast.Name) and node.id == "BESIDE_THE_RUN"
    ]
    assert set(users) == {STATUSES}, "ask Attempt.failed, or kharness.runs.status for those of a run"


def test_where_a_plan_lies_has_one_owner(sources: Sources) -> None:
    joining = {
        module
        for module, nodes in sources.nodes.items()
        for node in nodes
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and isinstance(node.right, ast.Name)
        and node.right.id == "MATRIX_JSON"
    }
    assert joining == {"kharness.runs.matrix_plan", "kharness.runs.rundir"}, "ask kharness.runs.rundir"


def test_a_plan_is_laid_out_in_one_place(nodes: Callable[[Path], list[Any]]) -> None:
    """Tests and benchmarks that make a matrix have its plan from planned_content, too."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("benchmarks", "lib", "scripts", "tests")
        for path in ROOT.glob(f"{folder}/**/*.py")
        if '"quarantine"' in path.read_text()
        for node in nodes(path)
        if isinstance(node, ast.Dict)
        and {"layers", "quarantine"} <= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    }
    # the second is the shape by which it is read
    assert found == {"lib/kharness/matrix/planning/matrix_json.py", "lib/kharness/runs/matrix_plan.py"}


def test_archives_have_one_owner(sources: Sources) -> None:
    """Samples of runs and logs of monitors are compressed and thinned by the same code."""
    found = {
        module
        for module, nodes in sources.nodes.items()
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("write_archive", "thinned")
    }
    assert found == {"monitoring.journal.encoding.archiver"}, (
        "say what is particular of your files as a Thinning"
    )


def test_what_becomes_of_a_gpu_has_one_owner(sources: Sources) -> None:
    """Agents and monitors report a GPU that is lost, fails or is back in the same words."""
    found = {
        module
        for module, inside in sources.texts.items()
        for text in inside
        if text.value == "cannot be read"
    }
    assert found == {"monitoring.gpu.device_states"}


def test_locks_that_are_tried_have_one_owner(sources: Sources) -> None:
    trying = {
        module
        for module, nodes in sources.nodes.items()
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in ("LOCK_NB", "LOCK_SH", "lockf")
    }
    assert trying == {"monitoring.host.file_locks"}


def test_variables_of_launchers_have_one_owner(sources: Sources) -> None:
    """But for torchrun's, by which the harness itself trains, and in Pythons that cannot import the owner."""
    names = {name for names in correlation.LAUNCHERS for name in names}
    found = {
        module
        for module, inside in sources.texts.items()
        if not module.startswith("kharness.") and any(text.value in names for text in inside)
    }
    assert found == {"monitoring.host.correlation", "monitoring.bridge.hook.sitecustomize"}
