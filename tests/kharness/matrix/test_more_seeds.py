"""`make continue SEED=1..4` of a matrix that was planned with two seeds, and `kharness continue -a`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from .conftest import Checkout, Command
from .test_continue import everything

Wait = Callable[[Callable[[], bool]], None]
OPTIMIZERS = "OPTIMIZER=sgd|adam"
TRAINS = Path(__file__).parent / "commands" / "trains.py"


def plan(matrix: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((matrix / "matrix.json").read_text())
    return found


def values_of(matrix: Path) -> Mapping[str, object]:
    """The values of each cell, without those that differ from run to run of the same."""
    summary = json.loads((matrix / "summary.json").read_text())
    measured = ("peak_cpu_memory", "training_cpu_seconds", "other_work")
    return {
        run["name"]: {name: value for name, value in run["metrics"].items() if name not in measured}
        for run in summary["runs"]
    }


@pytest.fixture(scope="module")
def trained(make_checkout: Callable[[], Checkout]) -> Checkout:
    """A complete matrix of two optimizers and two seeds, to be copied."""
    checkout = make_checkout()
    code, output = checkout.run(
        "test_matrix", "CONFIG_NUM_STEPS=2", f"CONFIG_MATRIX_AXES={OPTIMIZERS} SEED=1..2"
    )
    assert code == 0, output
    return checkout


@pytest.fixture
def two(trained: Checkout, tmp_path: Path) -> Checkout:
    return trained.copy(tmp_path / "checkout")


def test_new_seeds_are_trained_and_the_old_cells_are_not_touched(two: Checkout) -> None:
    matrix, before = two.latest, plan(two.latest)
    old = {cell["name"]: everything(matrix / cell["name"]) for cell in before["cells"]}
    code, output = two.run("continue", "CONFIG_SEED=1..4")
    assert code == 0, output
    assert f"4 runs added to results/{matrix.name}: SEED=3|4\n" in output
    assert f"matrix: 4 of 8 runs left in results/{matrix.name}\n" in output
    assert two.latest == matrix
    names = [f"optimizer-{name}_seed-{seed}" for name in ("sgd", "adam") for seed in range(1, 5)]
    assert two.statuses() == dict.fromkeys(sorted(names), "complete")
    assert {name: everything(matrix / name) for name in old} == old
    proposed = f"make continue RUN=results/{matrix.name} SEED=1..5"
    assert proposed in (matrix / "report.html").read_text()
    after = plan(matrix)
    assert [cell["name"] for cell in after["cells"]] == names
    assert [cell for cell in after["cells"] if cell["name"] in old] == before["cells"]
    assert after["axes"][1] == {"symbol": "SEED", "values": ["1", "2", "3", "4"]}
    assert after["seeds"] == {**before["seeds"], "first": ["1", "2"], "order": ["1", "2", "3", "4"]}
    assert {**after, "axes": 0, "cells": 0, "seeds": 0, "settings": 0} == {
        **before, "axes": 0, "cells": 0, "seeds": 0, "settings": 0
    }  # fmt: skip
    assert after["settings"] == {**before["settings"], "MATRIX_AXES": f"{OPTIMIZERS} SEED=1..2|3|4"}


def test_its_values_are_those_of_a_matrix_planned_with_all_seeds(two: Checkout) -> None:
    longer = two.latest
    all_times = "CONFIG_REPORT_OTHER_WORK_LIMIT=1"  # also those on a busy machine
    assert two.run("continue", "CONFIG_SEED=1..4", all_times)[0] == 0
    words = (
        *("CONFIG_NUM_STEPS=2", "CONFIG_MATRIX_SEEDS_PLANNED=0", "CONFIG_RESULTS_DIR=others"),
        all_times,
    )
    code, output = two.run("test_matrix", *words, f"CONFIG_MATRIX_AXES={OPTIMIZERS} SEED=1..4")
    assert code == 0, output
    (whole,) = (path for path in (two.root / "others").iterdir() if not path.is_symlink())
    assert values_of(longer) == values_of(whole)
    assert [cell["name"] for cell in plan(longer)["cells"]] == [cell["name"] for cell in plan(whole)["cells"]]
    assert plan(longer)["seeds"]["variants"] == plan(whole)["seeds"]["variants"]
    configs = [
        (one / "optimizer-adam_seed-4" / "config.py").read_text().splitlines() for one in (longer, whole)
    ]
    differ = {line.partition(" = ")[0] for line in {*configs[0]} ^ {*configs[1]} if not line.startswith("#")}
    assert differ == {"MATRIX_AXES", "REPORT_OTHER_WORK_LIMIT", "RESULTS_DIR", "TRACKER_RUN_NAME"}


def test_seeds_alone_come_after_the_old_in_the_order_asked(two: Checkout) -> None:
    assert two.run("continue", "CONFIG_SEED=9|7", "FILTER=SEED=7")[0] == 0  # the other is left for later
    assert plan(two.latest)["seeds"]["order"] == ["1", "2", "9", "7"]
    statuses = two.statuses()
    assert [statuses[f"optimizer-sgd_seed-{seed}"] for seed in (9, 7)] == ["pending", "complete"]
    before = (two.latest / "matrix.json").read_bytes()
    code, output = two.run("continue", "CONFIG_SEED=7")  # nothing new: it only continues
    assert code == 0, output
    assert "added" not in output
    assert set(two.statuses().values()) == {"complete"}
    assert (two.latest / "matrix.json").read_bytes() == before


def test_killed_between_the_plan_and_its_first_new_run_it_is_continued(
    two: Checkout, wait_until: Wait
) -> None:
    matrix = two.latest
    (matrix / "optimizer-sgd_seed-3").mkdir()  # of a call that was killed even before
    (matrix / "optimizer-sgd_seed-3" / "config.py").write_text("half of")
    out, full = os.pipe()
    os.set_blocking(full, False)
    while True:  # nothing more goes in: it stops at what it says once the plan is written
        try:
            os.write(full, b"\n" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(full, True)
    process = two.start("continue", "CONFIG_SEED=3", stdout=full, stderr=full)
    wait_until(lambda: len(plan(matrix)["cells"]) == 6)
    process.kill()
    process.wait()
    os.close(out)
    os.close(full)
    pending = dict.fromkeys(["optimizer-adam_seed-3", "optimizer-sgd_seed-3"], "pending")
    assert {name: status for name, status in two.statuses().items() if status != "complete"} == pending
    code, output = two.run("continue")
    assert code == 0, output
    assert "matrix: 2 of 6 runs left" in output
    assert set(two.statuses().values()) == {"complete"}


def refused(checkout: Checkout, *arguments: str) -> str:
    """Output of a refused `make continue`, after checking that it changed no file."""
    before = everything(checkout.latest)
    code, output = checkout.run("continue", *arguments)
    assert code == 2, output
    assert everything(checkout.latest) == before
    return output.strip()


def test_what_is_not_a_seed_is_refused(two: Checkout) -> None:
    name = f"results/{two.latest.name}"
    assert refused(two, "CONFIG_SEED=1..4", "CONFIG_OPTIMIZER=sgd,adam") == (
        "error: OPTIMIZER=sgd|adam cannot change a matrix that has begun\n"
        "hint: FILTER='OPTIMIZER=sgd|adam' chooses among its cells; make test_matrix "
        "'OPTIMIZER=sgd|adam' begins another matrix"
    )
    assert refused(two, "CONFIG_SEED=1..4", "CONFIG_NUM_STEPS=9").startswith(
        "error: CONFIG_NUM_STEPS=9 cannot change a matrix that has begun\n"
    )
    assert refused(two, "CONFIG_SEED=101") == (
        "error: SEED: SEED=101 is outside 0..100\nhint: give a value from 0 to 100"
    )
    assert refused(two, f"RUN={name}/optimizer-sgd_seed-1", "CONFIG_SEED=3") == (
        "error: optimizer-sgd_seed-1 is a cell of a matrix, and has one SEED\n"
        f"hint: name the matrix: RUN={name}"
    )


def test_matrix_whose_cells_would_not_be_what_they_were_is_refused(two: Checkout) -> None:
    name = f"results/{two.latest.name}"
    hint = "\nhint: plan all seeds in a new matrix, with the settings of this one"
    kconfig = (two.root / "Kconfig").read_text()
    (two.root / "Kconfig").write_text(kconfig.replace('default "0.003"', 'default "0.004"'))
    assert refused(two, "CONFIG_SEED=3") == (
        f"error: no seeds can be added to {name}: this checkout has other options, or other values for them"
        f"{hint}"
    )
    (two.root / "Kconfig").write_text(kconfig)
    (two.latest / "optimizer-sgd_seed-3").mkdir()
    (two.latest / "optimizer-sgd_seed-3" / "metrics.jsonl").touch()
    assert refused(two, "CONFIG_SEED=3") == (
        f"error: {name}/optimizer-sgd_seed-3 is a run that its matrix does not know\n"
        "hint: move it out of the matrix"
    )


def test_matrix_of_an_earlier_version_says_what_to_type(two: Checkout) -> None:
    path = two.latest / "matrix.json"
    path.write_text(json.dumps({**plan(two.latest), "layers": {}}))
    assert refused(two, "CONFIG_SEED=1..3") == (
        f"error: no seeds can be added to results/{two.latest.name}: the version that planned it did not "
        "keep how\nhint: make test_matrix SEED=1,2,3 trains all of them in a new matrix"
    )


def test_matrix_without_the_axis_and_one_named_without_seeds_are_refused(checkout: Checkout) -> None:
    assert checkout.run("test_matrix", f"CONFIG_MATRIX_AXES={OPTIMIZERS}", "CONFIG_NUM_STEPS=1")[0] == 0
    name = f"results/{checkout.latest.name}"
    assert refused(checkout, "CONFIG_SEED=1..2") == (
        f"error: {name} has no axis SEED to add to\n"
        "hint: make test_matrix SEED=1..5, or -a seed=1..5 of kharness matrix, begins a matrix of seeds"
    )
    assert (
        checkout.run("test_matrix", f"CONFIG_MATRIX_AXES={OPTIMIZERS} SEED=1", "CONFIG_NUM_STEPS=1")[0] == 0
    )
    assert refused(checkout, "CONFIG_SEED=1..2") == (
        f"error: no seeds can be added to results/{checkout.latest.name}: its cells would get other names, "
        "or be others\nhint: plan all seeds in a new matrix, with the settings of this one"
    )


def test_fragments_groups_and_filter_hold_for_the_new_seeds(checkout: Checkout) -> None:
    (checkout.root / "slow.config").write_text("CONFIG_LEARNING_RATE=0.01\n")
    (checkout.root / "fast.config").write_text("CONFIG_LEARNING_RATE=0.2\n")
    words = (
        "CONFIG_MATRIX_AXES=rate=@slow.config|@fast.config OPTIMIZER=sgd|adam SEED=1..2",
        "CONFIG_MATRIX_EXCLUDE=rate=fast OPTIMIZER=adam",
        "CONFIG_MATRIX_INCLUDE=rate=@fast.config OPTIMIZER=adam SEED=1",
        "CONFIG_NUM_STEPS=1",
        "FILTER=rate=slow|fast",
    )
    code, output = checkout.run("test_matrix", *words)
    assert code == 0, output
    code, output = checkout.run("continue", "CONFIG_SEED=3")
    assert code == 0, output
    added = [cell["name"] for cell in plan(checkout.latest)["cells"] if cell["values"]["SEED"] == "3"]
    assert added == [f"rate-{rate}_optimizer-{name}_seed-3" for rate, name in
                     (("slow", "sgd"), ("slow", "adam"), ("fast", "sgd"))]  # fmt: skip
    (checkout.root / "slow.config").write_text("CONFIG_LEARNING_RATE=0.02\n")
    assert "this checkout has other options" in refused(checkout, "CONFIG_SEED=4")


def test_matrix_of_a_command_gets_seeds(tmp_path: Path, kharness: Command) -> None:
    axes = ["-a", "lr=1,2", "-a", "seed=1..2", "--exclude", "lr=2 seed=2", "--include", "lr=3 seed=1"]
    program = ["--", sys.executable, TRAINS, "--lr", "{lr}", "--seed={seed}"]
    done = kharness(tmp_path, "matrix", *axes, *program)
    assert done.returncode == 0, done.stdout + done.stderr
    matrix = (tmp_path / "results" / "latest").resolve()
    before = plan(matrix)["cells"]
    old = {cell["name"]: everything(matrix / cell["name"]) for cell in before}
    done = kharness(tmp_path, "continue", "-a", "seed=1..3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"2 runs added to results/{matrix.name}: SEED=3\n" in done.stdout
    names = [*(f"lr-1_seed-{seed}" for seed in (1, 2, 3)), "lr-2_seed-1", "lr-2_seed-3", "lr-3_seed-1"]
    assert [cell["name"] for cell in plan(matrix)["cells"]] == names
    assert [cell for cell in plan(matrix)["cells"] if cell["name"] in old] == before
    assert {name: everything(matrix / name) for name in old} == old
    assert "6 runs: 6 complete" in kharness(tmp_path, "status").stdout
    assert plan(matrix)["axes"] == [
        {"symbol": "LR", "values": ["1", "2", "3"], "given": ["1", "2"]},
        {"symbol": "SEED", "values": ["1", "2", "3"], "given": ["1", "2", "3"]},
    ]
    without = plan(matrix)
    for axis in without["axes"]:
        del axis["given"]
    (matrix / "matrix.json").write_text(json.dumps(without))
    refused = kharness(tmp_path, "continue", "-a", "seed=4")
    assert refused.stderr.splitlines()[0] == (
        f"error: no seeds can be added to results/{matrix.name}: "
        "the version that planned it did not keep what --include added"
    )
    refused = kharness(tmp_path, "continue", "-a", "lr=3")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: -a lr=3 cannot change a matrix that has begun\n"
        "hint: seeds alone can be added, as in -a seed=1..10; kharness matrix begins another matrix\n",
    )


def test_sweep_gets_none(tmp_path: Path, kharness: Command) -> None:
    axes = ["-a", "lr=1,2", "-a", "seed=1,2", "--method", "grid"]
    program = ["--", sys.executable, TRAINS, "--lr", "{lr}", "--seed={seed}", "--steps", 1]
    assert kharness(tmp_path, "sweep", *axes, *program).returncode == 0
    sweep = (tmp_path / "results" / "latest").resolve()
    before = (sweep / "matrix.json").read_bytes()
    refused = kharness(tmp_path, "continue", "-a", "seed=1..3")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2, f"error: results/{sweep.name} is a sweep, to which no seeds are added"
    )  # fmt: skip
    assert (sweep / "matrix.json").read_bytes() == before
