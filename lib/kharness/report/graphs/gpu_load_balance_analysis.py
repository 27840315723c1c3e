"""How evenly GPUs and ranks are loaded: each GPU's share, the CV in its bands, and each rank's own work."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from kharness.report.collection import CellResult
from kharness.report.gpu.balance import BALANCED, DECEIVING, seconds_waited, verdict, wasted_words
from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import INK, PALETTE, SOFT, canvas, notes, nothing_to_draw
from kharness.report.graphs._gpu_lines import MIB_PER_GIB, Sampled, sampled, without_samples
from kharness.report.graphs._gpu_lines import applies as has_samples
from kharness.report.summary import Summary
from monitoring.gpu.aggregates import BANDS, POOR
from monitoring.telemetry.load_balance import WORDS, RankBalance, RankTimes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "GPU Load Balance Analysis"
UNITS = {
    "memory": ("memory (GiB)", 1 / MIB_PER_GIB),
    "utilization": ("utilization (%)", 1.0),
    "power": ("power (W)", 1.0),
}
BAND_COLORS = ("#d7efe6", "#eaf4dc", "#fdf1d0", "#f9ddd0")
# More rows than this are a table, and that is the CSV.
MAX_RUNS = 40


@dataclass(frozen=True)
class GpuRow:
    """One number of one run: a GPU's mean, a CV, or a rank's phase."""

    variant: str
    run: str
    kind: str
    """`gpu`, `cv` or `rank`."""
    of: str
    """The GPU or the rank; empty for a CV."""
    quantity: str
    value: float
    low: float | None = None
    high: float | None = None
    quality: str | None = None


def applies(summary: Summary) -> bool:
    """Where a run has GPU samples; of a single run several ranks are enough."""
    return has_samples(summary) or _only_ranks(summary) is not None


def numbers(summary: Summary) -> Numbers:
    """Means of each GPU in the unit of the samples, CVs in percent with their band, seconds of each rank."""
    return Numbers(
        ["variant", "run", "kind", "of", "quantity", "value", "p05", "p95", "quality"],
        map(astuple, _rows(summary)),
    )


def draw(summary: Summary) -> Figure:
    alone = _only_ranks(summary)
    if alone is not None:
        return _draw_only_ranks(summary, alone)
    rows = _rows(summary)
    runs = [run for run in sampled(summary) if len(run.history.gpus) > 1]
    if not runs:
        return nothing_to_draw(TITLE, summary.title, summary, "no run has two GPUs: nothing is shared out")
    extra = notes(summary, without_samples(summary))
    if len(runs) > MAX_RUNS:
        extra.append(f"the first {MAX_RUNS} of {len(runs)} runs; the CSV has all")
        runs = runs[:MAX_RUNS]
    ranks = runs[0].cell.ranks[0] if len(runs) == 1 else None
    extra += _lines(_in_words(runs))
    dots = "bar: mean over the run   line: 5 to 95 % of its samples" if len(runs) == 1 else "dot: one run"
    subtitle = f"{summary.title}\n{dots}   CV: standard deviation over mean of the GPUs' means, in percent"
    right_rows = 3 if len(runs) == 1 else len(runs)
    upper = max(4.2, 0.9 + 0.34 * right_rows)
    lower = 0.9 + 0.3 * len(ranks.ranks) if ranks else 0.0
    gutter = 0.2 + 0.075 * max(11, *(len(run.cell.name) for run in runs)) if len(runs) > 1 else 1.0
    width = 10.6 + gutter
    figure = canvas(width, upper + lower, TITLE, subtitle, extra)
    grid = figure.add_gridspec(2 if ranks else 1, 1, height_ratios=[upper, lower] if ranks else [upper])
    columns = grid[0].subgridspec(1, 2, width_ratios=[5, 5.4], wspace=(0.35 + gutter) / 5)
    left = columns[0].subgridspec(len(UNITS), 1, hspace=0.2)
    for place, quantity in enumerate(UNITS):
        _draw_distribution(
            figure.add_subplot(left[place]), rows, runs, quantity, last=place == len(UNITS) - 1
        )
    _draw_bands(figure.add_subplot(columns[1]), rows, runs)
    if ranks:
        figure.subplots_adjust(hspace=0.42)
        _draw_ranks(figure.add_subplot(grid[1]), ranks)
    return figure


def _only_ranks(summary: Summary) -> CellResult | None:
    """The run, if there is one alone that has several ranks and no two GPUs to compare."""
    cell = summary.cells[0] if len(summary.cells) == 1 else None
    return cell if cell and cell.ranks[0] and len(cell.gpus.gpus) < 2 else None


def _draw_only_ranks(summary: Summary, cell: CellResult) -> Figure:
    ranks = cell.ranks[0]
    assert ranks is not None
    said = f"wasted share of the ranks' own work {wasted_words(ranks)}: {verdict(cell.gpus, ranks)}"
    subtitle = f"{summary.title}\nno two GPUs were sampled: the ranks' own work alone"
    figure = canvas(11.6, 0.9 + 0.3 * len(ranks.ranks), TITLE, subtitle, [*notes(summary, []), *_lines(said)])
    figure.subplots_adjust(top=1 - 1.25 / figure.get_figheight())
    _draw_ranks(figure.add_subplot(), ranks)
    return figure


def _lines(text: str) -> list[str]:
    """Return a text in lines as long as the picture is wide."""
    return textwrap.wrap(text, 150)


def _in_words(runs: Sequence[Sampled]) -> str:
    """Return what the graph shows, or why it does not."""
    known = [(run, ranks) for run in runs if (ranks := run.cell.ranks[0])]
    if not known:
        return f"whether a rank waits for another is not known: {runs[0].cell.ranks[1]}; {DECEIVING}"
    run, worst = max(known, key=lambda pair: pair[1].wasted_share)
    name = "" if len(runs) == 1 else f"{run.cell.name}: "
    share = f"{name}wasted share of the ranks' own work {wasted_words(worst)}"
    return f"{share}: {verdict(run.history, worst)}"


def _draw_distribution(
    axes: Axes, rows: Sequence[GpuRow], runs: Sequence[Sampled], quantity: str, *, last: bool
) -> None:
    """Each GPU's mean; the whisker of a single run is 5 % to 95 % of its samples."""
    label, scale = UNITS[quantity]
    names = {run.cell.name for run in runs}
    own = [row for row in rows if row.kind == "gpu" and row.quantity == quantity and row.run in names]
    gpus = list(dict.fromkeys(of for run in runs for of in _names(run).values()))
    for x, gpu in enumerate(gpus):
        values = [row for row in own if row.of == gpu]
        if not values:
            axes.text(*(x, 0.04, "?"), transform=axes.get_xaxis_transform(), ha="center", color=SOFT)
            continue
        mean = scale * sum(row.value for row in values) / len(values)
        axes.bar([x], [mean], width=0.62, color=PALETTE[0], alpha=0.35, lw=0, zorder=2)
        if len(runs) == 1 and values[0].low is not None and values[0].high is not None:
            axes.plot(
                [x, x], [scale * values[0].low, scale * values[0].high], color=PALETTE[0], lw=2, zorder=3
            )
        axes.plot(
            *([x] * len(values), [scale * row.value for row in values], "o"),
            ms=4 if len(gpus) <= 16 else 2.2,
            color=PALETTE[0],
            zorder=4,
        )
    axes.set_ylabel(label, fontsize=9)
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.6, len(gpus) - 0.4)
    step = max(1, len(gpus) // 16)
    shown = range(0, len(gpus), step)
    axes.set_xticks(shown, [gpus[x].removeprefix("GPU ") for x in shown] if last else [""] * len(shown))
    axes.grid(axis="x", visible=False)
    if last:
        axes.set_xlabel("GPU")


def _draw_bands(axes: Axes, rows: Sequence[GpuRow], runs: Sequence[Sampled]) -> None:
    """A dot a CV, on the bands that give it its name."""
    found = {(row.run, row.quantity): row for row in rows if row.kind == "cv"}
    end = max(26.0, 1.12 * max((row.value for row in found.values()), default=0.0))
    edges = [0.0, *(limit for limit, _ in BANDS), end]
    for i, name in enumerate((*(name for _, name in BANDS), POOR)):
        axes.axvspan(edges[i], edges[i + 1], color=BAND_COLORS[i], lw=0, zorder=0)
        middle = (edges[i] + edges[i + 1]) / 2
        narrow = edges[i + 1] - edges[i] < 0.13 * end
        axes.text(
            *(middle, 1.015, name),
            transform=axes.get_xaxis_transform(),
            fontsize=8,
            ha="center",
            va="bottom",
            color=INK,
            rotation=40 if narrow else 0,
        )
    if len(runs) == 1:
        labels = list(BALANCED)
        for y, quantity in enumerate(BALANCED):
            _dot(axes, found.get((runs[0].cell.name, quantity)), y, "o", PALETTE[0], named=True)
    else:
        labels = [run.cell.name for run in runs]
        for y, run in enumerate(runs):
            for i, (marker, color, quantity) in enumerate(zip("os^", PALETTE, BALANCED, strict=False)):
                lane = y + 0.22 * (i - 1)  # equal ones side by side
                _dot(axes, found.get((run.cell.name, quantity)), lane, marker, color, named=False)
        for marker, color, quantity in zip("os^", PALETTE, BALANCED, strict=False):
            axes.plot([], [], marker, color=color, ms=6, label=quantity)
        axes.legend(loc="lower right", fontsize=8.5, frameon=True, framealpha=0.9, edgecolor="none")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK, pad=8)
    axes.grid(visible=False)
    axes.set_xlim(0, end)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("CV over the GPUs (%)")


