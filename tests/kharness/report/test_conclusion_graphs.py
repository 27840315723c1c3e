"""Graphs of conclusions: the numbers they show, against numbers worked out by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import scipy
from PIL import Image

from kharness.report.graphs import draw_all
from kharness.report.judging.statistics import largest_t, t_quantile
from kharness.report.summary import collect

from .conftest import Make, MatrixDirectory

GRAPHS = ("differences", "pareto_front", "time_to_target")


def rows(directory: Path, name: str) -> list[dict[str, str]]:
    with (directory / "graphs" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def seeded(tmp_path: Path, make: Make) -> MatrixDirectory:
    """Two optimizers, three seeds; adam is 10, 20 and 30 points better, lion never gets there."""
    axes = {"OPTIMIZER": ["sgd", "adam", "lion"], "SEED": ["1", "2", "3"]}
    made = make.matrix(tmp_path / "test_matrix_y", axes)
    accuracies = {"sgd": (0.5, 0.5, 0.5), "adam": (0.6, 0.7, 0.8), "lion": (0.25, 0.25, 0.25)}
    for optimizer, of_seeds in accuracies.items():
        for seed, accuracy in zip("123", of_seeds, strict=True):
            records = make.training([2.0, 1.5, 1.0, 0.5], [accuracy - 0.25, accuracy], accuracy)
            made.add({"OPTIMIZER": optimizer, "SEED": seed}, records)
    return made


def test_differences_and_intervals_are_in_percentage_points(seeded: MatrixDirectory) -> None:
    draw_all(collect(seeded.directory), ["differences"])
    adam, lion = rows(seeded.directory, "differences")
    # Differences of 10, 20 and 30 points, and of -25: of the residuals of the table (adam's ±10 points, two
    # thirds of them, and a third in each of the others) the mean square is 400/3 / 4. Dunnett's t of two.
    half = largest_t(2, 4, 0.045) * (2 * (400 / 3 / 4) / 3) ** 0.5
    # adam's own pairs do not show that much: a paired t interval at 95 %
    own = t_quantile(2, 0.95) * 10 / 3**0.5
    assert half < own
    assert [float(adam[name]) for name in ("difference", "low", "high", "level")] == pytest.approx(
        [20, 20 - own, 20 + own, 0.955], rel=1e-9
    )
    assert {key: adam[key] for key in ("variant", "baseline", "metric", "unit", "n_variant", "verdict")} == {
        "variant": "adam",
        "baseline": "sgd",
        "metric": "test_accuracy",
        "unit": "percentage points",
        "n_variant": "3",
        "verdict": "no difference shown",
    }
    assert [float(lion[name]) for name in ("difference", "low", "high")] == pytest.approx(
        [-25, -25 - half, -25 + half], rel=1e-9
    )
    assert lion["verdict"] == "worse"


def test_time_to_target_has_every_run(seeded: MatrixDirectory) -> None:
    (seeded.directory / "optimizer-adam_seed-3" / "status.json").unlink()
    journal = seeded.directory / "optimizer-adam_seed-3" / "metrics.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:4]))
    draw_all(collect(seeded.directory, {"CONFIG_REPORT_TARGET": "val_accuracy>=0.5"}), ["time_to_target"])
    found = {row["run"]: row for row in rows(seeded.directory, "time_to_target")}
    assert {name: (row["reached"], row["global_step"]) for name, row in found.items()} == {
        "optimizer-sgd_seed-1": ("yes", "4"),
        "optimizer-sgd_seed-2": ("yes", "4"),
        "optimizer-sgd_seed-3": ("yes", "4"),
        "optimizer-adam_seed-1": ("yes", "4"),
        "optimizer-adam_seed-2": ("yes", "4"),
        "optimizer-adam_seed-3": ("yes", "2"),
        "optimizer-lion_seed-1": ("no", ""),
        "optimizer-lion_seed-2": ("no", ""),
        "optimizer-lion_seed-3": ("no", ""),
    }
    assert found["optimizer-sgd_seed-1"]["target"] == "val_accuracy>=0.5"
    # Steps of 10, 20, 30 and 40 ms.
    assert float(found["optimizer-sgd_seed-1"]["seconds"]) == pytest.approx(0.1)


def test_front_holds_what_nothing_beats(seeded: MatrixDirectory) -> None:
    for number, path in enumerate(sorted(seeded.directory.glob("optimizer-*_seed-*/metrics.jsonl"))):
        text = path.read_text()
        seconds = {"adam": 9.0, "lion": 8.0, "sgd": 5.0}[path.parent.name.split("_")[0].split("-")[1]]
        assert text.count('"training_seconds": 4.0') == 1, number
        path.write_text(text.replace('"training_seconds": 4.0', f'"training_seconds": {seconds}'))
    draw_all(collect(seeded.directory), ["pareto_front"])
    found = [
        [row[key] for key in ("variant", "quality_value", "cost", "cost_value", "on_front", "beaten_by")]
        for row in rows(seeded.directory, "pareto_front")
    ]
    assert found == [
        ["sgd", "50.0", "training_seconds", "5.0", "yes", ""],
        ["adam", "70.0", "training_seconds", "9.0", "yes", ""],
        ["lion", "25.0", "training_seconds", "8.0", "no", "sgd"],
    ]


def test_profile_over_two_workloads(tmp_path: Path, make: Make) -> None:
    axes = {"DATASET": ["mnist", "mnist-subset"], "OPTIMIZER": ["sgd", "adam"]}
    made = make.matrix(tmp_path / "m", axes)
    # Validations after steps 2 and 4, which is after 30 and 100 ms.
    reached_after = {("mnist", "sgd"): 2, ("mnist", "adam"): 4}
    reached_after |= {("mnist-subset", "sgd"): 4, ("mnist-subset", "adam"): 4}
    for (dataset, optimizer), step in reached_after.items():
        accuracies = [0.75, 0.75] if step == 2 else [0.5, 0.75]
        records = make.training([2.0, 1.5, 1.0, 0.5], accuracies, 0.75)
        made.add({"DATASET": dataset, "OPTIMIZER": optimizer}, records)
    draw_all(collect(made.directory, {"CONFIG_REPORT_TARGET": "val_accuracy>=0.7"}), ["performance_profile"])
    found = [[row["variant"], *list(row.values())[2:]] for row in rows(made.directory, "performance_profile")]
    assert [row[0] for row in found] == ["OPTIMIZER=sgd", "OPTIMIZER=adam"]
    ratios = [[float(ratio) for ratio in row[1:]] for row in found]
    assert ratios == [pytest.approx([1, 1]), pytest.approx([100 / 30, 1])]


def test_a_single_run_has_the_graphs_that_it_can_have(seeded: MatrixDirectory) -> None:
    run = seeded.directory / "optimizer-adam_seed-1"
    pictures = draw_all(collect(run))
    assert {path.stem for path in pictures} >= set(GRAPHS)
    assert {name: len(rows(run, name)) for name in GRAPHS} == {
        "differences": 0,
        "pareto_front": 1,
        "time_to_target": 1,
    }


def test_long_intervals_do_not_flatten_the_others(tmp_path: Path, make: Make) -> None:
    """Two seeds of one variant differ wildly; its bar ends in arrows and the CSV has its true ends."""
    names = ["sgd", *(f"v{n}" for n in range(6))]
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": names, "SEED": ["1", "2", "3"]})
    for name in names:
        for seed in "123":
            accuracy = 0.5 + (0 if name == "sgd" else 0.01 * int(seed) * (40 if name == "v5" else 1))
            if name == "v5" and seed == "3":
                continue
            made.add({"OPTIMIZER": name, "SEED": seed}, make.training([2.0, 1.0], [accuracy], accuracy))
    for path in draw_all(collect(made.directory)):
        with Image.open(path) as image:
            assert image.width > 900
    widths = {row["variant"]: float(row["high"]) for row in rows(made.directory, "differences")}
    # differences of 40 and 80 points
    assert widths["v5"] == pytest.approx(60 + scipy.stats.t.ppf(0.975, 1) * 20)
    assert widths["v5"] > 20 * widths["v0"]
