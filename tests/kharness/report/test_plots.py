"""Curves that a page draws itself: axes, lines, areas and labels; and the pages of any program's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.report.plots.matrix_plots import plots_of_matrix
from kharness.report.plots.plot import Strand, plot_of
from kharness.report.plots.run_plots import last_numbers, plots_of_run, read_series
from kharness.report.plots.scales import scale_of
from kharness.report.report import write_everything
from kharness.report.summary import collect
from monitoring import Run

from .conftest import Make


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


def test_three_seeds_are_a_mean_and_an_area_and_many_variants_a_panel_each(
    tmp_path: Path, make: Make
) -> None:
    made = make.matrix(tmp_path / "three", {"OPTIMIZER": ["sgd"], "SEED": ["1", "2", "3"]})
    for seed, last in zip("123", (1.0, 2.0, 3.0), strict=True):
        made.add({"OPTIMIZER": "sgd", "SEED": seed}, make.training([4.0, last], [0.5], 0.5))
    ((title, panels),) = plots_of_matrix(collect(made.directory))
    assert (title, [path.look for path in panels[0].paths]) == ("Training loss", ["band c0", "mean c0"])
    assert panels[0].alt == "Training loss by step: lenet5 ends at 2."
    names = [f"o{number}" for number in range(8)]
    many = make.matrix(tmp_path / "many", {"OPTIMIZER": names})
    for number, name in enumerate(names):
        many.add({"OPTIMIZER": name}, make.training([4.0, 2.0 + number / 10], [0.5], 0.5))
    ((title, panels),) = plots_of_matrix(collect(many.directory))
    assert (title, [panel.title for panel in panels]) == ("Training loss", names)
    assert [path.look for path in panels[0].paths] == ["band other", "mean c0"]


def test_a_run_of_any_script_has_a_page(tmp_path: Path) -> None:
    with Run(tmp_path / "mine", project="p", config={"width": 8}) as run:
        for step in range(1, 6):
            run.log_step(step, loss=1 / step, wer=0.5 / step)
        run.log_eval(5, split="val", eval_loss=0.25)
    series = read_series(tmp_path / "mine")
    assert [title for title, _ in plots_of_run(series)] == ["Loss", "Wer"]
    numbers = last_numbers(series)
    assert numbers is not None
    assert [row for row in numbers.rows if row[0] == "wer"] == [["wer", "", "0.1", "0.1", "0.5", "5"]]
    _, written = write_everything(tmp_path / "mine")
    page = written[-1].read_text()
    assert written[-1].name == "report.html"
    assert "Loss by step: it ends at 0.2" in page
