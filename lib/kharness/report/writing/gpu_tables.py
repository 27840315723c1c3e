"""The GPUs of a run, and of all runs, as tables and lines for a terminal, a page and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kharness.config.writing import ABSENT, Table, attributes
from kharness.report.collection import CellResult
from kharness.report.gpu.balance import BALANCED, balance_line, far_line, rank_lines
from kharness.report.gpu.history import QUANTITIES, GpuRecording, GpuSeries
from kharness.report.summary import Summary
from monitoring.counts import counted

EXPLANATION = (
    "Means over all samples of a run; MB are MiB as in nvidia-smi. CV is the standard deviation over the "
    "mean of the GPUs' means, in percent: below 5 Excellent, below 10 Good, below 20 Fair, else Poor. It "
    "does not show whether a GPU waits for another one, which counts as busy; the wasted share of the ranks' "
    "own work does, where their step records have it."
)

# How it is known which GPUs are a run's, where that is not by its processes on them.
SOURCES = {
    "device": "the run's GPUs are those that the training names; none of its processes was seen on any",
    "selection": "the run's GPUs are all that it was given; none of its processes was seen on any",
}

UNKNOWN = (
    "which GPUs the run used is not known: none of its processes was seen on any, and it names none "
    '(`Run(identity={"device": "cuda:0"})`); so it has no energy, hours or cost of them'
)

# Seconds between the last sample and the end of a run from which on that is said.
LATE = 5.0

# A share that rounds to less than all.
WHOLE = 0.995


def with_load(summary: Summary) -> Sequence[CellResult]:
    """The runs whose load is known, by samples of their GPUs or by the work of several ranks.

    A single run counts with samples of other GPUs alone, and any run with GPUs that are not known to be its.
    """
    others = not summary.plan
    return [
        cell
        for cell in summary.cells
        if cell.gpus or cell.ranks[0] or cell.gpus.are_unknown or (others and cell.gpus.others)
    ]


def breakdown_lines(cell: CellResult) -> list[str]:
    """The per-GPU table of a run, its totals, its balance and what else must be said."""
    history = cell.gpus
    title, table = "no GPU samples", []
    if history:
        title = f"Per-GPU Breakdown ({_length(history)})"
        table = per_gpu(history.gpus).plain().splitlines()
    elif history.are_unknown:
        title = f"GPUs of the run not known ({_length(history)})"
    elif history.others:
        title = f"no GPU of its own ({_length(history)})"
    said = [*table, *_said_of_run(cell), *_others_lines(history)]
    return [f"{cell.name} - {title}:", *(f"    {line}" for line in said)]


def _others_lines(history: GpuRecording) -> list[str]:
    """The table of GPUs that are none of the run's."""
    if not history.others:
        return []
    return ["Other GPUs of this machine:", *per_gpu(history.others).plain().splitlines()]


def per_gpu(gpus: Sequence[GpuSeries]) -> Table:
    """One row per GPU: mean and deviation of its memory, then the rest."""
    rows = [
        [
            gpu.label,
            gpu.name or ABSENT,
            gpu.state,
            _memory(gpu),
            _of_gpu(gpu, "memory", "peak", 1),
            _share(gpu),
            _of_gpu(gpu, "utilization", "mean", 1),
            _of_gpu(gpu, "temperature", "peak", 0),
            _of_gpu(gpu, "power", "mean", 1),
            _number(gpu.energy_joules, 0),
        ]
        for gpu in gpus
    ]
    header = ["GPU", "name", "state", "memory (MB)", "peak (MB)", "peak (%)", "util (%)"]
    return Table([*header, "max temp (°C)", "power (W)", "energy (J)"], rows, text_columns=3)


def runs_table(summary: Summary) -> Table:
    """One row per run: totals over its GPUs, and how evenly it used them."""
    rows = []
    for cell in with_load(summary):
        history, (ranks, _) = cell.gpus, cell.ranks
        row = [cell.name, str(len(history.gpus) or ABSENT), _number(history.peak_memory_mb, 0)]
        row += [_number(history.mean("utilization"), 1), _number(history.peak("temperature"), 0)]
        power, _ = history.totals.get("power", (None, 0))
        row += [_number(power, 1), _number(history.energy_joules, 0)]
        row += [_cv(history, quantity) for quantity in BALANCED]
        rows.append([*row, f"{100 * ranks.wasted_share:.1f}" if ranks else ABSENT])
    header = ["run", "GPUs", "peak memory (MB)", "util (%)", "max temp (°C)", "power (W)", "energy (J)"]
    header += [f"{quantity} CV (%)" for quantity in BALANCED]
    return Table([*header, "wasted (%)"], rows, text_columns=1)


