"""Graphs from run directories: the numbers they show, and a picture whatever the directories hold."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from kharness.report.curves import TRAINING_LOSS
from kharness.report.graphs import GRAPH_MODULES, draw_all, time_per_step, training_loss
from kharness.report.graphs._canvas import PALETTE, folded
from kharness.report.plots import cost_plots
from kharness.report.plots.matrix_plots import plot_of_metric, plots_of_matrix
from kharness.report.summary import collect

from .conftest import Make, MatrixDirectory

# Of a matrix without GPU samples, with an accuracy and one workload.
LEFT_OUT = {
    *("gpu_load_balance_analysis", "gpu_memory_comparison", "gpu_memory_timeline", "gpu_power_temperature"),
    *("per_gpu_memory_breakdown", "performance_profile", "validation_loss", "deciding_metric"),
}
DRAWN = [
    *("differences", "pareto_front", "time_per_step", "time_to_target", "training_loss"),
    "validation_accuracy",
]


def csv_rows(directory: Path, name: str) -> list[list[str]]:
    return [line.split(",") for line in (directory / "graphs" / f"{name}.csv").read_text().splitlines()]


def test_every_graph_is_a_picture_with_its_numbers(matrix: MatrixDirectory) -> None:
    pictures = draw_all(collect(matrix.directory))
    assert {*DRAWN, *LEFT_OUT} <= set(GRAPH_MODULES.names)
    assert [path.stem for path in pictures if path.stem in {*DRAWN, *LEFT_OUT}] == DRAWN
    for path in pictures:
        with Image.open(path) as image:
            colors = image.convert("RGB").getcolors(1 << 20)
            assert image.mode == "RGB"  # nothing shines through
            assert min(image.size) > 300
            assert colors is not None
            assert len(colors) > 50
        assert path.with_suffix(".csv").exists()


def test_training_loss_shows_runs_and_the_mean_of_complete_ones(matrix: MatrixDirectory) -> None:
    draw_all(collect(matrix.directory), ["training_loss"])
    rows = csv_rows(matrix.directory, "training_loss")
    assert rows[0] == ["variant", "run", "num_runs", "global_step", "train_loss", "lowest", "highest"]
    assert [row[3:5] for row in rows if row[:3] == ["sgd", "", "2"]] == [
        ["1.0", "2.25"],
        ["2.0", "1.25"],
        ["3.0", "0.5"],
        ["4.0", "0.5"],
    ]
    assert [row[3:5] for row in rows if row[1] == "optimizer-adam_seed-2"] == [["1.0", "3.0"]]
    assert [row[4] for row in rows if row[:3] == ["adam", "", "1"]] == ["4.0", "2.0", "1.0", "0.5"]


def test_long_runs_are_drawn_as_means_over_steps(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1"]})
    made.add({"SEED": "1"}, make.training([float(n) for n in range(1, 251)], [0.5], 0.5))
    draw_all(collect(made.directory), ["training_loss"])
    rows = csv_rows(made.directory, "training_loss")
    assert rows[1] == ["lenet5", "seed-1", "1", "2.0", "2.0", "1.0", "3.0"]
    # Step 250 would be alone in its bin of three, and a single step is no mean.
    assert rows[83] == ["lenet5", "seed-1", "1", "248.5", "248.5", "247.0", "250.0"]


def test_a_spike_of_one_step_is_in_the_picture_and_its_table(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2"]})
    for seed in ("1", "2"):
        losses = [9e5 if seed == "2" and step == 501 else 1.0 for step in range(1, 1001)]
        made.add({"SEED": seed}, make.training(losses, [0.5], 0.5))
    draw_all(collect(made.directory), ["training_loss"])
    rows = csv_rows(made.directory, "training_loss")
    spikes = [(row[1], row[3], row[6]) for row in rows[1:] if float(row[6]) > 1]
    assert spikes == [("seed-2", "505.5", "900000.0"), ("", "505.5", "900000.0")]
    plot = plot_of_metric(collect(made.directory), TRAINING_LOSS)
    assert plot is not None
    assert (plot.y.kind, plot.y.high > 9e5) == ("log", True)
    assert max(max(one.highs, default=0.0) for one in plot.strands) == 9e5


def test_a_mean_stops_where_one_of_its_runs_stops(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2"]})
    made.add({"SEED": "1"}, make.training([1.0, 1.0, 1.0], [0.5], 0.5))
    made.add({"SEED": "2"}, make.training([3.0, 3.0], [0.5], 0.5))
    draw_all(collect(made.directory), ["training_loss"])
    mean = [row[3:5] for row in csv_rows(made.directory, "training_loss") if row[1] == ""]
    assert mean == [["1.0", "2.0"], ["2.0", "2.0"]]


def test_equal_curves_are_drawn_in_turns(tmp_path: Path, make: Make) -> None:
    """The last one hid the others: three optimizers with one loss looked like a single one."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam", "lion"]})
    for name, losses in {"sgd": [2.0, 1.0], "adam": [2.0, 1.0], "lion": [2.0, 0.5]}.items():
        made.add({"OPTIMIZER": name}, make.training(losses, [0.5, 0.75], 0.5))
    summary = collect(made.directory)
    plot = plot_of_metric(summary, TRAINING_LOSS)
    assert plot is not None
    assert [(path.label, path.style) for path in plot.paths] == [
        ("sgd", "stroke-dasharray:11 11;stroke-dashoffset:0;stroke-linecap:butt"),
        ("adam", "stroke-dasharray:11 11;stroke-dashoffset:11;stroke-linecap:butt"),
        ("lion", ""),
    ]
    assert plot.said == ["Striped: exactly equal lines (sgd; adam)."]
    figure = training_loss.draw(summary)
    lines: list[Any] = figure.axes[0].get_lines()  # no public method returns the dashes that were asked for
    assert [line._unscaled_dash_pattern for line in lines] == [
        (0.0, [5.0, 5.0]),
        (5.0, [5.0, 5.0]),
        (0, None),
    ]
    assert figure.texts[1].get_text() == "m\nStriped: exactly equal lines (sgd; adam)."


