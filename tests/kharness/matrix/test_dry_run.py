"""`make test_matrix_dry_run` from outside: the script as a process."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.matrix_json import Plan, planned_content
from kharness.matrix.running.table import duration
from kharness.report.judging.power import Chances, Rule, smallest

from .conftest import Checkout


def put_run(
    checkout: Checkout,
    name: str,
    *,
    seconds: float = 4.0,
    status: str = "complete",
    accuracy: float | None = None,
    images: int | None = None,
    **config: Any,
) -> None:
    """A finished run of three steps in the results folder."""
    run = checkout.root / "results" / name
    run.mkdir(parents=True)
    known = {"MODEL": "pretender", "OPTIMIZER": "sgd", "NUM_STEPS": 3, **config}
    records: list[dict[str, Any]] = [
        {"event": "start", "attempt": 1, "config": known},
        {"event": "end", "attempt": 1, "status": status, "steps_done": 3, "training_seconds": seconds},
    ]
    if images is not None:
        records[0]["dataset"] = {"name": "digits", "test": images}
    if accuracy is not None:
        records[-1]["test_accuracy"] = accuracy
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if "__pycache__" not in path.parts}


def test_cells_commands_number_and_time_are_told_and_nothing_is_written(checkout: Checkout) -> None:
    put_run(checkout, "a", seconds=4)
    put_run(checkout, "b", seconds=6)
    put_run(checkout, "c", seconds=2, status="failed")
    before = files(checkout.root)
    code, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=SEED=1|2", "JOBS=2")
    assert (code, output.splitlines()) == (
        0,
        [
            "no .config yet: starting from defconfigs/default",
            "matrix: 2 runs of pretender (SEED=1|2)",
            "  seed-1     5.0 s",
            "  seed-2     5.0 s",
            "one run alone: make train CONFIG_SEED=1",
            "estimate: 5.0 s, 2 at once",
            "  by the 2 complete runs in results most like each; they differ in "
            "LEARNING_RATE, BEHAVIOR, DEVICE",
            "nothing was started or written",
        ],
    )
    assert files(checkout.root) == before


def test_as_many_jobs_as_fit_are_estimated_with_as_many(checkout: Checkout) -> None:
    put_run(checkout, "a", seconds=4)
    code, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=SEED=1..100", "JOBS=0")
    jobs = os.cpu_count() or 1
    assert code == 0, output
    estimate = next(line for line in output.splitlines() if line.startswith("estimate: "))
    seconds = 4.0 * math.ceil(100 / jobs)
    assert estimate == f"estimate: {duration(seconds)}" + (f", {jobs} at once" if jobs > 1 else "")


def test_a_line_of_the_quarantine_that_means_no_cell_is_said(checkout: Checkout) -> None:
    """Not one that only FILTER leaves out."""
    (checkout.root / "known.txt").write_text("*seed-2  # diverges\n\nseed-[56]  # was renamed\n")
    asked = ("CONFIG_MATRIX_AXES=SEED=1|2|3", "FILTER=SEED=1", "CONFIG_MATRIX_QUARANTINE=known.txt")
    note = "note: known.txt:3: seed-[56] matches none of 3 cells"
    for script in ("test_matrix_dry_run", "test_matrix"):
        code, output = checkout.run(script, *asked)
        assert (code, [line for line in output.splitlines() if line.startswith("note: ")]) == (0, [note])


def test_without_a_measurement_the_time_is_unknown(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=SEED=1")
    assert code == 0, output
    assert output.splitlines()[-2:] == [
        "estimate: unknown until a run of pretender is complete in results",
        "nothing was started or written",
    ]


def test_what_is_left_out_is_told(checkout: Checkout) -> None:
    (checkout.root / "known.txt").write_text("*seed-2  # diverges\n")
    code, output = checkout.run(
        "test_matrix_dry_run",
        "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam ADAM_BETAS='0.9 0.9' SEED=1|2|3",
        "CONFIG_MATRIX_EXCLUDE=SEED=3",
        "CONFIG_MATRIX_SKIP_REFUSED=y",
        "CONFIG_MATRIX_QUARANTINE=known.txt",
        "FILTER=SEED=1|2",
        "CONFIG_BEHAVIOR=good",
    )
    assert code == 0, output
    refused = "ADAM_BETAS='0.9 0.9': ADAM_BETAS=0.9 0.9 has no effect: needs OPTIMIZER_ADAM=y, which is n"
    assert output.splitlines()[5:-2] == [
        "only what FILTER=SEED=1|2 matches",
        "left out by MATRIX_EXCLUDE: 2",
        "  optimizer-sgd_seed-3",
        "  optimizer-adam_seed-3",
        "refused by the option tree and skipped: 2",
        f"  optimizer-sgd_seed-1: {refused}",
        f"  optimizer-sgd_seed-2: {refused}",
        "in quarantine: 1",
        "  optimizer-adam_seed-2: diverges",
    ]


def test_a_matrix_that_cannot_start_is_refused_as_by_test_matrix(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=OPTIMIZER=lion")
    assert (code, output.splitlines()[1:]) == (
        2,
        [
            "error: MATRIX_AXES: OPTIMIZER=lion is not one of adam, sgd",
            "hint: see `make configwhy SYMBOL=OPTIMIZER`",
        ],
    )


def test_what_the_seeds_could_show_is_told(checkout: Checkout) -> None:
    """The smallest detectable effect follows SciPy's noncentral t at 4.5 %.

    The deviation is that of an earlier matrix, with one degree of freedom.
    """
    import numpy as np
    from scipy import stats  # takes seconds, and each worker of the suite imports this file
    from scipy.optimize import brentq

    axes = "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1..4"
    t = stats.t.ppf(1 - 0.045 / 2, 3)
    # an estimated deviation of 1, in true ones: chi, in 25 equal parts
    unknown = np.sqrt(stats.chi2.ppf((np.arange(25) + 0.5) / 25, 1))

    def found(estimates: Any) -> float:
        error = math.sqrt(2 / 4)
        return float(brentq(lambda d: np.mean(stats.nct.sf(t, 3, d * estimates / error)) - 0.8, 0, 60))

    code, output = checkout.run("test_matrix_dry_run", axes)
    told = (
        "verdicts: 1 comparison at 4 seeds; "
        f"a difference of {found(np.ones(1)):.2g} standard deviations or more is found"
    )
    assert (code, output.splitlines()[-2]) == (0, f"{told} (80 % power)")
    put_matrix(checkout)
    code, output = checkout.run("test_matrix_dry_run", axes)
    # residuals of ±0.5 points: a sum of squares of 4 · 0.25, of one degree
    spread = "  by the spread in old that is "
    assert output.splitlines()[-3] == f"{told} (80 % power)"
    assert output.splitlines()[-2].startswith(spread)
    number, _, rest = output.splitlines()[-2].removeprefix(spread).partition(" ")
    assert float(number) == pytest.approx(found(unknown), rel=0.01)
    assert rest == "points of test accuracy"


def test_what_no_number_of_seeds_shows_is_told(checkout: Checkout) -> None:
    """The earlier matrix was tested on 100 images: z²/(100 + z²) with z of 1 - 0.045/2."""
    put_matrix(checkout, images=100)
    _, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1..40")
    first, second = output.splitlines()[-3:-1]
    assert first.startswith("  by the spread in old and its 100 test images that is ")
    assert second == "  on 100 test images no number of seeds shows less than 3.86 points"


def test_main_effects_of_several_axes_count_among_the_comparisons(checkout: Checkout) -> None:
    axes = "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam LEARNING_RATE=0.1|0.2 SEED=1..4"
    code, output = checkout.run("test_matrix_dry_run", axes)
    rule = Rule(3, 1.0, 0.5, degrees=9, seeds=4, pooled=True, own_level=0.05)
    size = smallest(Chances(rule, 4, 0.045 * 3 / 5, math.sqrt(2), None, 0.0))
    told = "verdicts: 3 comparisons and 2 main effects at 4 seeds; a difference of"
    told = f"{told} {size:.2g} standard deviations or more is found (80 % power)"
    assert (code, output.splitlines()[-2]) == (0, told)


def put_matrix(checkout: Checkout, images: int | None = None) -> None:
    """Two optimizers, two seeds; accuracies of 50, 52, 51 and 51 percent."""
    directory = checkout.root / "results" / "old"
    cells = []
    for optimizer, accuracies in (("sgd", (0.50, 0.52)), ("adam", (0.51, 0.51))):
        for seed, accuracy in zip("12", accuracies, strict=True):
            name = f"optimizer-{optimizer}_seed-{seed}"
            put_run(checkout, f"old/{name}", accuracy=accuracy, images=images)
            values = {"OPTIMIZER": optimizer, "SEED": seed}
            cells.append({"name": name, "values": values, "model": "x"})
    axes = [Axis("OPTIMIZER", ["sgd", "adam"]), Axis("SEED", ["1", "2"])]
    plan = planned_content(Plan(directory, axes, cells=(), launches=(), created=1000.0))
    (directory / "matrix.json").write_text(json.dumps({**plan, "model": "x", "cells": cells}))
    (checkout.root / "results" / "latest").symlink_to("old")


def test_too_few_seeds_are_told_before_they_run(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix_dry_run", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1|2")
    assert (code, output.splitlines()[-2]) == (0, "verdicts: none from 2 seeds; they begin at 5")


def test_the_make_target_tells(root: Path, tmp_path: Path) -> None:
    import subprocess

    make = shutil.which("make")
    assert make is not None
    told = subprocess.run(
        [
            make,
            "-s",
            "test_matrix_dry_run",
            "VENV=",
            f"PYTHON={sys.executable}",
            f"O={tmp_path}",
            "CONFIG_MATRIX_AXES=SEED=1",
        ],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert told.splitlines()[-1] == "nothing was started or written"
    assert list(tmp_path.iterdir()) == []
