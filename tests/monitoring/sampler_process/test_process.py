"""A driver that really crashes: who notices, what is told, and that all else goes on. GPUs are simulated."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring import Run, read_records
from monitoring.errors import SamplerError
from monitoring.gpu.driver_calls import DriverCall, last_call
from monitoring.gpu_monitor import GPUMonitor
from monitoring.host import backoff
from monitoring.host.backoff import STEADY_SECONDS
from monitoring.journal.rotating_journal import read_rotated
from monitoring.journal.run_json import read_run_json
from monitoring.sampler_process.process import Restart, Restarts, SamplerDied, SamplerHangs, SamplerProcess

from ...processes import is_gone, kill_process, with_arguments
from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ..conftest import agent_of, agents_of, wait_for_delivery

pytestmark = pytest.mark.usefixtures("forked_agents")

ENCODER = "nvmlDeviceGetEncoderUtilization"


@pytest.fixture
def gpus(visible_nvml: SimulatedNvml) -> SimulatedNvml:
    """Two simulated GPUs."""
    visible_nvml.write("gpus 2", "all encoder 5", f"all process {os.getpid()} 500")
    return visible_nvml


def stats(directory: Path) -> list[dict[str, Any]]:
    return list(read_rotated(directory / "gpu_stats.jsonl"))


def alerts(directory: Path) -> list[tuple[object, ...]]:
    """Severity and message, and of a death the signal and the call."""
    told = [alert for alert, _ in read_records(directory / "alerts.jsonl")]
    return [
        (it["severity"], it["message"], *(it[key] for key in ("signal", "call") if key in it)) for it in told
    ]


def sample_once(process: SamplerProcess) -> None:
    sampler, _ = process.open()
    assert sampler is not None
    sampler.sample()


def servers_of(pid: int) -> list[psutil.Process]:
    """The living processes that sample for another."""
    return with_arguments("monitoring.sampler_process.server", psutil.Process(pid).children())


def rows(directory: Path) -> list[str]:
    with (directory / "metrics.csv").open(newline="") as file:
        return [row["global_step"] for row in csv.DictReader(file) if row["event"] == "step"]


# Follows a run and is quick to begin again.
FOLLOW = """
import sys
from pathlib import Path
from monitoring.agent import follow as agent
from monitoring.host import backoff

backoff.FIRST_DELAY = 0.05
print(agent.follow(Path(sys.argv[1])))
"""


def test_call_that_crashes_is_left_out_and_followers_go_on(gpus: SimulatedNvml, run_dir: Path) -> None:
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", FOLLOW, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: stats(run_dir), "the first sample")
        run.log_step(1, train_loss=0.5)
        gpus.add("gpu 1 encoder crash")
        wait_until(lambda: len(alerts(run_dir)) == 3, "the alerts")
        run.log_step(2, train_loss=0.25)
        seen = len(stats(run_dir))
        wait_until(lambda: len(stats(run_dir)) > seen + 2, "samples")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert (agent.returncode, output) == (0, "True\n")
    died = f"GPU sampling was killed by SIGSEGV in {ENCODER}"
    assert alerts(run_dir) == [
        ("warning", f"{died}; restarting in 0.05 s", "SIGSEGV", ENCODER),
        ("error", f"{died}; restarting in 0.1 s without that call", "SIGSEGV", ENCODER),
        ("info", "GPUs are sampled again"),
    ]
    records = stats(run_dir)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert {record["attempt"] for record in records} == {1}
    for place, encoder in ((0, 5), (-1, None)):
        gpu = records[place]["multi_gpu_data"][1]
        assert (gpu["state"], gpu["encoder_percent"], gpu["decoder_percent"]) == ("ok", encoder, 0)
    energies = [record["aggregate_stats"]["energy_joules"] for record in records]
    assert energies == sorted(energies)
    assert rows(run_dir) == ["1", "2"]


# Follows a run with little patience for drivers, and counts two seconds without a sample as such.
IMPATIENT = """
import sys
from pathlib import Path
from monitoring.agent import follow as agent
from monitoring.gpu import energy
from monitoring.host import backoff
from monitoring.sampler_process import process

