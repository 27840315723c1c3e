"""Graphs from run directories: the numbers they show, and a picture whatever the directories hold."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from kharness.report.graphs import GRAPH_MODULES, draw_all, training_loss, validation_accuracy
from kharness.report.graphs._canvas import PALETTE, folded
from kharness.report.summary import collect

from .conftest import Make, MatrixDirectory

# Of a matrix without GPU samples, with an accuracy and one workload.
LEFT_OUT = {
    *("gpu_load_balance_analysis", "gpu_memory_comparison", "gpu_memory_timeline", "gpu_power_temperature"),
    *("per_gpu_memory_breakdown", "performance_profile", "validation_loss"),
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
    summary = collect(made.directory)
    figure = training_loss.draw(summary)
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_ylim()[1] > 9e5


def test_a_mean_stops_where_one_of_its_runs_stops(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2"]})
    made.add({"SEED": "1"}, make.training([1.0, 1.0, 1.0], [0.5], 0.5))
    made.add({"SEED": "2"}, make.training([3.0, 3.0], [0.5], 0.5))
    draw_all(collect(made.directory), ["training_loss"])
    mean = [row[3:5] for row in csv_rows(made.directory, "training_loss") if row[1] == ""]
    assert mean == [["1.0", "2.0"], ["2.0", "2.0"]]


def drawn(figure: Any) -> list[tuple[str, tuple[float, ...], Any, list[Any]]]:
    """Color, values, dash pattern in line widths (offset, on, off) and markers of each line."""
    found = []
    for line in figure.axes[0].get_lines():
        offset, dashes = line._unscaled_dash_pattern  # what was asked for; no public method returns it
        size = line.get_markersize() if line.get_marker() != "None" else None
        look = (offset, *dashes) if dashes else None
        found.append((line.get_color(), tuple(line.get_ydata()), look, [size, line.get_markevery()]))
    return found


def test_equal_curves_are_drawn_in_turns(tmp_path: Path, make: Make) -> None:
    """The last one hid the others: three optimizers with one loss looked like a single one."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam", "lion", "rms"], "SEED": ["1"]})
    for name, losses in {"sgd": [2.0, 1.0], "adam": [2.0, 1.0], "lion": [2.0, 0.5]}.items():
        made.add({"OPTIMIZER": name, "SEED": "1"}, make.training(losses, [0.5, 0.75], 0.5))
    made.add({"OPTIMIZER": "rms", "SEED": "1"}, make.training([2.0, 1.0], [], None)[:3], status="failed")
    summary = collect(made.directory)
    figure = training_loss.draw(summary)
    sgd, adam, lion, rms = PALETTE[:4]
    assert drawn(figure) == [
        (sgd, (2.0, 1.0), (0.0, 5.0, 5.0), [None, (0, 2)]),
        (sgd, (2.0, 1.0), (0.0, 5.0, 5.0), [None, (0, 2)]),
        (adam, (2.0, 1.0), (5.0, 5.0, 5.0), [None, (1, 2)]),
        (adam, (2.0, 1.0), (5.0, 5.0, 5.0), [None, (1, 2)]),
        (lion, (2.0, 0.5), None, [None, (0, 1)]),
        (lion, (2.0, 0.5), None, [None, (0, 1)]),
        (rms, (2.0, 1.0), (0.0, 1.0, 1.5), [None, None]),
        (rms, (1.0,), None, [6.0, None]),
    ]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "sgd (n=1)",
        "adam (n=1)\nsame as sgd",
        "lion (n=1)",
        "rms (n=0)",
    ]
    assert "striped: exactly equal curves" in figure.texts[1].get_text()
    accuracies = drawn(validation_accuracy.draw(summary))
    assert [(line[0], line[3]) for line in accuracies if line[3][0]] == [
        (sgd, [13.0, None]),
        (adam, [9.0, None]),
        (lion, [5.0, None]),
    ]


def test_a_single_validation_of_each_run_is_drawn(tmp_path: Path, make: Make) -> None:
    """A line through one point shows nothing: seven panels without any blue were drawn."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": [f"v{n}" for n in range(7)]})
    for n in range(7):
        made.add({"OPTIMIZER": f"v{n}"}, make.training([2.0, 1.0], [0.1 * n], 0.5))
    (picture,) = draw_all(collect(made.directory), ["validation_accuracy"])
    with Image.open(picture) as image:
        colors = image.convert("RGB").getcolors(2**24)
    assert colors is not None
    blue = [count for count, color in colors if color == (0, 114, 178)]
    assert blue
    assert blue[0] > 7 * 40


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


def test_many_runs_share_a_row_a_variant(tmp_path: Path, make: Make) -> None:
    """Ninety rows of runs were a picture of twenty pages."""
    sizes = {}
    for seeds in (20, 21):
        axes = {"OPTIMIZER": ["sgd", "adam"], "SEED": [str(seed) for seed in range(seeds)]}
        made = make.matrix(tmp_path / str(seeds), axes)
        for name in axes["OPTIMIZER"]:
            for seed in axes["SEED"]:
                made.add({"OPTIMIZER": name, "SEED": seed}, make.training([2.0, 1.0], [0.5], 0.5))
        (picture,) = draw_all(collect(made.directory), ["time_per_step"])
        with Image.open(picture) as image:
            sizes[seeds] = image.height
        assert len(csv_rows(made.directory, "time_per_step")) == 1 + 2 * seeds
    assert sizes[20] > 3 * sizes[21]


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


def test_more_variants_than_colors_are_small_multiples(tmp_path: Path, make: Make) -> None:
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