def _dot(axes: Axes, row: GpuRow | None, y: float, marker: str, color: str, *, named: bool) -> None:
    if row is None:
        if named:
            axes.text(0.4, y, "unknown", fontsize=8.5, color=SOFT, va="center")
        return
    axes.plot(
        [row.value],
        [y],
        marker,
        ms=8 if named else 6,
        color=color,
        mec="white",
        mew=0.8,
        zorder=4,
        clip_on=False,
    )
    if named:
        near_end = row.value > 0.75 * axes.get_xlim()[1]
        axes.annotate(
            f"{row.value:.1f}% {row.quality}",
            (row.value, y),
            xytext=(0, 8) if near_end else (8, 0),
            textcoords="offset points",
            fontsize=9,
            color=INK,
            ha="center" if near_end else "left",
            va="bottom" if near_end else "center",
        )


def _draw_ranks(axes: Axes, ranks: RankBalance) -> None:
    """Each rank's own work in a mean step, by phase; what is left to the longest is waiting."""
    for y, rank in enumerate(ranks.ranks):
        begin = 0.0
        for color, phase in zip(PALETTE, WORDS, strict=False):
            if phase in rank.phases:
                width = 1000 * rank.phases[phase]
                axes.barh([y], [width], left=begin, height=0.62, color=color, alpha=0.75, lw=0, zorder=2)
                begin += width
        axes.text(begin, y, _beside(rank, ranks), fontsize=8.5, va="center", color=INK)
    for color, phase in zip(PALETTE, WORDS, strict=False):
        if any(phase in rank.phases for rank in ranks.ranks):
            axes.barh([0], [0], color=color, alpha=0.75, label=WORDS[phase])
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=8.5, borderaxespad=0.2)
    axes.set_yticks(range(len(ranks.ranks)), [f"rank {rank.rank}" for rank in ranks.ranks])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(ranks.ranks) - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * 1000 * max(rank.seconds for rank in ranks.ranks) or 1)
    axes.set_xlabel("own work of a mean step, without collectives (ms)")