backoff.FIRST_DELAY = 0.05
process.SAMPLE_SECONDS = process.OPEN_SECONDS = energy.GAP_SECONDS = 2.0
print(agent.follow(Path(sys.argv[1])))
"""


def sums(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = stats(directory)[-1]["aggregate_stats"]
    return found


def is_charged_until_its_end(directory: Path, gpus: int) -> bool:
    """Whether the hours of some undivided GPUs are those from the attempt's start to its last sample."""
    seconds = stats(directory)[-1]["time"] - read_run_json(directory)["attempts"][-1]["started"]
    return bool(sums(directory)["gpu_hours"] == pytest.approx(gpus * seconds / 3600, rel=0.01, abs=1e-4))


def test_call_that_hangs_is_left_out_for_its_gpu(gpus: SimulatedNvml, run_dir: Path) -> None:
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", IMPATIENT, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: stats(run_dir), "the first sample")
        gpus.add(f"hang {ENCODER} 1")
        wait_until(lambda: len(alerts(run_dir)) == 3, "the alerts")
        seen = len(stats(run_dir))
        wait_until(lambda: len(stats(run_dir)) > seen + 2, "samples")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert (agent.returncode, output) == (0, "True\n")
    hung = f"GPU sampling has hung in {ENCODER} of GPU 1 for 2 s and was killed; restarting"
    assert alerts(run_dir) == [
        ("warning", hung, None, ENCODER),
        ("error", f"{hung} without that call for GPU 1", None, ENCODER),
        ("info", "GPUs are sampled again"),
    ]
    last = stats(run_dir)[-1]
    assert [(gpu["state"], gpu["encoder_percent"]) for gpu in last["multi_gpu_data"]] == [
        ("ok", 5),
        ("ok", None),
    ]
    assert 4.0 <= sums(run_dir)["unmeasured_seconds"] < last["time"] - stats(run_dir)[0]["time"] + 60
    assert is_charged_until_its_end(run_dir, 2)


def test_gpu_whose_calls_all_hang_is_left_out_and_the_other_is_sampled(
    gpus: SimulatedNvml, run_dir: Path
) -> None:
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", IMPATIENT, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: stats(run_dir), "the first sample")
        gpus.add("gpu 1 state hang")
        wait_until(lambda: states(run_dir)[-1] == ["ok", "error"], "samples of the other")
        seen = len(stats(run_dir))
        wait_until(lambda: len(stats(run_dir)) > seen + 2, "samples")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert (agent.returncode, output) == (0, "True\n")
    told = [message for severity, message, *_ in alerts(run_dir) if severity == "error"]
    assert str(told[0]).endswith("for 2 s and was killed; restarting without GPU 1")
    assert told[1:] == ["GPU 1 (nvidia) cannot be read: left out: calls of its driver did not return"]
    # energy of one of the run's GPUs is not known since
    assert sums(run_dir)["devices"] == [0, 1]
    assert sums(run_dir)["unmeasured_seconds"] >= 4.0
    assert is_charged_until_its_end(run_dir, 2)


def test_driver_that_hangs_until_the_end_leaves_no_time_uncounted(gpus: SimulatedNvml, run_dir: Path) -> None:
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", IMPATIENT, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: stats(run_dir), "the first sample")
        gpus.add("init hang", "all state hang")
        wait_until(lambda: alerts(run_dir), "an alert")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert (agent.returncode, output) == (0, "True\n")
    # one record more than the driver answered for, whichever of those were still on their way at the alert
    *before, last = states(run_dir)
    assert (before, last) == ([["ok", "ok"]] * len(before), ["error", "error"])
    errors = {gpu["error"] for gpu in stats(run_dir)[-1]["multi_gpu_data"]}
    assert [str(error).split(" for ")[0] for error in errors] == ["GPU sampling has hung in nvmlInit"]
    assert sums(run_dir)["unmeasured_seconds"] >= 4.0
    assert is_charged_until_its_end(run_dir, 2)


