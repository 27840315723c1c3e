"""Where the runner puts cells and in which order, from `make test_matrix` on: GPUs of a simulated NVML."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from ....simulated_nvml.simulated_nvml import SimulatedNvml
from ....warm_python import WarmPython
from ..conftest import Checkout, printed

# GPUs of 80,000 MiB of which somebody else holds 1,000. A cell that reserves 20 GB of 1e9 bytes needs
# 19,073 MiB and 600 for its context.
MEMORY = ["all memory_total 80000", "all memory_used 1000"]


class Machine:
    """A checkout on a machine with GPUs, whose trainings hold their memory until all are let go.

    What should start and does not is a test that never ends: after ten minutes the runner is stopped.
    """

    def __init__(self, checkout: Checkout, simulated: SimulatedNvml) -> None:
        self.checkout = checkout
        self.simulated = simulated
        self.output = ""

    def run(self, *arguments: str, gpus: int, let_go_after: int) -> None:
        """A matrix of GPU cells; they are let go when so many have started."""
        uuids = [f"gpu {index} uuid GPU-{index}" for index in range(gpus)]
        self.simulated.write(f"gpus {gpus}", *MEMORY, *uuids)
        environment = {**os.environ, **self.simulated.environment()}
        given = ["CONFIG_DEVICE=cuda", "CONFIG_BEHAVIOR=gpu", "CONFIG_NUM_STEPS=1", *arguments]
        process = self.checkout.start("test_matrix", *given, env=environment)
        watchdog = threading.Timer(600, process.kill)
        watchdog.start()
        started = 0
        with process:
            for line in printed(process):
                self.output += line
                started += re.match(r"\[\d+/\d+\]", line) is not None
                if started == let_go_after:
                    (self.checkout.root / "let-go").touch()
        watchdog.cancel()
        assert process.returncode == 0, self.output

    @property
    def attempts(self) -> list[dict[str, Any]]:
        files = self.checkout.latest.glob("*/status.json")
        return [json.loads(path.read_text())["attempts"][0] for path in files]

    @property
    def most_at_once(self) -> dict[str, int]:
        """How many cells were on each GPU at the same time, at most."""
        most: dict[str, int] = {}
        for one in self.attempts:
            beside = [other for other in self.attempts if other["started"] <= one["started"] < other["ended"]]
            for gpu in one["slot"]["gpus"]:
                count = sum(gpu in other["slot"]["gpus"] for other in beside)
                most[gpu] = max(count, most.get(gpu, 0))
        return dict(sorted(most.items()))


@pytest.fixture
def machine(
    tmp_path: Path, root: Path, simulated_nvml: SimulatedNvml, warm_scripts_nvml: WarmPython
) -> Machine:
    return Machine(Checkout(tmp_path / "checkout", root, warm_scripts_nvml), simulated_nvml)


@pytest.mark.parametrize(("percent", "a_gpu"), [(90, 3), (60, 2)])
def test_a_gpu_is_filled_as_far_as_it_may_be(machine: Machine, percent: int, a_gpu: int) -> None:
    """72,000 MiB hold three cells beside the memory of others, 48,000 two."""
    machine.run(
        *("JOBS=8", f"CONFIG_MAX_GPU_MEMORY_PERCENT={percent}", "CONFIG_MATRIX_AXES=SEED=1..7"),
        gpus=2,
        let_go_after=2 * a_gpu,
    )
    assert machine.most_at_once == {"GPU-0": a_gpu, "GPU-1": a_gpu}


def test_the_first_cell_of_a_kind_is_alone_until_its_need_is_known(machine: Machine) -> None:
    machine.run("JOBS=8", "CONFIG_MATRIX_AXES=SEED=1|2 OPTIMIZER=sgd|adam", gpus=2, let_go_after=4)
    assert machine.most_at_once == {"GPU-0": 2, "GPU-1": 2}
    placed = {one["started"]: one["slot"]["gpus"] for one in machine.attempts}
    assert [placed[started] for started in sorted(placed)][:2] == [["GPU-0"], ["GPU-1"]]


def test_cells_of_several_gpus_get_whole_ones(machine: Machine) -> None:
    machine.run(
        *("JOBS=8", "CONFIG_MATRIX_GPUS_PER_CELL=2", "CONFIG_MATRIX_AXES=SEED=1..3"),
        gpus=5,
        let_go_after=2,
    )
    assert max(machine.most_at_once.values()) == 1
    for run in machine.checkout.latest.glob("seed-*"):
        attempt = json.loads((run / "status.json").read_text())["attempts"][0]
        assert len(attempt["slot"]["gpus"]) == 2
        assert f"on {','.join(attempt['slot']['gpus'])}\n" in (run / "output.log").read_text()


def test_more_gpus_a_cell_than_there_are_leave_nothing_behind(machine: Machine) -> None:
    machine.simulated.write("gpus 2", *MEMORY)
    for script in ("test_matrix", "test_matrix_dry_run"):
        code, output = machine.checkout.run(
            script, "CONFIG_MATRIX_GPUS_PER_CELL=3", environment=machine.simulated.environment()
        )
        assert (code, output.splitlines()[1:]) == (
            2,
            [
                "error: MATRIX_GPUS_PER_CELL=3, but only 2 can be seen",
                "hint: give a smaller MATRIX_GPUS_PER_CELL, or a longer CUDA_VISIBLE_DEVICES",
            ],
        )
    assert not (machine.checkout.root / "results").exists()


def test_the_longest_goes_first_where_several_run_at_once(checkout: Checkout) -> None:
    """Earlier durations decide the order when several run at once; one at a time keeps the plan's order."""
    axes = "CONFIG_MATRIX_AXES=NUM_STEPS=3|90|30"
    planned = ["num-steps-3", "num-steps-90", "num-steps-30"]
    assert started(checkout.run("test_matrix", axes)[1]) == planned
    assert started(checkout.run("test_matrix", axes, "JOBS=2")[1]) == [planned[1], planned[2], planned[0]]


def started(output: str) -> list[str]:
    return re.findall(r"^\[\d/\d\] ([^:\n]+)$", output, re.MULTILINE)