def gpus_table(summary: Summary) -> Table | None:
    """One row per run of a matrix, or per GPU of a single run; None where nothing is known."""
    cells = with_load(summary)
    if not cells:
        return None
    return runs_table(summary) if summary.plan or not cells[0].gpus else per_gpu(cells[0].gpus.gpus)


def said_of_gpus(summary: Summary) -> list[str]:
    """Return the remarks next to that table: balance, ranks and notes of each run."""
    cells = with_load(summary)
    if not summary.plan:
        return [line.strip() for cell in cells for line in _said_of_run(cell)]
    lines = []
    for cell in cells:
        said = rank_lines(cell.gpus, *cell.ranks)[:1] if cell.ranks[0] is not None else []
        far = far_line(cell.gpus)
        lines += [f"{cell.name}: {line}" for line in (*said, far, *remarks(cell.gpus)) if line]
    unknown = Counter(cell.ranks[1] for cell in cells if cell.ranks[0] is None)
    return lines + [
        f"wasted share not computed for {count} of {counted(len(cells), 'run')}: {why}"
        for why, count in unknown.items()
    ]


def _said_of_run(cell: CellResult) -> list[str]:
    """Below the table of a single run."""
    history = cell.gpus
    said = [_totals(history), balance_line(history), far_line(history)] if history else []
    return [
        *filter(None, said),
        *rank_lines(history, *cell.ranks),
        *remarks(history),
        *_end_lines(history, cell.run.end),
    ]


def _end_lines(history: GpuRecording, end: Mapping[str, object]) -> list[str]:
    """Return the time that the sums lack where sampling ended before the training did."""
    ended = end.get("time")
    if not history or not isinstance(ended, int | float):
        return []
    seconds = ended - history.started - history.seconds
    return [f"the last sample is {seconds:,.0f} s older than the end of the run"] if seconds > LATE else []


def remarks(history: GpuRecording) -> list[str]:
    """Return what a table of means hides: GPUs that disappeared or were shared, clocks held down by heat."""
    found = [SOURCES[history.devices_source]] if history and history.devices_source in SOURCES else []
    if history.are_unknown:
        found.append(UNKNOWN)
    if history and history.unmeasured_seconds:
        found.append(_unmeasured(history, history.unmeasured_seconds))
    for gpu in history.gpus:
        if gpu.outages and not gpu.spreads:
            what = "did not answer while it was the run's" if gpu.has_answered else "never answered"
            ending = f"; {gpu.state} at the end: {gpu.error}" if gpu.state != "ok" else ""
            found.append(f"{gpu.label} {what}{ending}")
            continue
        if gpu.outages:
            found.append(_outage(gpu))
        if gpu.run_share < WHOLE:
            found.append(
                f"{gpu.label} was shared, by the work of each process on it where the driver tells that: "
                f"{100 * gpu.run_share:.0f}% of its time counts for the run, and so of its energy"
            )
        for reason, count in sorted(gpu.slowed.items()):
            share = 100 * count / gpu.num_samples
            found.append(f"{gpu.label} had its clocks held down ({reason}) in {share:.0f}% of the samples")
        missing = [quantity for quantity in QUANTITIES if quantity not in gpu.spreads]
        if missing:
            found.append(f"{gpu.label} does not report {', '.join(missing)}")
    return found


def _unmeasured(history: GpuRecording, seconds: float) -> str:
    """Return what a gap in the samples means for the energy."""
    counted = {
        "counter": "energy of that time is in the sums, by the counters",
        "integrated": "energy of that time is in no sum",
    }
    meaning = counted.get(history.energy_source or "", "energy of that time is in the sums only by counters")
    return f"nothing was sampled for {seconds:,.1f} s: {meaning}"