@pytest.mark.parametrize("is_there", [False, True])
def test_driver_that_comes_late_is_found(
    gpus: SimulatedNvml, run_dir: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Its library is not there, or is and says that the driver is not loaded."""
    library = run_dir.with_name("lib") / gpus.library.name
    library.parent.mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    if is_there:
        shutil.copy(gpus.library, library)
        gpus.add("init driver_not_loaded")
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", FOLLOW, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: (run_dir / "alerts.jsonl").exists() and alerts(run_dir), "an alert")
        if is_there:
            gpus.add("init 0")
        else:
            shutil.copy(gpus.library, library.with_suffix(".new"))
            library.with_suffix(".new").rename(library)
        wait_until(lambda: stats(run_dir), "samples")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert (agent.returncode, output) == (0, "True\n")
    why = "NVML: driver not loaded (modprobe nvidia; dmesg says why the driver did not load)"
    absent = f"GPU_MONITOR=y, but there is no GPU{f': {why}' * is_there}; gpu_stats.jsonl is not written"
    assert [alert[:2] for alert in alerts(run_dir)] == [("warning", absent), ("info", "GPUs are sampled")]
    assert is_charged_until_its_end(run_dir, 2)


def test_gpus_that_no_mask_selects_are_not_waited_for(
    gpus: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mask, may_come in (("", False), (None, True)):
        if mask is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
            gpus.write("gpus 0")
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
        with contextlib.closing(SamplerProcess()) as process:
            assert process.open()[0] is None
            assert process.may_come is may_come


def test_process_that_is_killed_is_followed_by_another(gpus: SimulatedNvml, run_dir: Path) -> None:
    with Run(run_dir, name="n", project="p", config={}, gpu_monitor={"interval": 0.05}) as run:
        wait_until(lambda: stats(run_dir), "the first sample")
        agent = agent_of(run_dir)
        [server] = servers_of(agent.pid)
        kill_process(server)
        wait_until(lambda: len(alerts(run_dir)) == 2, "the alerts")
        assert [process.pid for process in agents_of(run_dir)] == [agent.pid]
        [second] = servers_of(agent.pid)
        run.log_step(1, train_loss=0.5)
    wait_for_delivery(run_dir)
    wait_until(lambda: is_gone(second), "the end of the process that samples")
    assert alerts(run_dir) == [
        ("warning", "GPU sampling was killed by SIGKILL; restarting in 1 s", "SIGKILL", None),
        ("info", "GPUs are sampled again"),
    ]
    records = stats(run_dir)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert rows(run_dir) == ["1"]


@pytest.mark.parametrize("hangs", [False, True])
def test_nothing_is_left_of_an_agent_that_is_killed(gpus: SimulatedNvml, run_dir: Path, hangs: bool) -> None:
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor={"interval": 0.05})
    wait_until(lambda: stats(run_dir), "the first sample")
    agent = agent_of(run_dir)
    [server] = servers_of(agent.pid)
    if hangs:  # it then waits inside the driver and not for its socket
        gpus.add("all utilization hang")
        wait_until(lambda: time.time() - stats(run_dir)[-1]["time"] > 1, "a pause")
    kill_process(agent)
    assert wait_until(lambda: is_gone(server), "its end")
    run.finish()


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ("encoder", ENCODER),
        ("power", "nvmlDeviceGetFieldValues"),
        ("processes", "nvmlDeviceGetComputeRunningProcesses_v3"),
        ("events", "nvmlDeviceGetSupportedEventTypes"),
        ("tensor_activity", "nvmlGpmSampleGet"),
        ("state", "nvmlDeviceGetHandleByIndex"),
    ],
)
def test_call_that_crashed_is_known_and_can_be_left_out(gpus: SimulatedNvml, value: str, call: str) -> None:
    gpus.add(f"gpu 0 {value} crash")
    process = SamplerProcess()
    with pytest.raises(SamplerDied) as died:
        sample_once(process)
    process.close()
    assert (died.value.signal, died.value.call, died.value.is_own) == ("SIGSEGV", call, True)

    process = SamplerProcess(left_out=[DriverCall(call)])
    sampler, problems = process.open()
    assert (sampler, problems) == (process, [])
    expected = "error" if value == "state" else "ok"  # without a handle there is nothing to ask
    assert [sample.state for sample in process.sample()] == [expected] * 2
    process.close()


def test_death_between_two_samples_is_noticed_at_once(gpus: SimulatedNvml) -> None:
    process = SamplerProcess()
    sampler, _ = process.open()
    assert sampler is not None
    assert [device.index for device in sampler.devices()] == [0, 1]
    ending = threading.Event()
    process.wait(ending, 0.01)
    assert [sample.encoder_percent for sample in process.sample()] == [5, 5]
    os.kill(process._pid, signal.SIGTERM)
    with pytest.raises(SamplerDied, match=r"GPU sampling was killed by SIGTERM$"):
        process.wait(ending, 60)
    process.close()


def test_driver_that_crashes_leaves_a_training_with_a_monitor_alone(
    gpus: SimulatedNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.host.backoff.FIRST_DELAY", 0.05)
    with GPUMonitor("all", 0.05, log_dir=None, quiet=True) as monitor:
        assert monitor.ready.wait(600)
        gpus.add("gpu 0 encoder crash")
        wait_until(lambda: len(monitor.problems) == 2, "two deaths")
        before = monitor.latest
        wait_until(lambda: monitor.latest is not before, "a sample")
        assert monitor.latest is not None
        assert [gpu.encoder_percent for gpu in monitor.latest.gpus] == [None, None]
        servers = servers_of(os.getpid())
    died = f"GPU sampling was killed by SIGSEGV in {ENCODER}"
    assert monitor.problems == [
        f"{died}; restarting in 0.05 s",
        f"{died}; restarting in 0.1 s without that call",
    ]
    assert len(servers) == 1
    assert servers_of(os.getpid()) == []


def test_stop_ends_a_process_that_hangs_in_the_driver(
    gpus: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.sampler_process.loop.STOP_SECONDS", 0.1)
    gpus.add("all utilization hang")
    monitor = GPUMonitor("all", 0.05, log_dir=None, quiet=True)
    monitor.start()
    [server] = wait_until(lambda: servers_of(os.getpid()), "the process")
    call = DriverCall("nvmlDeviceGetUtilizationRates", 0)
    wait_until(
        lambda: monitor._loop._process is not None and last_call(monitor._loop._process._page) == call,
        str(call),
    )
    monitor.stop()
    assert monitor.problems == ["the GPU driver does not answer; the process that asks it is killed"]
    wait_until(lambda: is_gone(server), "its end")


def died(status: int | None, call: str | None = None) -> SamplerDied:
    return SamplerDied(status, call)


@pytest.mark.parametrize(
    ("errors", "restarts"),
    [
        (
            [died(-11, "a"), died(-6, "b"), died(-11, "c")],
            [
                ("GPU sampling was killed by SIGSEGV in a; restarting in 1 s", 1.0, []),
                (
                    "GPU sampling was killed by SIGABRT in b; restarting in 2 s without that call",
                    2,
                    ["b"],
                ),
                ("GPU sampling was killed by SIGSEGV in c; restarting in 4 s", 4, ["b"]),
            ],
        ),
        (
            [died(3), died(3)],
            [
                ("GPU sampling exited with code 3; restarting in 1 s", 1, []),
                ("GPU sampling exited with code 3, 2 times in a row; GPUs are no longer sampled", None, []),
            ],
        ),
        (  # for want of memory: it is tried for as long as it takes
            [died(-9, "a")] * 8,
            [
                (f"GPU sampling was killed by SIGKILL; restarting in {delay} s", delay, [])
                for delay in (1, 2, 4, 8, 16, 32, 60, 60)
            ],
        ),
        (
            [OSError(24, "too many open files"), SamplerError("KeyError: 1"), died(None)],
            [
                ("GPUs cannot be sampled: OSError: [Errno 24] too many open files; it is tried again", 1, []),
                ("GPUs cannot be sampled: KeyError: 1; it is tried again", 2, []),
                ("GPU sampling ended; restarting in 4 s", 4, []),
            ],
        ),
    ],
)
def test_restarts_come_later_each_time_and_without_what_crashed(
    errors: list[Exception], restarts: list[tuple[str, float | None, list[str]]]
) -> None:
    policy = Restarts()
    found = []
    for error in errors:
        policy.begin()
        restart = policy.after(error)
        found.append((restart.message, restart.delay, [*map(str, policy.left_out)]))
    assert found == restarts


def hangs(name: str | None, gpu: int | None = None) -> SamplerHangs:
    return SamplerHangs(5.0, None if name is None else DriverCall(name, gpu))


@pytest.mark.parametrize(
    ("errors", "left_out", "delays"),
    [
        ([hangs("a", 0)], [], [0]),
        ([hangs("a", 0), hangs("a", 0)], ["a@0"], [0, 0]),
        ([hangs("a", 0), hangs("b", 0)], ["@0"], [0, 0]),
        ([hangs("a", 0), hangs("a", 1)], ["a"], [0, 0]),
        ([hangs("a", 0), hangs("b", 1)], ["b@1"], [0, 0]),
        ([hangs("a", 0), hangs("a", 0), hangs("b", 0), hangs("b", 0)], ["a@0", "@0"], [0, 0, 0, 3]),
        ([hangs("a"), hangs("a")], ["a"], [0, 0]),
        # there is nothing to sample without it, so it is tried for as long as it takes
        ([hangs("nvmlInit")] * 8, [], [0, 0, 0, 3, 11, 27, 55, 55]),
        ([hangs(None)] * 3, [], [0, 0, 0]),
        ([hangs("a", 0), died(-11, "b"), hangs("a", 0)], ["a@0"], [0, 2, 0]),
    ],
)
def test_calls_that_hang_are_left_out_where_they_did(
    errors: list[Exception], left_out: list[str], delays: list[float]
) -> None:
    policy = Restarts()
    found = []
    for error in errors:
        policy.begin()
        found.append(policy.after(error).delay)
    assert (found, [*map(str, policy.left_out)]) == (delays, left_out)
    assert [DriverCall.of(word) for word in left_out] == policy.left_out


def test_steady_minute_makes_a_death_the_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Restarts()
    for _ in range(3):
        policy.begin()
        policy._began -= STEADY_SECONDS + 1
        message = "GPU sampling was killed by SIGSEGV in a; restarting in 1 s"
        facts: dict[str, object] = {"signal": "SIGSEGV", "call": "a"}
        assert policy.after(died(-11, "a")) == Restart(message, "warning", 1.0, facts)


def states(directory: Path) -> list[list[str]]:
    return [[gpu["state"] for gpu in record["multi_gpu_data"]] for record in stats(directory)]


def test_driver_that_is_reloaded_is_opened_again_and_is_one_episode(
    gpus: SimulatedNvml, run_dir: Path
) -> None:
    monitor = {"interval": 0.05}
    run = Run(run_dir, name="n", project="p", config={}, gpu_monitor=monitor, agent=False)
    command = [sys.executable, "-c", FOLLOW, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: states(run_dir) and states(run_dir)[-1] == ["ok", "ok"], "the first sample")
        gpus.write("gpus 2", "init driver_not_loaded", "reload 1")
        wait_until(lambda: not servers_of(agent.pid), "sampling to end")
        seen = len(states(run_dir))
        assert states(run_dir)[-1] == ["error", "error"]
        gpus.write("gpus 2", "reload 1")
        wait_until(lambda: len(states(run_dir)) > seen + 3, "samples")
        run.finish()
        output, _ = agent.communicate()
    assert (agent.returncode, output) == (0, "True\n")
    assert set(map(tuple, states(run_dir)[seen:])) == {("ok", "ok")}
    assert sorted(alerts(run_dir)) == [
        ("error", "all 2 GPUs cannot be read: Uninitialized"),
        ("info", "all 2 GPUs answer again"),
        ("info", "no longer: a GPU cannot be read"),
    ]


def test_monitor_opens_a_reloaded_driver_again(gpus: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_DELAY", 0.05)
    with GPUMonitor("all", 0.05, log_dir=None, quiet=True) as monitor:
        wait_until(lambda: monitor.latest, "the first sample")
        gpus.write("gpus 2", "reload 1")

        def is_back() -> bool:
            looks = [{gpu.state for gpu in look.gpus} for look in monitor.history.snapshots()]
            return {"error"} in looks and looks[-1] == {"ok"}

        wait_until(is_back, "samples")
    assert monitor.problems == [
        "all 2 GPUs cannot be read: Uninitialized",
        "GPUs cannot be sampled: no GPU answers: Uninitialized; it is tried again",
    ]
