"""Curves that a page draws itself: axes, lines, areas and labels; and the pages of any program's runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kharness.report.curves import Strand, scale_of
from kharness.report.judging.pareto import Front
from kharness.report.plots.cost_plots import price, time_per_step, time_to_target
from kharness.report.plots.matrix_plots import frames_of_matrix, plots_of_matrix
from kharness.report.plots.plot import plot_of
from kharness.report.plots.rows import MarkedRow, PlotMark
from kharness.report.plots.run_plots import last_numbers, plots_of_run, read_series
from kharness.report.report import write_everything
from kharness.report.summary import collect
from monitoring import Run

from .conftest import Make, MatrixDirectory


@pytest.mark.parametrize(
    ("values", "asked", "kind", "ticks"),
    [
        ([0.0, 1.0], "linear", "linear", ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.0, 250_000.0], "linear", "linear", ["0", "50,000", "100k", "150k", "200k", "250k"]),
        ([0.01, 2.0], "log", "log", ["0.01", "0.03", "0.1", "0.3", "1"]),
        ([1.0, 2.0], "log", "linear", ["1.0", "1.2", "1.4", "1.6", "1.8", "2.0"]),
        ([50.0, 99.0], "log error", "log error", ["50", "80", "90", "95", "98", "99"]),
    ],
)
def test_axes_have_round_ticks(values: list[float], asked: str, kind: str, ticks: list[str]) -> None:
    scale = scale_of(values, asked)  # type: ignore[arg-type]
    assert (scale.kind, [text for _, text in scale.ticks()]) == (kind, ticks)
    places = [at for at, _ in scale.ticks()]
    assert places == sorted(places)
    assert all(0 <= at <= 100 for at in places)
    plot = plot_of("m", "M", [Strand("a", 0, "mean", [0, 10], values)], scale=asked)  # type: ignore[arg-type]
    assert plot.quantity == {"linear": "", "log": "log scale", "log error": "log scale of the error"}[kind]


def test_a_plot_has_its_points_in_thousandths_and_labels_that_do_not_meet() -> None:
    near = [
        Strand(name, i, "mean", [0, 10], [1.0, end])
        for i, (name, end) in enumerate([("a", 2.0), ("b", 2.01)])
    ]
    plot = plot_of("loss", "Loss", near)
    assert [(path.look, path.label) for path in plot.paths] == [("mean c0", "a"), ("mean c1", "b")]
    assert plot.paths[1].outline == "M0 955 1000 45"
    tops = [at for at, _, _ in plot.ends]
    assert [text for _, text, _ in plot.ends] == ["b", "a"]
    assert tops[1] - tops[0] >= 7.5
    assert plot.alt == "Loss by step: a ends at 2, b ends at 2.01."


def test_three_seeds_are_a_mean_and_an_area(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "three", {"OPTIMIZER": ["sgd"], "SEED": ["1", "2", "3"]})
    for seed, last in zip("123", (1.0, 2.0, 3.0), strict=True):
        made.add({"OPTIMIZER": "sgd", "SEED": seed}, make.training([4.0, last], [0.5], 0.5))
    (plot,) = plots_of_matrix(collect(made.directory))
    assert (plot.title, [path.look for path in plot.paths]) == ("Training loss", ["band c0", "mean c0"])
    assert plot.alt == "Training loss by step: lenet5 ends at 2."


@pytest.mark.parametrize(("steps", "behind"), [(0, ["band other"]), (1, ["other other"] * 2)])
def test_of_many_variants_the_baseline_and_the_best_have_a_color(
    tmp_path: Path, make: Make, steps: int, behind: list[str]
) -> None:
    """The others are one area, or lines where they have trained for different numbers of steps."""
    names = [f"o{number}" for number in range(8)]
    many = make.matrix(tmp_path / "many", {"OPTIMIZER": names})
    for number, name in enumerate(names):
        losses = [4.0, *[3.0] * steps * number, 2.0 + number / 10]
        many.add({"OPTIMIZER": name}, make.training(losses, [0.5], number / 10))
    (plot,) = plots_of_matrix(collect(many.directory))
    assert [text for text, _ in plot.legend] == ["o0", "o7", "o6", "o5", "o4", "o3"]
    assert [path.look for path in plot.paths] == [*behind, *(f"mean c{number}" for number in range(6))]
    assert plot.said[-1] == (
        "In color: the baseline and the 5 best of 8 variants in test accuracy; of the others "
        f"{'a line each' if steps else 'their range'} in gray."
    )


def test_a_variant_keeps_its_color_where_another_has_no_line(tmp_path: Path, make: Make) -> None:
    two = make.matrix(tmp_path / "two", {"OPTIMIZER": ["sgd", "lion"]})
    two.add({"OPTIMIZER": "sgd"}, make.training([4.0, 2.0], [], 0.5))
    two.add({"OPTIMIZER": "lion"}, make.training([4.0, 2.0], [0.5, 0.6], 0.5))
    summary = collect(two.directory)
    looks = {plot.title: [path.look for path in plot.paths] for plot in plots_of_matrix(summary)}
    assert (looks["Training loss"], looks["Validation loss"]) == (
        ["mean c0", "mean c1"],
        ["mean c1", "dots mean c1"],
    )
    in_paper = {plot.title: [one.color for one in plot.strands] for plot in frames_of_matrix(summary)}
    assert (in_paper["Training loss"], in_paper["Validation loss"]) == ([0, 1], [1])


def test_a_baseline_elsewhere_has_no_color_here(tmp_path: Path, make: Make) -> None:
    """The six best have: a line of another directory is not drawn."""
    other = make.matrix(tmp_path / "other", {"OPTIMIZER": ["o0"]})
    other.add({"OPTIMIZER": "o0"}, make.training([4.0, 2.0], [0.5], 0.5))
    names = [f"o{number}" for number in range(8)]
    many = make.matrix(tmp_path / "many", {"OPTIMIZER": names})
    for number, name in enumerate(names):
        many.add({"OPTIMIZER": name}, make.training([4.0, 2.0 + number / 10], [0.5], number / 10))
    first, *_ = plots_of_matrix(collect(many.directory, {"BASELINE": str(other.directory)}))
    assert [text for text, _ in first.legend] == ["o7", "o6", "o5", "o4", "o3", "o2"]
    assert first.said[-1] == (
        "In color: the 6 best of 8 variants in test accuracy; of the others their range in gray."
    )


def test_the_deciding_validation_is_drawn_over_what_was_spent(tmp_path: Path, make: Make) -> None:
    """Steps take 10 and 20 ms, and one variant has batches twice as large."""
    made = make.matrix(tmp_path / "m", {"BATCH_SIZE": ["8", "16"]})
    for batch in (8, 16):
        start, *others = make.training([4.0, 2.0], [0.25, 0.75], 0.5)
        made.add({"BATCH_SIZE": str(batch)}, [{**start, "batch_size": batch}, *others])
    of_title = {plot.title: plot for plot in plots_of_matrix(collect(made.directory))}
    assert list(of_title) == [
        *("Training loss", "Validation loss", "Validation accuracy (%)"),
        *("Validation accuracy (%), by training time", "Validation accuracy (%), by samples"),
    ]
    by_time, by_samples = list(of_title.values())[3:]
    assert by_time.alt == (
        "Validation accuracy (%) by training time (s): batch_size=8 ends at 75, batch_size=16 ends at 75."
    )
    assert (by_time.x.low, by_time.x.high) == pytest.approx((0.01, 0.03))
    assert (by_samples.x.low, by_samples.x.high, by_samples.x_label) == (8, 32, "samples")


def test_variants_have_their_number_of_runs_where_not_all_are_complete(matrix: MatrixDirectory) -> None:
    """Both seeds of sgd are complete, and one of adam."""
    loss = plots_of_matrix(collect(matrix.directory))[0]
    assert loss.legend == [("sgd (n=2)", 0), ("adam (n=1)", 1)]
    assert loss.said == ["Dotted: a run that did not complete.", "n: complete runs of a mean."]


def test_names_that_are_long_are_below_the_plot() -> None:
    strands = [
        Strand(f"{name}, learning_rate=0.001", i, "mean", [0, 1], [1.0, 2.0 + i])
        for i, name in enumerate("ab")
    ]
    plot = plot_of("loss", "Loss", strands)
    assert plot.ends == []
    assert plot.legend == [("a, learning_rate=0.001", 0), ("b, learning_rate=0.001", 1)]


def test_a_price_has_a_point_per_variant_and_names_the_front() -> None:
    front = Front(
        workload="lenet5",
        quality="test_accuracy",
        cost="peak_cpu_memory",
        points={"sgd": (0.9, 400.0), "adam": (0.8, 500.0), "lion": (0.9, 405.0)},
        members=["sgd", "lion"],
        dominated={"adam": "sgd"},
        unmeasured=[],
    )
    plot = price(front)
    assert [(path.look, path.title) for path in plot.paths] == [
        ("point beaten", "adam: 80, 500"),
        ("point", "sgd: 90, 400"),
        ("point", "lion: 90, 405"),
    ]
    assert [name for _, _, name in plot.names] == ["sgd", "lion"]
    tops = [top for _, top, _ in plot.names]
    assert tops[1] - tops[0] >= 7.5
    assert plot.x_label == "CPU memory (MB)"
    assert plot.faint_names == [(90.9, 95.5, "adam")]
    beside = price(replace(front, points={**front.points, "lars": (0.8, 495.0)}))
    assert [name for _, _, name in beside.faint_names] == ["lars"], "adam's would cover the point of lars"
    wide = price(replace(front, points={**front.points, "lion": (0.9, 4050.0)}))
    assert wide.x_label == "CPU memory (MB), log scale"
    assert plot.alt == (
        "test accuracy (%) by CPU memory (MB): on the front sgd, lion, 1 of 3 are shown to be beaten."
    )


def test_rows_of_time_begin_at_zero_with_the_fastest(matrix: MatrixDirectory) -> None:
    """Steps take 10, 20, 30 and 40 ms: 25 is at 25 / (1.02 x 38.5)."""
    summary = collect(matrix.directory)
    (steps,) = time_per_step(summary)
    assert steps.ticks == [(0.0, "0"), (25.5, "10"), (50.9, "20"), (76.4, "30")]
    assert steps.rows[1] == MarkedRow(
        "sgd",
        [
            PlotMark("thin", 29.3, 68.7),
            PlotMark("thick", 44.6, 38.2),
            PlotMark("point", 63.7),
            PlotMark("point", 63.7),
        ],
        "25.00 ms",
    )
    assert [(row.name, row.words) for row in steps.rows] == [("adam", "20.00 ms"), ("sgd", "25.00 ms")]
    (target,) = time_to_target(summary)
    assert target.rows == [
        MarkedRow("sgd", [PlotMark("point soft", 89.3)] * 2 + [PlotMark("median", 89.3)], "0.03 s"),
        MarkedRow("adam", [PlotMark("point soft", 89.3), PlotMark("missed", 95.5)], "1 of 2 never"),
    ]


def test_the_only_variant_with_a_curve_is_named_where_others_are_planned(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "part", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1"]})
    made.add({"OPTIMIZER": "sgd", "SEED": "1"}, make.training([4.0, 1.0], [0.5], 0.5))
    made.plan({"OPTIMIZER": "adam", "SEED": "1"})
    (plot,) = plots_of_matrix(collect(made.directory))
    assert ([text for _, text, _ in plot.ends], plot.legend) == (["sgd"], [("sgd", 0)])


def test_a_run_of_any_script_has_a_page(tmp_path: Path) -> None:
    with Run(tmp_path / "mine", project="p", config={"width": 8}) as run:
        for step in range(1, 6):
            run.log_step(step, loss=1 / step, wer=0.5 / step)
        run.log_eval(5, split="val", eval_loss=0.25)
    series = read_series(tmp_path / "mine")
    assert [plot.title for plot in plots_of_run(series)] == ["Loss", "Wer"]
    numbers = last_numbers(series)
    assert numbers is not None
    assert [row for row in numbers.rows if row[0] == "wer"] == [["wer", "", "0.1", "0.1", "0.5", "5"]]
    _, written = write_everything(tmp_path / "mine")
    page = written[-1].read_text()
    assert written[-1].name == "report.html"
    assert "Loss by step: it ends at 0.2" in page