def _outage(gpu: GpuSeries) -> str:
    """When a GPU did not answer, for how long, and of which samples its numbers are."""
    ended = [(start, end) for start, end in gpu.outages if end is not None]
    seconds = sum(end - start for start, end in ended)
    when = [f"from {start:,.1f} s to {end:,.1f} s" for start, end in ended]
    when += [f"from {start:,.1f} s on" for start, end in gpu.outages if end is None]
    length = f" for {seconds:,.1f} s," if ended else ""
    said = f"{gpu.label} did not answer{length} {' and '.join(when)}; "
    if gpu.state != "ok":
        said += f"{gpu.state} at the end: {gpu.error}; "
    n = max(spread.n for spread in gpu.spreads.values())
    after = f"of the {counted(n, 'sample')} before and after" if ended else "those before"
    return f"{said}its numbers are {after}"


def gpus_json(cell: CellResult) -> dict[str, object] | None:
    """Unrounded, for summary.json; null where nothing is known."""
    history = cell.gpus
    ranks, why_not = cell.ranks
    if not history and not history.others and ranks is None:
        return None
    return {
        **attributes(history, "num_samples", "seconds", "peak_memory_mb", "energy_joules", "energy_source"),
        **attributes(history, "cost", "unmeasured_seconds", "devices_source"),
        "load_balance": {
            quantity: dict(zip(("cv", "quality"), history.balance(quantity), strict=True))
            for quantity in BALANCED
        },
        "ranks": None
        if ranks is None
        else {
            **attributes(ranks, "num_steps", "wasted_share", "lasting_share"),
            "slowest": None if ranks.slow is None else ranks.slow.name,
            "slowest_in": ranks.slow_in or None,
            "unproven": ranks.unproven or None,
            "seconds": {rank.name: dict(rank.phases) for rank in ranks.ranks},
            "best_over_mine": {rank.name: rank.best_over_mine for rank in ranks.ranks},
            "left_out": dict(ranks.left_out),
        },
        "ranks_not_computed": why_not or None,
        "gpus": [_gpu_json(gpu) for gpu in history.gpus],
        "other_gpus": [_gpu_json(gpu) for gpu in history.others],
    }


def _gpu_json(gpu: GpuSeries) -> dict[str, object]:
    return {
        **attributes(gpu, "index", "uuid", "name"),
        "host": gpu.host or None,
        "state": gpu.state,
        "memory_total_mb": gpu.total_mb,
        "energy_joules": gpu.energy_joules,
        "run_share": gpu.run_share,
        **{name: attributes(spread, "n", "mean", "std", "peak") for name, spread in gpu.spreads.items()},
    }


def _length(history: GpuRecording) -> str:
    return f"{history.num_samples:,} samples over {history.seconds:,.1f} s"


def _totals(history: GpuRecording) -> str:
    """Return the sums over the run's GPUs."""
    memory, power = history.totals.get("memory"), history.totals.get("power")
    parts = [f"{memory[0]:,.1f} MB{_of_some(history, memory[1])}" if memory else "memory unknown"]
    if history.peak_memory_mb is not None:
        parts.append(f"peak {history.peak_memory_mb:,.1f} MB")
    if power:
        parts.append(f"{power[0]:,.1f} W{_of_some(history, power[1])}")
    if history.energy_joules is not None:
        parts.append(f"{history.energy_joules:,.0f} J ({history.energy_source})")
    if history.cost is not None:
        parts.append(f"cost {history.cost:,.4f}")
    return "Total: " + ", ".join(parts)


def _of_some(history: GpuRecording, count: int) -> str:
    """Return the note on a sum that lacks a GPU."""
    return "" if count == len(history.gpus) else f" of {counted(count, 'GPU')}"


def _memory(gpu: GpuSeries) -> str:
    spread = gpu.spreads.get("memory")
    return ABSENT if spread is None else f"{spread.mean:,.1f} (±{spread.std:.1f})"


def _share(gpu: GpuSeries) -> str:
    """Return the peak share of the GPU's memory, in percent."""
    spread = gpu.spreads.get("memory")
    return ABSENT if spread is None or not gpu.total_mb else f"{100 * spread.peak / gpu.total_mb:.1f}"


def _of_gpu(gpu: GpuSeries, quantity: str, what: str, digits: int) -> str:
    spread = gpu.spreads.get(quantity)
    return ABSENT if spread is None else _number(getattr(spread, what), digits)


def _cv(history: GpuRecording, quantity: str) -> str:
    cv, quality = history.balance(quantity)
    return ABSENT if cv is None else f"{cv:.1f} {quality}"


def _number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}"
