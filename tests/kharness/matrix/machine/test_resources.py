"""How a machine is shared out: cores in this process, GPUs through the real pynvml and a simulated NVML."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kharness.matrix.machine.resources import MachineResources
from kharness.runs.launch import Launch, Slot

from ....simulated_nvml.simulated_nvml import SimulatedNvml
from ....warm_python import WarmPython

FOUR = [(0,), (1,), (2,), (3,)]


class Machine:
    """Four cores unless said otherwise; keeps the list of what runs, as the runner does."""

    def __init__(self, jobs: int, cores: Any = FOUR) -> None:
        self.said: list[str] = []
        self.running: list[Any] = []
        self.resources = MachineResources(cores, None, {}, jobs=jobs, say=self.said.append)

    def start(self, planned: int = 0, **asked: object) -> Slot | None:
        launch = Launch("a", Path("a"), Path(), "m", asked, threads=planned)
        slot = self.resources.acquire(launch, self.running)
        if slot is not None:
            self.running.append(SimpleNamespace(slot=slot, job=SimpleNamespace(pid=1)))
        return slot

    def end(self, place: int) -> None:
        self.resources.release(self.running.pop(place).slot)


def test_cells_of_one_thread_get_a_core_each() -> None:
    machine = Machine(jobs=0)
    assert [machine.start(NUM_THREADS=1) for _ in range(5)] == [
        *(Slot(threads=1, cores=[core]) for core in range(4)),
        None,
    ]
    machine.end(2)
    assert machine.start(NUM_THREADS=1) == Slot(threads=1, cores=[2])
    assert machine.said == []


def test_the_cores_are_shared_out_among_the_jobs() -> None:
    machine = Machine(jobs=2)
    assert machine.start(NUM_THREADS=0) == Slot(threads=2, cores=[0, 1])
    assert machine.start() == Slot(threads=2, cores=[2, 3])
    assert machine.start() is None


def test_no_more_than_the_jobs_run_though_there_is_room() -> None:
    machine = Machine(jobs=2)
    assert [machine.start(NUM_THREADS=1) is None for _ in range(3)] == [False, False, True]
    assert machine.said == []


def test_a_core_of_two_threads_is_given_out_whole() -> None:
    machine = Machine(jobs=0, cores=[(0, 4), (1, 5)])
    assert machine.start(NUM_THREADS=1) == Slot(threads=1, cores=[0, 4])
    assert machine.start(NUM_THREADS=1) == Slot(threads=1, cores=[1, 5])


def test_cells_that_fill_the_cores_wait_and_it_is_said_once() -> None:
    machine = Machine(jobs=3)
    assert machine.start(NUM_THREADS=3) == Slot(threads=3, cores=[0, 1, 2])
    assert machine.start(NUM_THREADS=3) is None
    assert machine.start(NUM_THREADS=3) is None
    assert machine.start(NUM_THREADS=1) == Slot(threads=1, cores=[3])
    assert machine.said == ["note: JOBS=3, but 1 at once fill the 4 cores here (NUM_THREADS=3)"]


def test_a_cell_of_more_threads_than_cores_gets_them_all() -> None:
    machine = Machine(jobs=0)
    assert machine.start(NUM_THREADS=8) == Slot(threads=4, cores=[0, 1, 2, 3])
    assert machine.start(NUM_THREADS=1) is None
    assert machine.said == ["note: NUM_THREADS=8 is more than the 4 cores here"]


def test_more_jobs_than_cores_share_them_unbound() -> None:
    machine = Machine(jobs=5)
    assert [machine.start() for _ in range(6)] == [Slot(threads=1)] * 5 + [None]
    assert machine.said == [
        "note: JOBS=5 is more than the 4 cores here: cells share cores, and their times mean little"
    ]


def test_a_single_cell_at_a_time_is_bound_to_nothing() -> None:
    machine = Machine(jobs=1)
    assert machine.start(NUM_THREADS=0) == Slot(threads=4)
    assert machine.start(NUM_THREADS=0) is None
    machine.end(0)
    assert machine.start(NUM_THREADS=3) == Slot()


def test_planned_threads_stay_whatever_the_jobs_and_sharing_is_said() -> None:
    together = Machine(jobs=4)
    assert [together.start(2) for _ in range(5)] == [Slot(threads=2)] * 4 + [None]
    assert together.said == [
        "note: cells keep the 2 CPU threads that the matrix was planned with, and share the 4 cores here: "
        "their times mean little"
    ]
    alone = Machine(jobs=1)
    assert alone.start(2) == Slot(threads=2)
    assert alone.said == ["note: cells keep the 2 CPU threads that the matrix was planned with"]
    half = Machine(jobs=2)
    assert [half.start(1), half.start(1)] == [Slot(threads=1, cores=[0]), Slot(threads=1, cores=[1])]
    assert half.said == ["note: cells keep the 1 CPU thread that the matrix was planned with"]
    smaller = Machine(jobs=0)
    assert smaller.start(8) == Slot(threads=8, cores=[0, 1, 2, 3])
    assert smaller.said == [together.said[0].replace("the 2", "the 8")]
    same = Machine(jobs=2)
    assert [same.start(2), same.start(2)] == [Slot(threads=2, cores=[0, 1]), Slot(threads=2, cores=[2, 3])]
    assert same.said == []


def test_what_is_asked_goes_before_what_is_planned() -> None:
    machine = Machine(jobs=1)
    assert machine.start(3, NUM_THREADS=3) == Slot()
    assert machine.said == []


def test_without_a_gpu_a_gpu_cell_is_left_to_say_so() -> None:
    assert Machine(jobs=2).start(DEVICE="cuda", NUM_THREADS=1) == Slot(threads=1, cores=[0])


@pytest.mark.parametrize(
    ("slot", "variables"),
    [
        (Slot(), {}),
        (Slot(cores=[3, 5]), {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}),
        (Slot(gpus=["GPU-a", "GPU-b"]), {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}),
        (
            Slot(gpus=["GPU-a", "1"], gpu_vendor="amd"),
            {"ROCR_VISIBLE_DEVICES": "GPU-a,1", "HIP_VISIBLE_DEVICES": "0,1"},
        ),
    ],
)
def test_a_slot_holds_its_run_by_variables(slot: Slot, variables: dict[str, str]) -> None:
    assert slot.environment() == variables


# What a scenario can say; each of its lines prints what came of it.
DRIVER = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from kharness.runs.launch import Launch
from kharness.matrix.machine.resources import open_resources

folder, script, runs, told = Path(sys.argv[1]), Path(sys.argv[2]), {}, []
lines = script.read_text()


def gpus(*text):
    temporary = script.with_suffix(".new")
    temporary.write_text(lines + "\\n".join(text) + "\\n")
    temporary.replace(script)
    import time; time.sleep(0.02)  # the library looks at its script every 5 ms


def start(name, **asked):
    (folder / name).mkdir(exist_ok=True)
    asked = {"DEVICE": "cuda", "NUM_THREADS": 1, "KIND": "a", **asked}
    launch = Launch(name, folder / name, folder, "m", asked)
    slot = resources.acquire(launch, list(runs.values()))
    if slot is not None:
        runs[name] = SimpleNamespace(slot=slot, job=SimpleNamespace(pid=1000 + len(told)))
    told.append(slot and ",".join(word[-1] for word in slot.gpus))


def journal(name, event, **fields):
    with (folder / name / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": event, "time": 1, "seq": 1, "attempt": 1, **fields}) + "\\n")


def end(name):
    resources.release(runs.pop(name).slot)


settings = {"MATRIX_JOBS": 0, "MAX_GPU_MEMORY_PERCENT": 90, "MATRIX_GPUS_PER_CELL": 1}
settings.update(json.loads(sys.argv[3]))
resources = open_resources(settings, told.append)
exec(sys.argv[4])
print(json.dumps(told))
"""

