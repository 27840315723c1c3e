"""Graphs: each module of this folder draws one, from run directories alone.

A module defines `numbers(summary) -> Numbers`, the CSV beside the picture, and `draw(summary) -> Figure`,
which draws those numbers and nothing else. One that also defines `applies(summary) -> bool` is left out where
that is false. A file whose name begins with an underscore is no graph.
"""

from __future__ import annotations

import csv
import importlib
import io
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from kharness.report.summary import Summary
from kharness.runs.files import GRAPHS
from monitoring.journal.atomic_file import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Numbers:
    """What a graph shows, as a table; an empty cell is a null."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()


class Graph(Protocol):
    """The two functions of a graph module."""

    def numbers(self, summary: Summary) -> Numbers: ...
    def draw(self, summary: Summary) -> Figure: ...


def graph_names() -> list[str]:
    """The graphs there are, by file name."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def graphs_that_choose() -> list[str]:
    """Those that are drawn only where `applies`: the graphs of GPU samples."""
    return [name for name in graph_names() if hasattr(_module(name), "applies")]


def draw_all(summary: Summary, names: Sequence[str] | None = None) -> list[Path]:
    """Write graphs/NAME.png and NAME.csv for every graph, or for those named; returns the pictures.

    A run without the numbers of a graph is named in it; a graph without any number says so.
    """
    import matplotlib

    from kharness.report.graphs._canvas import STYLE, png

    folder = summary.directory / GRAPHS
    folder.mkdir(exist_ok=True)
    pictures = []
    for name in graph_names() if names is None else names:
        module = _module(name)
        if hasattr(module, "applies") and not module.applies(summary):
            continue
        graph = cast(Graph, module)
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # nobody's matplotlibrc decides how a graph looks
            matplotlib.rcParams.update(STYLE)
            picture = png(graph.draw(summary))
        write_atomically(folder / f"{name}.csv", graph.numbers(summary).csv().encode())
        write_atomically(folder / f"{name}.png", picture)
        pictures.append(folder / f"{name}.png")
    return pictures


def shows_numbers(picture: Path) -> bool:
    """Whether the CSV beside a picture has more than its header; one without is not worth a look."""
    numbers = picture.with_suffix(".csv")
    return not numbers.exists() or numbers.read_bytes().count(b"\n") > 1


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
