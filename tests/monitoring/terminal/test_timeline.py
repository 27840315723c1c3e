"""Graphs of the past show windows, gaps, means over longer times, and values from before the dashboard."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest

from monitoring.gpu.sample import GpuSample
from monitoring.journal.encoding.archive import archive_path, full_path, thinned, write_archive
from monitoring.terminal.display.graphs import is_log_better
from monitoring.terminal.history import WINDOWS, GraphHistory
from monitoring.terminal.timeline import KEPT, LEVELS, Timeline, columns, values_of

from .test_app import gpu, gpu_record, write


def at(percent: float | None, index: int = 0) -> GpuSample:
    return gpu(index, utilization_percent=percent)


def history(*samples: tuple[float, float | None]) -> GraphHistory:
    found = GraphHistory()
    for moment, percent in samples:
        found.add(moment, [at(percent)])
    return found


def test_values_of_gpus_together() -> None:
    one = gpu(
        0, utilization_percent=50.0, memory_used_mb=10.0, memory_total_mb=40.0, temperature_celsius=50.0
    )
    other = gpu(1, utilization_percent=70.0, memory_used_mb=30.0, memory_total_mb=40.0, power_draw_watts=9.0)
    assert values_of([one, other, gpu(2)]) == (60.0, 50.0, 50.0, 9.0)
    assert values_of([]) == (None, None, None, None)


def test_newest_sample_is_in_the_last_column_and_older_ones_leave() -> None:
    seen = history(*((1000.0 + second, float(second)) for second in range(0, 100, 10)))
    assert seen.values(None, "util", 6) == [40.0, 50.0, 60.0, 70.0, 80.0, 90.0]
    assert seen.values(0, "util", 3) == [45.0, 65.0, 85.0]
    assert seen.values(0, "power", 2) == [None, None]


def test_gap_is_seen_where_samples_are_missing_but_not_between_rare_ones() -> None:
    samples = [(float(second), 1.0) for second in range(0, 20, 4)] + [(60.0, 2.0)]
    parts = [([moment for moment, _ in samples], [value for _, value in samples])]
    usual_is_twelve = columns(parts, 0.0, 1.0, 61)
    assert usual_is_twelve[:20] == [1.0] * 20
    assert usual_is_twelve[-5:] == [None] * 4 + [2.0]


def test_every_window_of_a_long_history_has_its_mean() -> None:
    """Half a day that is at 100 % each second sample: every level comes to 50 %."""
    seen = GraphHistory()
    for second in range(0, 43_200, 4):
        seen.timeline.of(None).add(float(second), values_of([at(100.0 * (second % 8 == 0))]))
    seen.timeline.last = float(second)
    for window in range(len(WINDOWS)):
        seen.zoom = window
        shown = seen.values(None, "util", 7)
        assert [value for value in shown if value is None or not 30 < value < 70] == []


def test_graphs_begin_again_where_the_clock_was_set_back() -> None:
    seen = history((1000.0, 10.0), (1010.0, 20.0), (910.0, 30.0), (920.0, 40.0))
    assert seen.values(None, "util", 6) == [None, None, None, None, 30.0, 40.0]


def test_timeline_stays_small() -> None:
    timeline = Timeline()
    for second in range(3 * KEPT):
        timeline.add(float(second), [at(1.0)])
    kept = [len(level.times) for level in timeline.of(0).levels]
    assert kept == [2 * KEPT, 1500, 375, 34, 5, 1]
    assert len(kept) == len(LEVELS)


def test_what_a_run_recorded_before_is_read_from_archives_and_files(tmp_path: Path) -> None:
    """Three files: a thinned archive, one that was moved aside, and the newest, of which ours are a part."""
    path, began = tmp_path / "gpu_stats.jsonl", time.time() - 4000
    lines = []
    for seq in range(1, 4001):
        lines.append({**gpu_record([at(10.0 if seq <= 2000 else 90.0)], seq, began + seq), "samples": 1})
    old = full_path(path, 1, 2000)
    write(old, *lines[:2000])
    write(full_path(path, 2001, 3000), *lines[2000:3000])
    write(path, *lines[3000:])
    with old.open("rb") as file:
        write_archive(archive_path(path, 1, 2000), thinned(file, 10, lambda record: 0))
    old.unlink()
    seen = GraphHistory()
    seen.zoom = len(WINDOWS) - 1
    seen.add(began + 4001, [at(90.0)])
    seen.read_past(tmp_path / "gpu_stats.jsonl", None)
    while seen.is_reading:
        time.sleep(0.01)
    shown = seen.values(None, "util", 80)
    assert shown[:38] == [10.0] * 38
    assert shown[-38:] == [90.0] * 38
    seen.clear()
    assert seen.values(None, "util", 4) == [None] * 4


def test_past_of_another_machine_or_other_gpus_is_not_ours(tmp_path: Path) -> None:
    now = time.time()
    write(tmp_path / "gpu_stats.jsonl", {**gpu_record([at(10.0)], 1, now - 30), "host": "elsewhere"})
    seen = history((now, 90.0))
    seen.read_past(tmp_path / "gpu_stats.jsonl", [at(90.0)])
    while seen.is_reading:
        time.sleep(0.01)
    assert seen.values(0, "util", 6) == [None] * 5 + [90.0]


def test_past_of_this_machines_gpus_is_that_of_the_run_beside_them(tmp_path: Path) -> None:
    now = time.time()
    for seq in range(1, 6):
        record = gpu_record([at(10.0), at(20.0, index=1)], seq, now - 60 + 10 * seq)
        write(tmp_path / "gpu_stats.jsonl", {**record, "host": platform.node()})
    seen = history((now, 90.0))
    seen.read_past(tmp_path / "gpu_stats.jsonl", [at(90.0), at(None, index=1)._replace(uuid="GPU-another")])
    while seen.is_reading:
        time.sleep(0.01)
    assert seen.values(0, "util", 6) == [10.0] * 5 + [90.0]
    assert seen.values(1, "util", 6) == [None] * 6


@pytest.mark.parametrize(
    ("losses", "log"),
    [([2.3, 2.0, 1.5, 1.4], False), ([10.0, 0.1, 0.01, 0.001], True), ([5.0, 0.1, -0.1], False), ([], False)],
)
def test_losses_have_a_log_axis_where_it_shows_more(losses: list[float], log: bool) -> None:
    assert is_log_better(losses) is log