def _beside(rank: RankTimes, ranks: RankBalance) -> str:
    """The label of a rank's bar."""
    waits = f"waits {1000 * wait:.2f} ms" if (wait := seconds_waited(rank, ranks)) else ""
    return f" {'the slowest' if rank is ranks.slow else waits} {rank.name.removeprefix(f'rank {rank.rank}')}"


def _names(run: Sampled) -> dict[tuple[str, int], str]:
    """Return the labels of a run's GPUs."""
    gpus = run.history.gpus
    several_hosts = len({gpu.host for gpu in gpus}) > 1
    return {(gpu.host, gpu.index): f"{gpu.host} {gpu.index}" if several_hosts else gpu.label for gpu in gpus}


def _rows(summary: Summary) -> list[GpuRow]:
    """Return the rows of runs with two GPUs or more, or several ranks."""
    rows = []
    for run in (Sampled(variant.label, cell) for variant in summary.variants for cell in variant.cells):
        history, variant, name = run.history, run.variant, run.cell.name
        rows += _of_ranks(run)
        if len(history.gpus) < 2:
            continue
        names = _names(run)
        for gpu in history.gpus:
            of = names[gpu.host, gpu.index]
            for quantity in BALANCED:
                spread = gpu.spreads.get(quantity)
                if spread is not None:
                    rows.append(
                        GpuRow(variant, name, "gpu", of, quantity, spread.mean, spread.low, spread.high)
                    )
        for quantity in BALANCED:
            cv, quality = history.balance(quantity)
            if cv is not None:
                rows.append(GpuRow(variant, name, "cv", "", quantity, cv, quality=quality))
    return rows


def _of_ranks(run: Sampled) -> list[GpuRow]:
    ranks = run.cell.ranks[0]
    return [
        GpuRow(run.variant, run.cell.name, "rank", rank.name, phase, value)
        for rank in (ranks.ranks if ranks else ())
        for phase, value in rank.phases.items()
    ]
