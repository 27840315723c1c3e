"""The answer of a sweep: the best configuration, what cannot be told from it, the history, what mattered."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kharness.config.writing import ABSENT, Table
from kharness.report.collection import CellResult
from kharness.report.comparison_table import number_words
from kharness.report.curves import Kind, Strand
from kharness.report.importance import importances
from kharness.report.metrics import Metric, metric_named
from kharness.report.overview.next_runs import Suggestion
from kharness.report.plots.plot import Plot, plot_of
from kharness.report.summary import Summary
from kharness.runs.files import LEADERBOARD_JSON
from kharness.runs.matrix_plan import short_value
from kharness.runs.status import COMPLETE


@dataclass(frozen=True)
class SweepFacts:
    """The contents of a leaderboard.json, in words and pictures."""

    lead: str
    shown: Sequence[str]
    """Sentences on what the ranks do not say."""
    next_runs: Sequence[Suggestion]
    """How the best is confirmed."""
    table: Table
    history: Plot | None
    mattered: Table | None


def sweep_facts(summary: Summary) -> SweepFacts | None:
    """Read the leaderboard of a sweep; None for a matrix, and before a trial is complete."""
    if not summary.is_sweep:
        return None
    with contextlib.suppress(OSError, ValueError):
        board = json.loads((summary.directory / LEADERBOARD_JSON).read_bytes())
        if board["rows"]:
            return _facts(summary, board)
    return None


def _facts(summary: Summary, board: Mapping[str, Any]) -> SweepFacts:
    metric = metric_named(board["metric"], summary.settings.better)
    symbols = list(dict.fromkeys(name for row in board["rows"] for name in row["values"]))
    known = [
        (place, cell, value)
        for place, cell in enumerate(summary.cells, 1)
        if cell.run.complete and (value := cell.number(metric)) is not None
    ]
    confirm = board.get("confirm") or ""
    words = f"To {board.get('confirm_words') or 'train the best again'}"
    warning = (
        "The best was chosen by the validation set that it is shown with: expect less of it"
        if board["warning"]
        else ""
    )
    return SweepFacts(
        lead=_lead(board, metric),
        shown=[f"{line[:1].upper()}{line[1:]}." for line in [*board["notes"], warning] if line],
        next_runs=[Suggestion(words, confirm)] if confirm else [],
        table=_table(board, metric, symbols),
        history=_history(known, metric, is_down=board["direction"] == "minimize"),
        mattered=_mattered(known, symbols),
    )


def _lead(board: Mapping[str, Any], metric: Metric) -> str:
    """Return `Best of 14 configurations: optimizer adamw, learning rate 0.027: val loss 0.1546.`"""
    first, *others = board["rows"]
    values = ", ".join(
        f"{symbol_words(name)} {short_value(value)}" for name, value in first["values"].items()
    )
    best = f"{values}: {metric.title} {number_words(first['mean'], metric)}"
    if not others:
        return f"The one complete configuration: {best}."
    last = (first["rank_range"] or [1, 1])[1]
    equal = f"; {last - 1} of the others may be as good" if last > 1 else ""
    return f"Best of {len(others) + 1} configurations: {best}{equal}."


def _table(board: Mapping[str, Any], metric: Metric, symbols: Sequence[str]) -> Table:
    rows = []
    for row in board["rows"]:
        low, high = row["rank_range"] or (None, None)
        spread = (
            ""
            if row["standard_deviation"] is None
            else f" ± {number_words(row['standard_deviation'], metric)}"
        )
        rows.append(
            [
                *(short_value(row["values"].get(name, ABSENT)) for name in symbols),
                str(row["rank"]),
                ABSENT if low is None else str(low) if low == high else f"{low} to {high}",
                f"{number_words(row['mean'], metric)}{spread}",
                number_words(row["best_validation"], metric),
                f"{row[COMPLETE]}/{len(row['trials'])}",
                row["trials"][0] if len(row["trials"]) == 1 else ABSENT,
            ]
        )
    range_title = f"rank, {board['confidence'] * 100:g} %"
    numbers = ["rank", range_title, metric.label, f"best {metric.label}", "n", "trial"]
    return Table([*symbols, *numbers], rows, text_columns=len(symbols)).without_empty()


def _history(known: Sequence[tuple[int, CellResult, float]], metric: Metric, *, is_down: bool) -> Plot | None:
    """Return a point per complete trial in the order of their planning, and the best until then as a line."""
    if len(known) < 2:
        return None
    places, values = [place for place, _, _ in known], [value * metric.scale for _, _, value in known]
    best = list(itertools.accumulate(values, min if is_down else max))
    asked: Kind = "log" if is_down else "linear"
    titles = [f"{cell.name}: {number_words(value, metric)}" for _, cell, value in known]
    line = Strand("best so far", 1, "mean", places, best)
    points = Strand("", 0, "point", places, values, titles=titles)
    plot = plot_of("history", metric.label, [line, points], x_label="trial", scale=asked)
    return replace(plot, title=f"{metric.label} of each trial", in_words=plot.alt)


def _mattered(known: Sequence[tuple[int, CellResult, float]], symbols: Sequence[str]) -> Table | None:
    """Return how much each parameter tells of the ranks; None where too few trials say anything."""
    values = [{name: cell.values[name] for name in symbols if name in cell.values} for _, cell, _ in known]
    found = [one for one in importances(values, [value for *_, value in known]) if one.share is not None]
    if not found:
        return None
    header = ["parameter", "share of the ranks (%)", "a larger value"]
    ways = {None: ABSENT, True: "more", False: "less"}
    rows = [[one.symbol, f"{100 * (one.share or 0):.0f}", ways[one.rises]] for one in found]
    return Table(header, rows, 1).without_empty()


_WRITTEN = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion-mnist": "Fashion-MNIST",
    "finewebedu": "FineWeb-Edu",
    "gpt2": "GPT-2",
    "lenet5": "LeNet-5",
    "mnist": "MNIST",
    "mnist-subset": "MNIST (subset)",
    "openwebtext": "OpenWebText",
    "resnet50": "ResNet-50",
    "shakespeare": "Shakespeare",
    "shakespeare-char": "Shakespeare (characters)",
    "tinystories": "TinyStories",
}


def spoken(name: str) -> str:
    """Return the written form of a name; one without an entry is shown as it is."""
    return _WRITTEN.get(name, name)


def symbol_words(symbol: str) -> str:
    """Return `learning rate` for LEARNING_RATE."""
    return symbol.lower().replace("_", " ")
