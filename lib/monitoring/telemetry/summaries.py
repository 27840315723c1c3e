"""The summaries of a TelemetryTracker, as in docs/telemetry.md: of one rank, and across ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import orjson

from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import TELEMETRY_SUMMARIES, telemetry_name
from monitoring.telemetry.measurements import STATISTICS

Summary = Mapping[str, Any]
"""A rank's summary, as `get_summary` returns it."""

# Kind of a timer in a summary -> its heading, and as what it is printed where nothing could measure it.
TIMERS = {"timers": "CPU Timers", "cuda_timers": "CUDA Timers"}
NO_CUDA = "not measured: no CUDA device"

# Statistics that are compared across ranks unless others are requested.
OF_TEMPERATURE = ("max", "mean")
OF_TIMER = ("mean", "max")

Names = Mapping[str, Any]
"""`{"gpu_temperature": ("max",), "timers": {"forward": ("mean",)}}`: statistics of quantities, by kind."""


def timer_statistics(statistics: Mapping[str, Any], total: float, total_time: float) -> dict[str, Any]:
    """Return a timer's statistics, with its `total` seconds and their `percentage` of all time."""
    percentage = 100 * total / total_time if total_time > 0 else None
    return {**statistics, "total": total, "percentage": percentage}


def summary_text(summary: Summary) -> str:
    """Return a rank's summary as `print_summary` prints it."""
    lines = [
        f"Telemetry Summary ({summary['hostname']}):",
        f"Total time: {_number(summary['total_time'])} seconds",
    ]
    for kind, heading in TIMERS.items():
        if summary[kind]:
            lines += ["", f"{heading}:"]
            for name, found in summary[kind].items():
                lines += [f"    {name}:", *_timer_lines(found)]
    memory, temperature = summary["gpu_memory"], summary["gpu_temperature"]
    readings = []
    if memory:
        readings.append(f"Peak GPU memory usage: {_number(memory['peak'])} GB")
    if temperature:
        readings.append(f"GPU temperature: Mean: {temperature['mean']:.0f}°C Max: {temperature['max']:.0f}°C")
    return "\n".join([*lines, *([""] if readings else []), *readings])


def _timer_lines(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return [f"        {NO_CUDA}"]
    if not found["count"]:
        return ["        Count: 0"]
    return [
        f"        Total: {_number(found['total'])}s Mean: {_number(found['mean'])}s",
        f"        Count: {found['count']} Percentage of total time: {found['percentage']:.2f}%",
    ]


def _number(value: float) -> str:
    """Format with two decimals, fewer where they are 0, more below 0.1: 3600.0, 0.18, 0.00012."""
    decimals = 2 if not value or abs(value) >= 0.1 else 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{decimals}f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


def compared_ranks(summaries: Sequence[Summary], names: Names | None = None) -> dict[str, Any]:
    """Statistics of the ranks' statistics: `{"timers": {"forward": {"mean": {"std_dev": …}}}}`.

    Each has `mean`, `std_dev` (of these ranks: divided by their number), `min`, `max` and `median`, the
    `min_rank` and `max_rank` that have them, and in `missing_ranks` those that have no such number.
    """
    wanted = _all_names(summaries) if names is None else names
    found: dict[str, Any] = {}
    for kind, of_kind in wanted.items():
        if isinstance(of_kind, Mapping):
            found[kind] = {
                name: {each: _across(summaries, (kind, name, each)) for each in chosen}
                for name, chosen in of_kind.items()
            }
        else:
            found[kind] = {each: _across(summaries, (kind, each)) for each in of_kind}
    return found


def _all_names(summaries: Sequence[Summary]) -> Names:
    """Return each quantity that some rank has, in the order of their first appearance."""
    names: dict[str, Any] = {}
    if any(summary["gpu_temperature"] for summary in summaries):
        names["gpu_temperature"] = OF_TEMPERATURE
    for kind in TIMERS:
        timers = {name: OF_TIMER for summary in summaries for name in summary[kind]}
        if timers:
            names[kind] = timers
    return names


def _across(summaries: Sequence[Summary], path: Sequence[str]) -> dict[str, Any]:
    by_rank = {summary["rank"]: _at(summary, path) for summary in summaries}
    values = {rank: value for rank, value in by_rank.items() if value is not None}
    missing = sorted(by_rank.keys() - values.keys())
    if not values:
        nothing = dict.fromkeys((*STATISTICS, "min_rank", "max_rank"))
        return {**nothing, "missing_ranks": missing}
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return {
        "mean": fmean(values.values()),
        "median": median(values.values()),
        "std_dev": pstdev(values.values()),
        "min": values[least],
        "max": values[most],
        "min_rank": least,
        "max_rank": most,
        "missing_ranks": missing,
    }


def _at(summary: Summary, path: Iterable[str]) -> float | None:
    found: Any = summary
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, (int, float)) else None


def cross_rank_text(compared: Mapping[str, Any]) -> str:
    """Return the text of `compared_ranks` that `print_cross_rank_summary` prints.

    Behind `#` stands the rank that has a value, or the ranks that have none.
    """
    lines = ["Cross-Rank Statistics:"]
    if "gpu_temperature" in compared:
        lines.append("GPU Temperature:")
        for name, found in compared["gpu_temperature"].items():
            lines += [_heading(name, found, "    "), *_rows(found, "C", 1, "        ")]
    for kind, heading in {"timers": "Timers", "cuda_timers": "CUDA Timers"}.items():
        if compared.get(kind):
            lines += [*([""] if len(lines) > 1 else []), f"{heading}:"]
            for name, of_timer in compared[kind].items():
                lines.append(f"    {name}:")
                for statistic, found in of_timer.items():
                    lines.append(_heading(statistic, found, "        "))
                    lines += _rows(found, "s", 3, "            ")
    return "\n".join(lines)


def _heading(name: str, found: Mapping[str, Any], indent: str) -> str:
    missing = ", ".join(map(str, found["missing_ranks"]))
    return f"{indent}{name}:" + (f"  # not measured by rank {missing}" if missing else "")


def _rows(found: Mapping[str, Any], unit: str, decimals: int, indent: str) -> Iterator[str]:
    if found["mean"] is None:
        return
    largest = abs(found["max"])
    if 0 < largest < 0.01:  # else all of it would be 0.000
        decimals = 1 - math.floor(math.log10(largest)) + 1
    for name in ("mean", "std_dev", "min", "max"):
        rank = found.get(f"{name}_rank")
        text = f"{indent}{name}: {found[name]:.{decimals}f}{unit}"
        yield text if rank is None else f"{text}  # rank {rank}"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step; a reader never meets half of it. OSError names it."""
    data = orjson.dumps(content, option=orjson.OPT_INDENT_2)
    write_atomically(path, data, durable=False, prompt=True)  # the next one is a log interval away


def read_summaries(directory: Path) -> dict[int, dict[str, Any]]:
    """The newest summary of each rank that has left one, by rank; without those that cannot be read."""
    found = {}
    for path in directory.glob(TELEMETRY_SUMMARIES):
        try:
            summary = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):  # not a rank's, or a disk that does not answer now
            continue
        rank = summary.get("rank") if isinstance(summary, dict) else None
        if isinstance(rank, int) and path.name == telemetry_name("", rank):
            found[rank] = summary
    return dict(sorted(found.items()))
