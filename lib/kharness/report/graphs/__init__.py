"""Graphs: each module of this folder draws one, from run directories alone.

A module defines `numbers(summary) -> Numbers`, the CSV next to the picture, and `draw(summary) -> Figure`,
which draws those numbers and nothing else. One that also defines `applies(summary) -> bool` is left out where
that is false. A file whose name begins with an underscore is no graph.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from kharness.report.errors import ReportError
from kharness.report.summary import Summary
from kharness.runs.files import GRAPHS
from monitoring.dropins import DropIns
from monitoring.journal.atomic_file import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRAPH_MODULES = DropIns("graph", "kharness.report.graphs", unknown=ReportError)


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


def gpu_graphs() -> list[str]:
    """Those of GPU samples."""
    return [name for name in GRAPH_MODULES.names if "gpu" in name]


def draw_all(summary: Summary, names: Sequence[str] | None = None) -> list[Path]:
    """Write graphs/NAME.png and NAME.csv for every graph, or for those named; returns the pictures.

    A run without the numbers of a graph is named in it; a graph without any number says so.
    """
    import matplotlib

    from kharness.report.graphs._canvas import STYLE, png

    folder = summary.directory / GRAPHS
    folder.mkdir(exist_ok=True)
    pictures = []
    for name in GRAPH_MODULES.names if names is None else names:
        module = GRAPH_MODULES.load(name)
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
    """Whether the CSV of a picture has more than its header; one without is not worth a look."""
    numbers = picture.with_suffix(".csv")
    return not numbers.exists() or numbers.read_bytes().count(b"\n") > 1
