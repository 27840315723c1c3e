"""The GPUs of a run and of a matrix, as the page draws them: what the titles say, and what is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kharness.report.gpu.columns import MAX_POINTS
from kharness.report.graphs import GRAPH_MODULES, gpu_graphs
from kharness.report.plots.gpu_plots import gpu_plots
from kharness.report.plots.gpu_variants import memory_of_each
from kharness.report.plots.plot import Plot
from kharness.report.plots.rows import MarkedRow, PlotMark, RowPlot
from kharness.report.summary import collect
from kharness.report.writing.html import as_html

from ..conftest import Make, training
from .samples import write_ranks, write_samples

EVEN = {"memory": 12288.0, "utilization": 95.0, "power": 200.0, "temperature": 60.0}


@pytest.fixture
def run(tmp_path: Path, make: Make) -> Path:
    make.journal(tmp_path / "run", training([2.0, 1.0], [0.5], 0.5))
    return tmp_path / "run"


def drawn(run: Path) -> dict[str, Plot | RowPlot]:
    return {plot.title: plot for plot in gpu_plots(collect(run))}


def test_one_gpu_has_its_curves_with_every_spike(run: Path) -> None:
    """Ten of 1,600 samples make a point; a single spike of memory is in its range, and not in its mean."""

    def values(number: int, gpu: int) -> dict[str, Any]:
        return EVEN | ({"memory": 24576.0} if number == 805 else {})

    write_samples(run, 10 * MAX_POINTS, 1, values)
    plots = drawn(run)
    assert list(plots) == [
        "The GPU is busy 95 % of the time",
        "Memory peaks at 24.0 of 24.0 GiB",
        "The GPU draws 200 W on average",
        "The GPU was not hotter than 60 °C",
    ]
    memory = plots["Memory peaks at 24.0 of 24.0 GiB"]
    assert isinstance(memory, Plot)
    assert (memory.quantity, memory.x_label) == (
        *("Memory in use (GiB)", "minutes since the run's first sample"),
    )
    assert (
        memory.alt
        == "Memory in use (GiB) over time. Memory peaks at 24.0 of 24.0 GiB. GPU 0 12.0 to 24.0 GiB."
    )
    assert [path.look for path in memory.paths] == ["limit other", "band c0", "mean c0"]
    limit, area, line = (re.findall(r"\d+ (\d+)", path.outline) for path in memory.paths)
    # The axis ends at 1.06 x 24 GiB.
    assert (set(limit), set(area), set(line)) == ({"57"}, {"57", "528"}, {"528", "481"})
    assert memory.said == [
        "Dashed: the memory that a GPU has.",
        "Of long recordings a point is a mean; areas reach from the lowest sample to the highest.",
    ]


def test_what_stands_out_is_the_title(run: Path) -> None:
    """GPU 1 has less to do, GPU 2 is hot and holds more, GPU 3 is lost after 4 s."""

    def values(number: int, gpu: int) -> dict[str, Any]:
        if gpu == 3 and number >= 4:
            return {"state": "lost", "error": "GPU is lost"}
        own: dict[int, dict[str, Any]] = {
            1: {"utilization": 40.0, "power": 100.0},
            2: {"temperature": 91.0, "memory": 18432.0, "throttle_reasons": ["hw_thermal_slowdown"]},
        }
        return EVEN | own.get(gpu, {})

    write_samples(run, 8, 4, values)
    write_ranks(run, [0.009, 0.0125, 0.009, 0.009])
    plots = drawn(run)
    waits = (
        "The others wait 3.50 ms (25 %) of each step for rank 1 (gpu-host, cuda:1), "
        "slow in forward and backward"
    )
    assert list(plots) == [
        "GPU 1 is busy 40 % of the time, the others 95 %",
        waits,
        "Memory peaks at 18.0 of 24.0 GiB, on GPU 2",
        "GPU 2 holds 18.0 GiB on average, the others 12.0 GiB",
        "GPU 1 draws 100 W on average, the others 200 W",
        "GPU 2 reached 91 °C; its clocks were held down in 100 % of the samples",
    ]
    ranks = plots[waits]
    assert isinstance(ranks, RowPlot)
    # Own work of 10.5, 14, 10.5 and 10.5 ms on an axis of 14.28 ms.
    assert ranks.rows[0] == MarkedRow(
        "rank 0",
        [
            PlotMark("stack c0", 0.0, 3.5),
            PlotMark("stack c1", 3.5, 63.0),
            PlotMark("stack c2", 66.5, 7.0),
            PlotMark("stack waits", 73.5, 24.5),
        ],
        "waits 25 %",
    )
    assert [row.words for row in ranks.rows] == ["waits 25 %", "the slowest", "waits 25 %", "waits 25 %"]
    assert ranks.legend == [("data wait", 0), ("forward and backward", 1), ("optimizer", 2)]
    assert ranks.caption == (
        "Over 20 recorded steps the 4 ranks together waited 0.21 s, 18.8 % of their time. "
        "Hatched: waiting for the slowest rank in a mean step."
    )
    memory = plots["GPU 2 holds 18.0 GiB on average, the others 12.0 GiB"]
    assert isinstance(memory, RowPlot)
    assert memory.rows[2:] == [
        MarkedRow(
            "GPU 2",
            [PlotMark("thick", 0.0, 70.8), PlotMark("point", 70.8), PlotMark("limit", 94.3)],
            "18.0 GiB",
        ),
        MarkedRow(
            "GPU 3, lost",
            [PlotMark("thick", 0.0, 47.2), PlotMark("point", 47.2), PlotMark("limit", 94.3)],
            "12.0 GiB",
        ),
    ]
    power = plots["GPU 1 draws 100 W on average, the others 200 W"]
    assert isinstance(power, Plot)
    assert [text for text, _ in power.legend] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3, lost"]
    assert [path.outline for path in power.paths] == [
        "M0 45 143 45 286 45 429 45 571 45 714 45 857 45 1000 45",
        "M0 955 143 955 286 955 429 955 571 955 714 955 857 955 1000 955",
        *("M0 45 143 45 286 45 429 45 571 45 714 45 857 45 1000 45", "M0 45 143 45 286 45 429 45"),
    ]


def test_of_eight_gpus_the_highest_and_the_lowest_have_a_color(run: Path) -> None:
    write_samples(run, 20, 8, lambda number, gpu: EVEN | {"power": 200.0 + gpu - 100.0 * (gpu == 5)})
    plots = drawn(run)
    assert list(plots) == [
        "All 8 GPUs are busy 95 % of the time",
        "Memory peaks at 12.0 of 24.0 GiB, alike on all 8 GPUs",
        "All 8 GPUs hold 12.0 GiB on average",
        "GPU 5 draws 105 W on average, the others 203 W",
        "No GPU was hotter than 60 °C",
    ]
    power = plots["GPU 5 draws 105 W on average, the others 203 W"]
    assert isinstance(power, Plot)
    assert power.legend == [("GPU 7", 0), ("GPU 5", 1)]
    assert [path.look for path in power.paths] == ["band other", "mean c0", "mean c1"]
    assert power.alt == (
        "Power (W) over time. GPU 5 draws 105 W on average, the others 203 W. "
        "GPU 7 207 W; GPU 5 105 W; the others 200 to 206 W."
    )


@pytest.mark.parametrize(
    ("seconds", "title", "words"),
    [
        ([0.009, 0.009], "The ranks are evenly loaded", ["10.50 ms", "10.50 ms"]),
        (
            [0.009, 0.011],
            "The other rank waits 2.00 ms (16 %) of each step for rank 1 (gpu-host, cuda:1), "
            "slow in forward and backward",
            ["waits 16 %", "the slowest"],
        ),
    ],
)
def test_ranks_without_gpu_samples_are_drawn(
    run: Path, seconds: list[float], title: str, words: list[str]
) -> None:
    write_ranks(run, seconds)
    [plot] = drawn(run).values()
    assert isinstance(plot, RowPlot)
    assert (plot.title, [row.words for row in plot.rows]) == (title, words)


def test_a_gap_in_the_samples_is_a_gap_in_the_line(run: Path) -> None:
    def values(number: int, gpu: int) -> dict[str, Any]:
        return {"state": "failed", "error": "no answer"} if number == 2 else EVEN | {"power": 100.0 + number}

    write_samples(run, 5, 1, values)
    power = drawn(run)["The GPU draws 102 W on average"]
    assert isinstance(power, Plot)
    assert [path.outline for path in power.paths] == ["M0 955 250 727M750 273 1000 45"]


def test_a_matrix_has_a_row_per_variant(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam", "lion"], "SEED": ["1", "2"]})
    for optimizer, used in (("sgd", 6144.0), ("adam", 18432.0), ("lion", 6144.0)):
        values = EVEN | {"memory": used}
        for seed in "12":
            cell = made.add({"OPTIMIZER": optimizer, "SEED": seed}, training([2.0, 1.0], [0.5], 0.5))
            write_samples(cell, 3, 2, lambda number, gpu: values)  # noqa: B023, called at once
    summary = collect(made.directory)
    memory, *others, over_time = gpu_plots(summary)
    assert [plot.title for plot in (memory, *others, over_time)] == [
        "adam needs the most memory: 18.0 GiB; the others 6.0 GiB",
        "GPUs are busy 95 % of the time in all variants",
        "GPUs draw 400 W on average in all variants",
        "The hottest GPU reaches 60 °C in all variants",
        "Memory of a run peaks at 36.0 of 48.0 GiB, with adam",
    ]
    assert isinstance(memory, RowPlot)
    assert isinstance(over_time, Plot)
    marks = [PlotMark("thick", 0.0, 70.8), *[PlotMark("point", 70.8)] * 2, PlotMark("limit", 94.3)]
    assert memory.rows[0] == MarkedRow("adam", marks, "18.0 GiB")
    assert [row.name for row in memory.rows] == ["adam", "sgd", "lion"]
    limit, *lines = over_time.paths
    # The axis ends at 1.06 x 48 GiB.
    assert (limit.look, limit.outline) == ("limit other", "M0 57 1000 57")
    assert [path.look for path in lines] == [f"{kind} c{i}" for i in range(3) for kind in ("run", "mean")]
    assert over_time.said == ["Dashed: the memory that the GPUs of a run have."]
    for panel in memory_of_each(summary):
        assert (panel.paths[0], panel.said) == (limit, ["Dashed: the memory that a GPU has."])
    page = as_html(summary)
    assert page.index("adam needs the most memory") < page.index('id="gpu-table"')


def test_of_many_variants_the_ends_are_drawn_and_few_where_they_are_alike(tmp_path: Path, make: Make) -> None:
    rates = [str(number) for number in range(1, 23)]
    made = make.matrix(tmp_path / "m", {"LEARNING_RATE": rates})
    for rate in rates:
        cell = made.add({"LEARNING_RATE": rate}, training([2.0, 1.0], [0.5], 0.5))
        values = EVEN | {"memory": 512.0 * int(rate), "power": 100.0 - int(rate) / 10}
        write_samples(cell, 1, 1, lambda number, gpu: values)  # noqa: B023, called at once
        write_ranks(cell, [0.009, 0.0094 if rate == "7" else 0.009])
    memory, _, waits, power, _, over_time = gpu_plots(collect(made.directory))
    assert isinstance(over_time, Plot)
    assert (over_time.title, [text for text, _ in over_time.legend]) == (
        "Memory of a run peaks at 11.0 of 24.0 GiB, with learning_rate=22",
        ["learning_rate=22", "learning_rate=1"],
    )
    assert isinstance(memory, RowPlot)
    assert isinstance(waits, RowPlot)
    assert isinstance(power, RowPlot)
    assert (memory.title, memory.caption) == (
        "learning_rate=22 needs the most memory: 11.0 GiB; learning_rate=1 the least: 0.5 GiB",
        "Dot: a run; bar: mean of the complete runs; dashed: what the GPU has. The 10 highest and the 10 "
        "lowest of 22 variants.",
    )
    assert [row.name.partition("=")[2] for row in memory.rows] == [*rates[:-11:-1], *rates[9::-1]]
    assert waits.title == "Ranks wait 0.0 to 1.8 % of the time in all variants"
    assert [row.words for row in waits.rows] == ["1.8 %", *["0.0 %"] * 5]
    assert power.title == "GPUs draw 98 to 100 W on average in all variants"
    assert [row.name.partition("=")[2] for row in power.rows] == ["1", "2", "3", "20", "21", "22"]


def test_pictures_of_a_matrix_have_a_line_per_run_and_the_limits_of_bands(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"]})
    for optimizer, power in (("sgd", 100.0), ("adam", 300.0)):
        cell = made.add({"OPTIMIZER": optimizer}, training([2.0, 1.0], [0.5], 0.5))
        write_samples(cell, 3, 2, lambda number, gpu: EVEN | {"power": power + 20 * gpu})  # noqa: B023, called at once
    summary = collect(made.directory)
    figures = {name: GRAPH_MODULES.load(name).draw(summary) for name in gpu_graphs()}
    headings = {
        name: [text.get_text() for text in figure.texts if text.get_fontsize() == 10.5]
        for name, figure in figures.items()
    }
    assert headings == {
        "gpu_load_balance_analysis": [
            "How far GPUs are from one another",
            "Both GPUs are busy 95 % of the time",
            "Both GPUs hold 12.0 GiB on average",
            "The 2 GPUs draw 200 to 220 W on average",
        ],
        "gpu_memory_comparison": [
            "Memory peaks at 12.0 GiB in all variants",
            "All GPUs together peak at 24.0 GiB in all variants",
        ],
        "gpu_memory_timeline": ["Memory of a run peaks at 24.0 of 48.0 GiB in all variants"],
        "gpu_power_temperature": [
            "Power of a run peaks at 620 W, with adam",
            "The hottest GPU reaches 60 °C in all variants",
        ],
        "per_gpu_memory_breakdown": ["GPU 0: 12.00 of 24.0 GiB", "GPU 1: 12.00 of 24.0 GiB"],
    }
    balance, *_, power_of_each = figures["gpu_load_balance_analysis"].axes
    assert [text.get_text() for text in power_of_each.texts] == ["200 W", "220 W"]
    # Dots of 100, 300, 120 and 320 W on an axis of 336 W.
    assert power_of_each.lines[0].get_xdata().tolist() == [29.8, 89.3, 35.7, 95.2]
    # Means of 100 and 120 W are 10 W from their mean, of 300 and 320 as many.
    assert [text.get_text() for text in balance.texts] == ["power 9.1 % Good", "power 3.2 % Excellent"]
    assert [label.get_text() for label in balance.get_yticklabels()] == ["optimizer-sgd", "optimizer-adam"]
