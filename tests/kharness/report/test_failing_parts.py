"""A graph, a table or a file of the report that fails costs itself: the rest is written and says so."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kharness.report import report
from kharness.report.graphs import GRAPH_MODULES, draw_all, warnings_of
from kharness.report.report import told_report, write_files
from kharness.report.summary import collect
from kharness.report.writing import files, html

from .conftest import Make

HEADER = "from kharness.report.graphs import Numbers\ndef numbers(summary): return Numbers(['run'], [])\n"
BROKEN = {
    "a_import": "import of_nobody\n",
    "a_exit": HEADER + "def draw(summary): raise SystemExit('no display')\n",
    "a_syntax": "def draw(summary:\n",
    "z_raises": HEADER + "def draw(summary):\n    raise KeyError('lr')\n",
}
WARNINGS = [
    "graph a_exit: SystemExit: no display",
    "graph a_import: graph 'a_import' cannot be imported: ModuleNotFoundError: No module named 'of_nobody'",
    "graph a_syntax: graph 'a_syntax' cannot be imported: SyntaxError: "
    "'(' was never closed (a_syntax.py, line 1)",
    "graph z_raises: KeyError: 'lr'",
]
FILES = ["summary.json", "summary.csv", "summary.md", "junit.xml", "report.html"]


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Path]:
    """Graphs that fail, put into the package as people's own are; the folder of their modules."""
    package = importlib.import_module(GRAPH_MODULES.package)
    folder = tmp_path / "their_graphs"
    folder.mkdir()
    for name, text in BROKEN.items():
        (folder / f"{name}.py").write_text(text)
    package.__path__.append(str(folder))
    vars(GRAPH_MODULES).pop("_modules", None)
    importlib.invalidate_caches()
    yield folder
    package.__path__.remove(str(folder))
    vars(GRAPH_MODULES).pop("_modules", None)
    for name in BROKEN:
        sys.modules.pop(f"{GRAPH_MODULES.package}.{name}", None)


@pytest.fixture
def recorded(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root / "tests/data/recorded_matrix", tmp_path / "recorded_matrix"))


@pytest.fixture
def said() -> list[str]:
    return []


def in_report(directory: Path) -> list[bool]:
    """Whether each file that people read names each warning."""
    found = [json.loads((directory / "summary.json").read_text())["warnings"] == WARNINGS]
    page, marked = (directory / "report.html").read_text(), (directory / "summary.md").read_text()
    found += [f"graph {name}: " in text.replace("\\", "") for name in BROKEN for text in (page, marked)]
    return found


def test_graphs_that_fail_cost_only_themselves(recorded: Path, broken: Path, said: list[str]) -> None:
    folder = recorded / "graphs"
    folder.mkdir(exist_ok=True)
    (folder / "z_raises.png").write_bytes(b"of earlier numbers")
    assert told_report(recorded, said.append) == 0
    assert [line for line in said if line.startswith("warning:")] == [f"warning: {one}" for one in WARNINGS]
    assert said[-1].startswith("summary: ")
    assert [name for name in FILES if not (recorded / name).exists()] == []
    assert in_report(recorded) == [True] * 9
    assert (folder / "training_loss.png").exists(), "the graphs between them are drawn"
    assert {path.stem for path in folder.glob("*.png")} & set(BROKEN) == set()
    # `make summary`, another process, takes the graphs as they are.
    write_files(collect(recorded))
    assert in_report(recorded) == [True] * 9
    # Repaired, it is in the report again.
    (broken / "z_raises.py").write_text((broken / "z_raises.py").read_text().replace("KeyError", "Missing"))
    sys.modules.pop(f"{GRAPH_MODULES.package}.z_raises")
    assert draw_all(summary := collect(recorded), ["z_raises"]) == []
    assert summary.warnings == ["graph z_raises: NameError: name 'Missing' is not defined"]
    (broken / "z_raises.py").write_text("from kharness.report.graphs.training_loss import draw, numbers\n")
    sys.modules.pop(f"{GRAPH_MODULES.package}.z_raises")
    importlib.invalidate_caches()
    draw_all(collect(recorded), ["z_raises"])
    assert sorted(path.name for path in folder.glob("z_raises*")) == ["z_raises.csv", "z_raises.png"]


def test_a_regression_is_still_the_exit_code(recorded: Path, broken: Path, said: list[str]) -> None:
    given = {"FAIL_ON_REGRESSION": "y", "CONFIG_REPORT_GRAPHS": "n"}
    expected = told_report(recorded, lambda _: None, given)
    assert told_report(recorded, said.append, {"FAIL_ON_REGRESSION": "y"}) == expected


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_fails_is_missing_and_the_others_say_so(
    name: str, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> str:
        raise ValueError("no such table")

    made: dict[str, Callable[..., str | Iterable[str]]] = {**files.FILES, name: fails}
    monkeypatch.setattr(files, "FILES", made)
    (recorded / name).write_text("of earlier numbers")
    written = write_files(collect(recorded))
    assert [path.name for path in written] == [one for one in FILES if one != name]
    assert not (recorded / name).exists()
    said = f"{name}: ValueError: no such table"
    shown = {path.name: said in path.read_text().replace("\\", "") for path in written}
    assert shown == {one: one in ("summary.json", "summary.md", "report.html") for one in shown}


def test_conclusions_that_fail_cost_their_tables(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def fails(*_: object) -> str:
        raise ZeroDivisionError("no spread")

    for module, name in (
        (html, "verdicts_table"),
        (files, "conclusions_markdown"),
        (report, "comparison_lines"),
    ):
        monkeypatch.setattr(module, name, fails)
    assert told_report(recorded, said.append, {"CONFIG_REPORT_GRAPHS": "n"}) == 0
    warnings = [f"warning: {part}: ZeroDivisionError: no spread" for part in ("verdicts", "conclusions")]
    assert [line for line in said if line.startswith("warning:")] == warnings
    assert "OPTIMIZER" in said[0], "the table of the terminal is there"
    assert [name for name in FILES if not (recorded / name).exists()] == []
    assert "## Runs" in (recorded / "summary.md").read_text()


def test_a_table_that_fails_leaves_the_rest_of_its_page(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd"]})
    made.add({"OPTIMIZER": "sgd"}, make.training([2.0, 1.0], [0.5], 0.75))
    monkeypatch.setattr(html, "inference_table", lambda _: dict[str, str]()["latency"])
    written = write_files(summary := collect(made.directory))
    assert [path.name for path in written] == FILES
    assert warnings_of(summary) == ["inference: KeyError: 'latency'"]
    page = written[-1].read_text()
    assert [text in page for text in ("Every run", "inference: KeyError: &#39;latency&#39;")] == [True, True]