# Two GPUs of 80,000 MiB whose UUIDs end in 0 and 1, so that 72,000 MiB may be filled on each.
TWO = ["gpus 2", "all memory_total 80000", "all memory_used 1000", "gpu 0 uuid GPU-0", "gpu 1 uuid GPU-1"]


class Scenario:
    def __init__(self, simulated: SimulatedNvml, folder: Path, python: WarmPython) -> None:
        self.simulated = simulated
        self._python = python
        self.folder = folder
        self.settings: dict[str, object] = {"MATRIX_JOBS": 16}
        self.environment: dict[str, str] = {}

    def run(self, scenario: str, *lines: str, code: int = 0) -> Any:
        """Answers of a scenario: last characters of the UUIDs given, None for no room, and notes."""
        self.simulated.write(*TWO, *lines)
        command = ["-c", DRIVER, self.folder, self.simulated.script]
        done = self._python.run(
            [*command, json.dumps(self.settings), scenario],
            env={**os.environ, **self.simulated.environment(), **self.environment},
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr.splitlines()[-1]


@pytest.fixture
def scenario(simulated_nvml: SimulatedNvml, tmp_path: Path, warm_scripts_nvml: WarmPython) -> Scenario:
    return Scenario(simulated_nvml, tmp_path, warm_scripts_nvml)


def test_first_cells_have_a_gpu_to_themselves(scenario: Scenario) -> None:
    assert scenario.run("start('x'); start('y'); start('z'); end('x'); start('z')") == ["0", "1", None, "0"]


def test_cells_are_packed_by_what_the_first_one_needed(scenario: Scenario) -> None:
    # 20 GB of 1e9 bytes are 19,073 MiB; with 600 for the context and 1,000 of others, three fit in 72,000.
    told = scenario.run(
        "start('x'); journal('x', 'step', gpu_mem_reserved=20.0)\n"
        "start('b', KIND='b'); start('y')\n"
        "journal('x', 'eval'); start('y'); start('z'); start('v')"
    )
    assert told == ["0", "1", None, "0", "0", None]


def test_seeds_and_fractions_make_no_new_kind(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x', SEED=1, LEARNING_RATE=0.1, BETAS=(0.9, 0.99)); start('b', KIND='b')\n"
        "journal('x', 'step', gpu_mem_reserved=1.0); journal('x', 'eval')\n"
        "start('y', SEED=2, LEARNING_RATE=0.2, BETAS=(0.8, 0.9)); start('z', KIND='c')"
    )
    assert told == ["0", "1", "0", None]


def test_what_the_driver_tells_of_a_process_goes_before_the_journal(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); start('b', KIND='b'); journal('x', 'step', gpu_mem_reserved=1.0)\n"
        "journal('x', 'epoch'); start('y')",
        "gpu 0 process 1000 60000",
    )
    assert told == ["0", "1", None]


