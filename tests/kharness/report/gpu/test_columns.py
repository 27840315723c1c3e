"""Columns of a recording that is too long to hold, against numpy on all of it."""

from __future__ import annotations

import math
import random
import tracemalloc

import numpy as np
import pytest

from kharness.report.gpu import columns
from kharness.report.gpu.columns import MAX_POINTS, PRECISION, LongColumns

NAMES = ("noisy", "percent", "never")


def rows(count: int) -> list[tuple[float, float, float, float]]:
    """Time and values, one a second; a tenth is not known, and for an hour nobody sampled."""
    chance = random.Random(1)
    found = []
    for i in range(count):
        noisy = math.nan if i % 10 == 3 else chance.gauss(300, 40)
        found.append((1.7e9 + i + 3600 * (i > count // 2), noisy, float(chance.randrange(101)), math.nan))
    return found


def filled(every: list[tuple[float, float, float, float]]) -> LongColumns:
    held = LongColumns(NAMES)
    for time, *values in every:
        held.add([time], values)
    return held


def test_long_columns_come_to_what_all_rows_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    every = rows(5000)
    exact = filled(every).spreads()
    for name, value in (("BLOCK", 300), ("CELL", 16), ("MOST_VALUES", 200)):
        monkeypatch.setattr(columns, name, value)
    found = filled(every).spreads()
    assert list(found) == ["noisy", "percent"]
    assert (found["percent"].low, found["percent"].high) == (exact["percent"].low, exact["percent"].high)
    for name in found:
        assert (found[name].n, found[name].peak) == (exact[name].n, exact[name].peak)
        assert found[name].mean == pytest.approx(exact[name].mean, rel=1e-13)
        assert found[name].std == pytest.approx(exact[name].std, rel=1e-12)
        assert found[name].low == pytest.approx(exact[name].low, rel=2 * PRECISION)
        assert found[name].high == pytest.approx(exact[name].high, rel=2 * PRECISION)


def test_long_curve_has_the_means_and_peaks_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    every = rows(5000)
    for name, value in (("BLOCK", 300), ("CELL", 16)):
        monkeypatch.setattr(columns, name, value)
    curves = filled(every).curves(every[0][0])
    assert list(curves) == ["noisy", "percent"]
    curve = curves["percent"]
    assert len(curve.means) <= MAX_POINTS + 2
    [gap] = [i for i, mean in enumerate(curve.means) if math.isnan(mean)]
    assert curve.seconds[gap] == every[2501][0] - every[0][0]
    assert list(curve.seconds) == sorted(curve.seconds)
    # 5000 / MAX_POINTS rows are two cells, but of a block's 300 the last has 12
    first = np.array(every[:32])
    assert (curve.means[0], curve.peaks[0]) == (first[:, 2].mean(), first[:, 2].max())
    assert curve.seconds[0] == first[:, 0].mean() - every[0][0]
    assert max(curve.peaks) == 100


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BLOCK", 1024), ("CELL", 256), ("MOST_VALUES", 512)):
        monkeypatch.setattr(columns, name, value)
    peaks = []
    for count in (5_000, 30_000):
        every = rows(count)
        tracemalloc.start()
        try:
            held = filled(every)
            assert held.num_rows == count
            assert len(held.curves(0.0)["percent"].means) > 15
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
