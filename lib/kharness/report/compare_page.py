"""`make report A= B=`: the page of a comparison, which is that of a matrix with both sides as an axis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

from kharness.report.collection import COMPARISON, SIDE, CellResult, Collection, Variant
from kharness.report.compare import Compared, compare
from kharness.report.judging.conclusions import Conclusions, conclude
from kharness.report.summary import Summary
from kharness.report.writing.html import as_html
from monitoring.journal.atomic_file import write_atomically

_LONGEST_NAME = 100


@dataclass(frozen=True)
class ComparisonSummary(Summary):
    """Both sides as one summary, judged as `make compare` judges them."""

    compared: Compared = field(kw_only=True)

    @cached_property
    def conclusions(self) -> Conclusions:
        """Those of `compare`, and times and fronts beside them."""
        found, compared = conclude(self), self.compared
        return replace(
            found,
            metric=compared.metric,
            metric_note=compared.note,
            metrics=dict.fromkeys(found.metrics, (compared.metric, compared.note)),
            baseline=compared.pairs[0][1].label if len(compared.pairs) == 1 else "A",
            comparisons=compared.decisive,
            effects=[],
            notes=compared.unmatched,
        )


def write_comparison(a: str, b: str, given: Mapping[str, str] | None = None) -> Path:
    """Write the page into B's directory and return its path. ReportError as of `compare`."""
    compared = compare(a, b, given)
    path = compared.b.directory / f"{_name(compared)}.html"
    write_atomically(path, as_html(summary_of(compared)).encode())
    return path


def summary_of(compared: Compared) -> ComparisonSummary:
    """Return the summary of all pairs, A's variant before B's."""
    variants = [
        _on_side(one, side) for ours, theirs in compared.pairs for one, side in ((theirs, "A"), (ours, "B"))
    ]
    cells = [cell for variant in variants for cell in variant.cells]
    axes = {
        symbol: list(values)
        for symbol in (compared.a.axes if compared.a.axes else compared.b.axes)
        if (values := dict.fromkeys(cell.values[symbol] for cell in cells if symbol in cell.values))
    }
    whole = Collection(
        compared.b.directory,
        f"{compared.places[1]} against {compared.places[0]}",
        {SIDE: ["A", "B"], **axes},
        {"kind": COMPARISON},
        cells,
        variants,
        replace(compared.b.settings, baseline=f"{SIDE}=A"),
    )
    return ComparisonSummary(
        **{known.name: getattr(whole, known.name) for known in fields(whole)}, compared=compared
    )


def _on_side(variant: Variant, side: str) -> Variant:
    cells: list[CellResult] = [
        replace(cell, name=f"{side}: {cell.name}", values={SIDE: side, **cell.values})
        for cell in variant.cells
    ]
    return replace(variant, values={SIDE: side, **variant.values}, cells=cells)


def _name(compared: Compared) -> str:
    """Return `compare_old_new`: the last part of both places, of characters that a file's name may have."""
    parts = [re.sub(r"[^\w.=-]+", "-", Path(place).name, flags=re.ASCII) for place in compared.places]
    return f"compare_{'_'.join(parts)}"[:_LONGEST_NAME]