def test_a_model_that_tells_no_memory_is_measured_on_the_device(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); start('b', KIND='b'); gpus('gpu 0 memory_used 41000'); journal('x', 'eval')\n"
        "start('y'); end('x'); gpus(); start('y'); end('b'); start('z')"
    )
    # 40,000 were its own, so two do not fit on one GPU.
    assert told == ["0", "1", None, "0", "1"]


def test_a_cell_that_grows_is_counted_as_large_as_it_has_become(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); start('b', KIND='b'); gpus('gpu 0 memory_used 21000'); journal('x', 'eval')\n"
        "start('y'); gpus('gpu 0 memory_used 71000'); start('z')\n"
        "end('y'); gpus('gpu 0 memory_used 51000'); start('z'); end('x'); gpus(); start('z'); start('v')"
    )
    # 20,000 when it had evaluated, so that a second one fits; 50,000 later, and then two of the kind do not.
    assert told == ["0", "1", "0", None, None, "0", None]


def test_memory_of_other_users_counts(scenario: Scenario) -> None:
    told = scenario.run("start('x'); start('y')", "gpu 0 memory_used 75000")
    assert told == ["1", None]


def test_full_gpus_are_waited_for_and_it_is_said_once(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); start('x'); gpus('gpu 1 memory_used 100'); start('x')", "all memory_used 76800"
    )
    assert told == [
        "note: waiting for a GPU: GPU 0 (Simulated H100 80GB) has 75.0 of 78.1 GiB in use, "
        "GPU 1 (Simulated H100 80GB) has 75.0 of 78.1 GiB in use; MAX_GPU_MEMORY_PERCENT=90",
        None,
        None,
        "1",
    ]


@pytest.mark.parametrize(
    ("visible", "told"),
    [("1", ["1", None]), ("GPU-0", ["0", None]), ("1,0", ["0", "1"]), ("1,7,0", ["1", None])],
)
def test_the_users_own_choice_of_gpus_is_kept_to(scenario: Scenario, visible: str, told: list[Any]) -> None:
    scenario.environment["CUDA_VISIBLE_DEVICES"] = visible
    assert scenario.run("start('x'); start('y', KIND='b')") == told


@pytest.mark.parametrize("visible", ["", "-1"])
def test_no_gpu_chosen_leaves_the_cores(scenario: Scenario, visible: str) -> None:
    scenario.environment["CUDA_VISIBLE_DEVICES"] = visible
    assert scenario.run("start('x')")[-1] == ""


def test_cells_of_several_gpus_get_whole_ones(scenario: Scenario) -> None:
    scenario.settings["MATRIX_GPUS_PER_CELL"] = 2
    told = scenario.run(
        "start('x'); start('y'); journal('x', 'step', gpu_mem_reserved=1.0); journal('x', 'eval')\n"
        "start('y'); end('x'); start('y')"
    )
    assert told == ["0,1", None, None, "0,1"]


def test_more_gpus_a_cell_than_there_are_is_refused(scenario: Scenario) -> None:
    scenario.settings["MATRIX_GPUS_PER_CELL"] = 3
    assert scenario.run("", code=1) == (
        "kharness.runs.errors.MatrixError: MATRIX_GPUS_PER_CELL=3, but only 2 can be seen"
    )


def test_memory_that_cannot_be_read_means_one_cell_a_gpu(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); journal('x', 'step', gpu_mem_reserved=1.0); journal('x', 'eval')\n"
        "start('y'); start('z')",
        "all memory_used denied",
    )
    assert told == ["note: the memory of the GPUs cannot be read: one cell per GPU", "0", "1", None]


def test_a_part_of_a_gpu_is_a_gpu(scenario: Scenario) -> None:
    told = scenario.run(
        "start('x'); start('y', KIND='b'); start('z', KIND='c')",
        "gpus 1",
        "gpu 0 mig MIG-7 20000 100",
        "gpu 0 mig MIG-8 20000 100",
    )
    assert told == ["7", "8", None]


def test_the_driver_is_opened_for_the_first_cell_that_wants_a_gpu(scenario: Scenario) -> None:
    scenario.settings["MATRIX_JOBS"] = 1
    told = scenario.run("start('x', DEVICE='cpu'); told.append('then'); end('x'); start('y')", "gpus 0")
    assert told == ["", "then", "note: the nvidia driver is loaded, and has no GPU", ""]


def test_cpu_cells_go_to_the_cores_beside_the_gpus(scenario: Scenario) -> None:
    told = scenario.run("start('x'); start('y', DEVICE='cpu')")
    assert (told[0], told[-1]) == ("0", "")