def test_a_picture_has_the_rows_and_words_of_the_page(matrix: MatrixDirectory) -> None:
    summary = collect(matrix.directory)
    (plot,) = cost_plots.time_per_step(summary)
    figure = time_per_step.draw(summary)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in plot.rows]
    assert [text.get_text() for text in axes.texts] == [row.words for row in plot.rows]
    assert [label.get_text() for label in axes.get_xticklabels()] == [text for _, text in plot.ticks]
    assert (axes.get_xlabel(), figure.texts[-2].get_text()) == (plot.title, plot.caption)


def test_a_single_validation_of_each_run_is_drawn(tmp_path: Path, make: Make) -> None:
    """A line through one point shows nothing: a picture without any blue was drawn."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": [f"v{n}" for n in range(7)]})
    for n in range(7):
        made.add({"OPTIMIZER": f"v{n}"}, make.training([2.0, 1.0], [0.1 * n], 0.5))
    (picture,) = draw_all(collect(made.directory), ["validation_accuracy"])
    with Image.open(picture) as image:
        colors = image.convert("RGB").getcolors(2**24)
    assert colors is not None
    found = {color: count for count, color in colors}
    assert [name for name in PALETTE if found.get(tuple(bytes.fromhex(name[1:])), 0) < 40] == []


def test_long_names_fold_above_their_panels() -> None:
    label = "adamw, learning_rate=0.001, batch_size=256, weight_decay=0.01"
    assert folded(label, 31) == "adamw, learning_rate=0.001,\nbatch_size=256, weight_decay=0…"
    assert folded("sgd", 31) == "sgd"
    assert folded("a" * 40, 31) == "a" * 30 + "…"


def test_time_per_step_gives_quantiles_in_milliseconds(matrix: MatrixDirectory) -> None:
    draw_all(collect(matrix.directory), ["time_per_step"])
    rows = csv_rows(matrix.directory, "time_per_step")
    assert rows[0] == [
        *("variant", "run", "status", "num_steps"),
        *("p05_ms", "p25_ms", "p50_ms", "p75_ms", "p95_ms", "max_ms"),
    ]
    # Four steps of 10, 20, 30 and 40 ms, interpolated between the order statistics.
    assert rows[1] == [
        "sgd",
        "optimizer-sgd_seed-1",
        "complete",
        "4",
        "11.5",
        "17.5",
        "25.0",
        "32.5",
        "38.5",
        "40.0",
    ]
    assert rows[4][:4] == ["adam", "optimizer-adam_seed-2", "failed", "2"]


def test_validation_accuracy_is_in_percent(matrix: MatrixDirectory) -> None:
    draw_all(collect(matrix.directory), ["validation_accuracy"])
    rows = csv_rows(matrix.directory, "validation_accuracy")
    assert rows[1:3] == [
        ["sgd", "optimizer-sgd_seed-1", "1", "2.0", "50.0"],
        ["sgd", "optimizer-sgd_seed-1", "1", "4.0", "75.0"],
    ]


def test_the_same_numbers_give_the_same_bytes(matrix: MatrixDirectory) -> None:
    first = [path.read_bytes() for path in draw_all(collect(matrix.directory))]
    assert [path.read_bytes() for path in draw_all(collect(matrix.directory))] == first


def test_a_matrix_without_data_has_graphs_that_say_so(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"]})
    made.plan({"OPTIMIZER": "sgd"})
    made.add({"OPTIMIZER": "adam"}, [], status="killed", reason="signal 9")
    stems = [path.stem for path in draw_all(collect(made.directory))]
    assert [stem for stem in stems if stem in {*DRAWN, *LEFT_OUT}] == DRAWN
    assert csv_rows(made.directory, "training_loss") == [
        ["variant", "run", "num_runs", "global_step", "train_loss", "lowest", "highest"]
    ]


def test_more_variants_than_colors_are_drawn(tmp_path: Path, make: Make) -> None:
    sizes = [str(2**n) for n in range(9)]
    made = make.matrix(tmp_path / "m", {"BATCH_SIZE": sizes})
    for size in sizes:
        made.add({"BATCH_SIZE": size}, make.training([2.0, 1.0], [0.5, 0.6], 0.5))
    for path in draw_all(collect(made.directory)):
        with Image.open(path) as image:
            assert image.width > 900


def test_a_perfect_accuracy_stays_on_a_logarithmic_picture(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1"]})
    made.add({"SEED": "1"}, make.training([2.0, 1.0, 0.5], [0.5, 0.99, 1.0], 1.0))
    draw_all(collect(made.directory), ["validation_accuracy"])
    assert csv_rows(made.directory, "validation_accuracy")[3] == ["lenet5", "seed-1", "1", "3.0", "100.0"]


@pytest.mark.parametrize(
    ("decides", "recorded", "title"),
    [("val_acc", "val_acc", "Val acc"), ("test_f1", "val_f1", "Val f1"), ("reward", "reward", "Reward")],
)
def test_what_decides_is_drawn_where_no_other_graph_shows_it(
    tmp_path: Path, decides: str, recorded: str, title: str
) -> None:
    matrix = MatrixDirectory(tmp_path / "m", {"LR": ["1", "2"], "SEED": ["1"]})
    for lr in ("1", "2"):
        records: list[dict[str, Any]] = [{"event": "start", "num_steps": 2}]
        for step in (1, 2):
            at, value = {"global_step": step}, {recorded: step / int(lr)}
            is_step = recorded == "reward"
            losses = {"train_loss": 1 / step, "sec_per_step": 0.5, **(value if is_step else {})}
            records.append({"event": "step", **at, **losses})
            records += [] if is_step else [{"event": "eval", "split": "val", **at, **value}]
        end = {"event": "end", "status": "complete", "training_seconds": 1.0, "test_f1": 0.5}
        matrix.add({"LR": lr, "SEED": "1"}, [*records, end])
    said = {"CONFIG_REPORT_METRIC": decides, "CONFIG_REPORT_BETTER": f"{decides} = up"}
    found = collect(matrix.directory, said)
    assert title in [plot.title for plot in plots_of_matrix(found)]
    assert [path.stem for path in draw_all(found, ["deciding_metric"])] == ["deciding_metric"]
    names = ["variant", "run", "num_runs", "global_step", recorded]
    header, *rows = csv_rows(matrix.directory, "deciding_metric")
    assert header[:5] == names
    assert [row[3:5] for row in rows if not row[1]] == [
        *(["1.0", "1.0"], ["2.0", "2.0"]),
        *(["1.0", "0.5"], ["2.0", "1.0"]),
    ]


def test_names_with_formulas_are_drawn_as_text(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"TRACKER_PROJECT": ["a$b$", "a_$\\frac{"]})
    for name in ("a$b$", "a_$\\frac{"):
        made.plan({"TRACKER_PROJECT": name})
        made.cells[-1]["name"] = f"cell{len(made.cells)}"
    made.cells.pop()
    made.add({"TRACKER_PROJECT": "a_$\\frac{"}, make.training([2.0, 1.0], [0.5], 0.5))
    stems = [path.stem for path in draw_all(collect(made.directory))]
    assert [stem for stem in stems if stem in {*DRAWN, *LEFT_OUT}] == DRAWN


def test_reading_a_summary_loads_neither_torch_nor_matplotlib(matrix: MatrixDirectory) -> None:
    program = (
        "import sys; from pathlib import Path; from kharness.report.summary import collect; "
        "import kharness.report.graphs, kharness.report.writing.files; collect(Path(sys.argv[1])); "
        "print(sorted({'torch', 'matplotlib', 'kconfiglib', 'trackio', 'wandb'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(matrix.directory)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_figures_of_many_runs_are_given_back_before_the_next(tmp_path: Path, make: Make) -> None:
    seeds = [str(seed) for seed in range(200)]
    made = make.matrix(tmp_path / "many", {"SEED": seeds})
    made.cells = [{"name": f"seed-{seed}", "values": {"SEED": seed}, "model": "lenet5"} for seed in seeds]
    made._write_plan()
    gc.collect()
    before = sum(isinstance(one, Figure) for one in gc.get_objects())
    gc.disable()
    try:
        assert draw_all(collect(made.directory), ["time_per_step"])
        assert sum(isinstance(one, Figure) for one in gc.get_objects()) == before
    finally:
        gc.enable()
