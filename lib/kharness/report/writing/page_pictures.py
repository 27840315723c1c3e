"""Graphs and sheets as pictures in the page, each in its part, and what inference measured."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.writing import Table
from kharness.report.graphs import gpu_graphs, shows_numbers
from kharness.report.graphs._canvas import DPI
from kharness.report.judging.pareto import Front
from kharness.report.plots.gpu_plots import DRAWN as GPUS_DRAWN
from kharness.report.summary import Summary
from kharness.runs.files import GRAPHS, PREDICTIONS

# Drawn by the page itself, as far as runs have the numbers.
_OF_CURVES = frozenset({"deciding_metric", "training_loss", "validation_accuracy", "validation_loss"})
# What compares variants: the page draws it itself, or a single run has none of it.
_OF_VARIANTS = frozenset(
    {"differences", "pareto_front", "performance_profile", "time_per_step", "time_to_target"}
)
_PLACES = ("curves", "gpu_pictures")
NO_PICTURES: Mapping[str, Sequence[PagePicture]] = {name: [] for name in _PLACES}


@dataclass(frozen=True)
class PagePicture:
    """A graph, as it goes into the page."""

    title: str
    data: str
    """base64 of the PNG."""
    width: int
    """In CSS pixels: 96 an inch, however finely it was drawn."""
    height: int


def say_something(fronts: Sequence[Front]) -> bool:
    """Whether a cost worth showing was measured: CPU process memory alone separates no variants."""
    return any(front.points for front in fronts if front.cost != "peak_cpu_memory") or any(
        len(front.members) < len(front.points) for front in fronts
    )


def pictures(
    summary: Summary, drawn: Collection[str], *, draws_gpus: bool
) -> Mapping[str, Sequence[PagePicture]]:
    """Return those with something to show, by the part of the page that they belong to.

    `drawn` are the curves that the page draws itself, `draws_gpus` is whether it draws the GPUs.
    """
    if summary.is_comparison:
        return NO_PICTURES
    found: dict[str, list[PagePicture]] = {name: [] for name in _PLACES}
    left_out = _OF_VARIANTS | (_OF_CURVES if drawn else frozenset())
    left_out |= GPUS_DRAWN if draws_gpus else frozenset()
    for path in sorted((summary.directory / GRAPHS).glob("*.png")):
        if shows_numbers(path) and path.stem not in left_out:
            found["gpu_pictures" if path.stem in gpu_graphs() else "curves"].append(_picture(path))
    return found


def _picture(path: Path, *, title: str = "", dpi: int = DPI) -> PagePicture:
    content = path.read_bytes()
    # PNG: signature (8 bytes), then the header chunk: length, IHDR, width and height in pixels.
    width, height = (int.from_bytes(content[start : start + 4]) for start in (16, 20))
    return PagePicture(
        title=title or path.stem.replace("_", " "),
        data=base64.b64encode(content).decode(),
        width=round(width * 96 / dpi),
        height=round(height * 96 / dpi),
    )


def sheets(summary: Summary) -> list[PagePicture]:
    """Return the pictures of what complete runs predicted, under their names."""
    found = [(cell.name, cell.run.directory / PREDICTIONS) for cell in summary.cells if cell.run.complete]
    there = [(name, path) for name, path in found if path.is_file()][:MAX_SHEETS]
    return [_picture(path, title=name, dpi=96) for name, path in there]


# As trainings name them in records of the split `inference`.
_MEASURED = re.compile(r"batch_(\d+)_latency_seconds")

# Runs whose pictures are on the page; all of them are in the run directories.
MAX_SHEETS = 24


def inference_table(summary: Summary) -> Table | None:
    """A row for each batch size of each complete run; None where nothing was measured."""
    rows = list(_rows(summary))
    header = ["run", "batch size", "latency (ms)", "samples per second", "accuracy (%)"]
    return Table(header, rows, 1) if rows else None


def _rows(summary: Summary) -> Iterator[list[str]]:
    for cell in summary.cells:
        named = [_MEASURED.fullmatch(name) for event, name in cell.run.series if event == "eval"]
        sizes = sorted(int(match[1]) for match in named if match)
        for size in sizes if cell.run.complete else ():
            values = [
                cell.run.metric("eval", f"batch_{size}_{name}").last
                for name in ("latency_seconds", "samples_per_sec", "accuracy")
            ]
            scaled = zip(values, (1000, 1, 100), strict=True)
            yield [
                *(cell.name, str(size)),
                *("" if value is None else f"{value * factor:.2f}" for value, factor in scaled),
            ]
