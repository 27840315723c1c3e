"""Graphs: each module of this folder draws one, from run directories alone.

A module defines `numbers(summary) -> Numbers`, the CSV next to the picture, and `draw(summary) -> Figure`,
which draws those numbers and nothing else. One that also defines `applies(summary) -> bool` is left out where
that is false. A file whose name begins with an underscore is no graph.
"""

from __future__ import annotations

import csv
import gc
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kharness.report.errors import ReportError
from kharness.report.summary import Summary
from kharness.runs.files import GRAPHS
from monitoring.dropins import DropIns
from monitoring.host.libc import keep_large_blocks_apart
from monitoring.journal.atomic_file import replacing, write_atomically

if TYPE_CHECKING:
    import matplotlib.figure

Figure: TypeAlias = "matplotlib.figure.Figure"
"""The type that `draw` returns; matplotlib itself loads when a graph is drawn."""

GRAPH_MODULES = DropIns("graph", "kharness.report.graphs", unknown=ReportError, refused=ReportError)

# Beside the pictures: why one could not be drawn.
FAILED = ".failed"


@dataclass(frozen=True)
class Numbers:
    """A graph's numbers as a table, whose rows may be read once; an empty cell is a null."""

    header: Sequence[str]
    rows: Iterable[Sequence[str | int | float | None]]

    def write(self, path: Path) -> None:
        """Write them as CSV, a row at a time: a million of them take 130 MB."""
        with replacing(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(self.header)
            writer.writerows(self.rows)
            text.detach()  # with all that was written


# Runs from which on a figure takes more memory than looking for it takes time.
_MANY = 200


def gpu_graphs() -> list[str]:
    """Those of GPU samples."""
    return [name for name in GRAPH_MODULES.names if "gpu" in name]


def draw_all(summary: Summary, names: Sequence[str] | None = None) -> list[Path]:
    """Write graphs/NAME.png and NAME.csv for every graph, or for those named; returns the pictures.

    A run without the numbers of a graph is named in it; a graph without any number says so. One that fails
    leaves its reason in graphs/NAME.failed, and no picture of earlier numbers.
    """
    folder = summary.directory / GRAPHS
    folder.mkdir(exist_ok=True)
    pictures: list[Path] = []
    if len(summary.cells) >= _MANY:
        keep_large_blocks_apart()
    for name in GRAPH_MODULES.names if names is None else names:
        picture = folder / f"{name}.png"
        drawn = summary.part(f"graph {name}", partial(_drawn, summary, name, picture), None)
        if drawn is None:
            for earlier in (picture, picture.with_suffix(".csv")):
                earlier.unlink(missing_ok=True)
            write_atomically(folder / f"{name}{FAILED}", f"{summary.warnings[-1]}\n".encode())
            continue
        (folder / f"{name}{FAILED}").unlink(missing_ok=True)
        if isinstance(drawn, OSError):
            raise drawn
        pictures += drawn
        if drawn and len(summary.cells) >= _MANY:
            gc.collect()  # a figure refers to itself, and its pixels stay until then
    return pictures


def _drawn(summary: Summary, name: str, picture: Path) -> list[Path] | OSError:
    """Write the CSV and the picture of a graph, if it applies; returns the picture, or what prevents it."""
    from kharness.report.graphs._canvas import png, styled

    module = GRAPH_MODULES.load(name)
    if hasattr(module, "applies") and not module.applies(summary):
        return []
    with styled():
        pixels = png(module.draw(summary))
    numbers: Numbers = module.numbers(summary)
    try:
        numbers.write(picture.with_suffix(".csv"))
        write_atomically(picture, pixels)
    except OSError as error:
        return error
    return [picture]


def warnings_of(summary: Summary) -> list[str]:
    """Return what failed and so is not in the report: parts of it, and graphs when they were last drawn."""
    folders = dict.fromkeys([summary.directory, *summary.run_directories])
    failed = [path for folder in folders for path in sorted((folder / GRAPHS).glob(f"*{FAILED}"))]
    lines = [path.read_text(errors="replace").strip() for path in failed if path.stem in GRAPH_MODULES.names]
    return list(dict.fromkeys([*lines, *summary.warnings]))


def shows_numbers(picture: Path) -> bool:
    """Whether the CSV of a picture has more than its header; one without is not worth a look."""
    numbers = picture.with_suffix(".csv")
    if not numbers.exists():
        return True
    with numbers.open("rb") as file:  # that of ten thousand curves has a million lines
        return file.readline().endswith(b"\n") and file.readline().endswith(b"\n")
