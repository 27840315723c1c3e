"""GPU tables and graphs, from runs that the real agent recorded on simulated GPUs (tests/simulated_nvml)."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import platform
import re
import runpy
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kharness.report import gpu_report
from kharness.report.errors import ReportError
from kharness.report.gpu.columns import MAX_POINTS
from kharness.report.gpu_report import MAX_LINES, check_known, gpu_report_lines, gpu_summary_lines
from kharness.report.graphs import draw_all, gpu_graphs
from kharness.report.metrics import metric_named
from kharness.report.report import write_all
from kharness.report.summary import collect
from kharness.report.writing.gpu_tables import UNKNOWN, breakdown_lines, gpus_json, remarks, runs_table
from monitoring import Run

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from .conftest import Make, MatrixDirectory

HOST = platform.node()
PHASES = {
    "data_seconds": 0.001,
    "forward_backward_seconds": 0.008,
    "optimizer_seconds": 0.001,
    "collective_seconds": 0.002,
}
SLOW = {**PHASES, "forward_backward_seconds": 0.018}

FOUR = (
    "gpus 4",
    "all name NVIDIA A10G",
    "all memory_total 24000",
    "all memory_used 12000",
    "all utilization 100",
    "all temperature 60",
    "all power 200",
    "gpu 1 power 220",
    "gpu 2 temperature 91",
    "gpu 2 throttle 64",
)


class Recorder:
    """Records runs with the real agent, whose NVML is the simulated one."""

    def __init__(self, simulated: SimulatedNvml) -> None:
        self.simulated = simulated

    def record(
        self,
        directory: Path,
        count: int,
        *script: str,
        then: tuple[str, ...] = (),
        device: str = "cuda:0",
    ) -> Path:
        """`count` samples of the script, then as many with the lines of `then` added."""
        self.simulated.write(*script, f"all process {os.getpid()} 900")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.simulated.environment().items():
                patch.setenv(name, value)
            run = Run(directory, name=directory.name, project="p", config={}, gpu_monitor={"interval": 0.05})
        run.start(model={}, training={"device": device})
        stats, step = directory / "gpu_stats.jsonl", 0

        def until(enough: Callable[[bytes], bool]) -> None:
            nonlocal step
            deadline = time.monotonic() + 600
            while not (stats.exists() and enough(stats.read_bytes())):
                assert time.monotonic() < deadline, "no samples"
                step += 1
                run.log_step(step, train_loss=1 / step, **PHASES)
                time.sleep(0.01)

        until(lambda text: text.count(b"\n") >= count)
        if then:
            self.simulated.add(*then)
            until(lambda text: text.count(b'"state":"lost"') >= count)
        run.finish()
        deadline = time.monotonic() + 600
        while agent_runs(directory):
            assert time.monotonic() < deadline, "the agent does not end"
            time.sleep(0.01)
        # an agent that begins late, on a busy machine, says so
        unmeasured = re.compile(r'"unmeasured_seconds":[0-9.e-]+')
        stats.write_text(unmeasured.sub('"unmeasured_seconds":0.0', stats.read_text()))
        return directory


def agent_runs(directory: Path) -> bool:
    """It holds a lock while it follows the run."""
    with (directory / ".agent.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.fixture(scope="module")
def recorder(
    simulate_nvml: Callable[[Path], SimulatedNvml], tmp_path_factory: pytest.TempPathFactory
) -> Recorder:
    return Recorder(simulate_nvml(tmp_path_factory.mktemp("gpus") / "nvml.txt"))


@pytest.fixture(scope="module")
def recorded(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four GPUs: 1 takes more power, 2 is hot, 3 is lost half-way."""
    return recorder.record(tmp_path_factory.mktemp("r") / "four", 8, *FOUR, then=("gpu 3 state lost",))


@pytest.fixture
def four(recorded: Path, tmp_path: Path) -> Path:
    """A copy of that run, to do something to."""
    return Path(shutil.copytree(recorded, tmp_path / "four"))


@pytest.fixture(scope="module")
def recorded_one(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One GPU, whose power is not known."""
    silent = ("all power unsupported", "all power_average unsupported")
    return recorder.record(tmp_path_factory.mktemp("r") / "one", 8, "gpus 1", *silent)


@pytest.fixture(scope="module")
def recorded_two(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GPUs alike."""
    alike = ("all power 100", "all power_average 100")
    return recorder.record(tmp_path_factory.mktemp("r") / "two", 8, "gpus 2", *alike)


def add_rank(run: Path, rank: int, phases: Mapping[str, float]) -> None:
    """The journal of another rank, with the steps of rank 0."""
    lines = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        record |= {"device": f"cuda:{rank}"} if record["event"] == "start" else phases
        lines.append(json.dumps(record))
    (run / f"metrics.rank{rank:04}.jsonl").write_text("\n".join(lines) + "\n")


def rows(run: Path, graph: str) -> list[dict[str, str]]:
    with (run / "graphs" / f"{graph}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table(text: str) -> list[list[str]]:
    """The rows of a table: columns are two spaces or more apart."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines()]


def test_every_gpu_stands_in_the_table(four: Path) -> None:
    lines = breakdown_lines(collect(four).cells[0])
    assert re.fullmatch(r"four - Per-GPU Breakdown \(\d\d samples over \d\.\d s\):", lines[0])
    values = ["NVIDIA A10G", "ok", "12,000.0 (±0.0)", "12,000.0", "50.0", "100.0"]
    found = [row[:-1] for row in table("\n".join(lines[3:7]))]  # the last is energy, which grows with time
    assert found == [
        ["GPU 0", *values, "60", "200.0"],
        ["GPU 1", *values, "60", "220.0"],
        ["GPU 2", *values, "91", "200.0"],
        ["GPU 3", "NVIDIA A10G", "lost", *values[2:], "60", "200.0"],
    ]
    assert re.fullmatch(
        r"    Total: 48,000\.0 MB, peak 48,000\.0 MB, 820\.0 W, [\d,]+ J \(counter\)", lines[7]
    )
    # Powers of 200, 220, 200 and 200 W: mean 205, deviation 8.66.
    assert lines[8] == (
        "    Balance: memory CV = 0.0% (Excellent), utilization CV = 0.0% (Excellent), "
        "power CV = 4.2% (Excellent)"
    )


def test_without_other_ranks_nobody_knows_who_waits(four: Path) -> None:
    lines = breakdown_lines(collect(four).cells[0])
    assert lines[9] == (
        "    Ranks: not computed (only one rank wrote a journal); so whether one waits for another is "
        "not known: equal memory or utilization does not show it, as waiting in a collective counts as busy"
    )


def test_a_slow_rank_is_not_hidden_by_full_utilization(four: Path) -> None:
    for rank, phases in ((1, SLOW), (2, PHASES), (3, PHASES)):
        add_rank(four, rank, phases)
    lines = [line.strip() for line in breakdown_lines(collect(four).cells[0])[9:14]]
    # Own work of 10, 20, 10 and 10 ms: mean 12.5, longest 20.
    assert re.sub(r"\d+ step records", "N step records", lines[0]) == (
        "Ranks: wasted share = 37.5% (1 - mean/max of the ranks' own work, N step records); not balanced: "
        f"the others wait 10.00 ms (50%) of each step for rank 1 ({HOST}, cuda:1) in forward and backward, "
        "although memory, utilization and power look even"
    )
    assert lines[1:3] == [
        f"rank 0 ({HOST}, cuda:0): 10.00 ms per step (data wait 1.00, forward and backward 8.00, "
        "optimizer 1.00), waits 10.00",
        f"rank 1 ({HOST}, cuda:1): 20.00 ms per step (data wait 1.00, forward and backward 18.00, "
        "optimizer 1.00)  <- slowest",
    ]


def test_equal_ranks_are_evenly_loaded(four: Path) -> None:
    add_rank(four, 1, PHASES)
    (line,) = [line for line in breakdown_lines(collect(four).cells[0]) if "Ranks:" in line]
    assert line.endswith("step records); evenly loaded")


def test_heat_and_a_lost_gpu_are_told(four: Path) -> None:
    lines = breakdown_lines(collect(four).cells[0])
    assert lines[-2] == "    GPU 2 had its clocks held down (hw_thermal_slowdown) in 100% of the samples"
    assert re.fullmatch(
        r"    GPU 3 did not answer from \d\.\d s on; lost at the end: .*lost.*; its numbers are those before",
        lines[-1],
    )


def test_every_graph_of_a_run_is_a_picture_with_its_numbers(four: Path) -> None:
    add_rank(four, 1, SLOW)
    pictures = draw_all(collect(four), gpu_graphs())
    assert [path.stem for path in pictures] == [
        *("gpu_load_balance_analysis", "gpu_memory_timeline", "gpu_power_temperature"),
        "per_gpu_memory_breakdown",
    ]
    for path in pictures:
        with Image.open(path) as image:
            colors = image.convert("RGB").getcolors(1 << 20)
            assert min(image.size) > 500
            assert colors is not None
            assert len(colors) > 50
    of_gpu_3 = [row["memory_used_mb"] for row in rows(four, "per_gpu_memory_breakdown") if row["gpu"] == "3"]
    assert set(of_gpu_3) == {"12000.0", ""}
    assert of_gpu_3 == sorted(of_gpu_3, reverse=True)  # known, then lost
    totals = [row["total_memory_used_mb"] for row in rows(four, "gpu_memory_timeline")]
    assert (totals[0], totals[-1]) == ("48000.0", "36000.0")
    balance = rows(four, "gpu_load_balance_analysis")
    assert [(row["quantity"], row["quality"]) for row in balance if row["kind"] == "cv"] == [
        *(("memory", "Excellent"), ("utilization", "Excellent"), ("power", "Excellent")),
    ]
    of_ranks = [row for row in balance if row["quantity"] == "forward_backward_seconds"]
    assert {row["of"]: float(row["value"]) for row in of_ranks} == pytest.approx(
        {f"rank 0 ({HOST}, cuda:0)": 0.008, f"rank 1 ({HOST}, cuda:1)": 0.018}
    )


def test_eight_gpus_have_a_panel_each(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.record(tmp_path / "eight", 3, "gpus 8", "all power 100", "gpu 5 temperature 80")
    draw_all(collect(run), ["per_gpu_memory_breakdown"])
    assert {row["gpu"] for row in rows(run, "per_gpu_memory_breakdown")} == set("01234567")
    with Image.open(run / "graphs/per_gpu_memory_breakdown.png") as image:
        assert image.width > 2 * image.height  # two rows of four
    (line,) = [line for line in breakdown_lines(collect(run).cells[0]) if "Balance:" in line]
    assert line.strip() == (
        "Balance: memory CV = 0.0% (Excellent), utilization CV unknown (it is 0 on all), "
        "power CV = 0.0% (Excellent)"
    )


def test_the_one_gpu_that_differs_is_named_where_the_cv_hardly_shows_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    slow = [f"gpu 11 {power} 50" for power in ("power", "power_average")]
    run = recorder.record(tmp_path / "sixteen", 1, "gpus 16", "all power 100", "all power_average 100", *slow)
    lines = breakdown_lines(collect(run).cells[0])
    # 15 of 100 W and one of 50 W: mean 96.875, deviation 12.1.
    assert lines[20:22] == [
        "    Balance: memory CV = 0.0% (Excellent), utilization CV unknown (it is 0 on all), "
        "power CV = 12.5% (Fair)",
        "    Far from the mean: power of GPU 11 (-48%)",
    ]


def test_a_gpu_that_never_answered_is_in_the_table_and_says_nothing_else(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    run = recorder.record(tmp_path / "three", 2, "gpus 3", "gpu 2 state lost", device="cuda:2")
    lines = breakdown_lines(collect(run).cells[0])
    assert table(lines[5]) == [["GPU 2", "-", "lost", *"-------"]]
    assert lines[6].startswith("    Total: 1,000.0 MB of 2 GPUs, peak 1,000.0 MB, 140.0 W of 2 GPUs, ")
    assert lines[-1] == "    GPU 2 never answered; lost at the end: GPU is lost"
    assert len([line for line in lines if "GPU 2" in line]) == 2


def test_lost_gpu_that_nothing_shows_to_be_the_runs_is_one_of_the_others(
    recorder: Recorder, tmp_path: Path
) -> None:
    run = recorder.record(tmp_path / "two", 2, "gpus 2", then=("gpu 1 state lost",))

    def elsewhere(number: int, record: dict[str, Any]) -> None:
        record["multi_gpu_data"][1]["run_share"] = None

    lines = breakdown_lines(collect(rewritten(run, elsewhere)).cells[0])
    assert [table(line)[0][:3] for line in lines if "GPU 1" in line] == [
        ["GPU 1", "Simulated H100 80GB", "lost"]
    ]

    def from_the_loss_on(number: int, record: dict[str, Any]) -> None:
        gpu = record["multi_gpu_data"][1]
        gpu["run_share"] = None if gpu["state"] == "ok" else 1.0

    lines = breakdown_lines(collect(rewritten(run, from_the_loss_on)).cells[0])
    assert lines[-1] == ("    GPU 1 did not answer while it was the run's; lost at the end: GPU is lost")


def test_run_whose_gpus_nothing_shows_says_so_and_has_no_sums(
    visible_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    """It names no device, and its processes cannot be seen; one GPU is lost meanwhile."""
    run_dir = tmp_path / "run"
    visible_nvml.write("gpus 2", "all power 300")
    with Run(
        run_dir, name="n", project="p", config={}, gpu_monitor={"interval": 0.05, "hour_price": 2.0}
    ) as run:
        run.log_step(1, train_loss=1.0)
        wait_until(lambda: (run_dir / "gpu_stats.jsonl").exists(), "the first sample")
        visible_nvml.add("gpu 1 state lost")
        wait_until(lambda: b'"lost"' in (run_dir / "gpu_stats.jsonl").read_bytes(), "the loss")
    wait_until(lambda: not agent_runs(run_dir), "the end of its agent")
    [cell] = collect(run_dir).cells
    lines = breakdown_lines(cell)
    assert lines[0].startswith("run - GPUs of the run not known (")
    assert f"    {UNKNOWN}" in lines
    sums = gpus_json(cell)
    assert sums is not None
    assert [sums[name] for name in ("energy_joules", "energy_source", "cost", "gpus")] == [
        None,
        None,
        None,
        [],
    ]


def test_one_gpu_has_nothing_to_share(recorded_one: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(recorded_one, tmp_path / "one"))
    lines = breakdown_lines(collect(run).cells[0])
    assert lines[-3:] == [
        "    Balance: memory CV unknown (one GPU), utilization CV unknown (one GPU), "
        "power CV unknown (one GPU)",
        "    Ranks: not computed (only one rank wrote a journal)",
        "    GPU 0 does not report power",
    ]
    draw_all(collect(run), ["gpu_load_balance_analysis"])
    assert rows(run, "gpu_load_balance_analysis") == []


def test_rotated_files_are_one_recording(four: Path) -> None:
    whole = breakdown_lines(collect(four).cells[0])
    stats = four / "gpu_stats.jsonl"
    lines = stats.read_text().splitlines(keepends=True)
    (four / "gpu_stats.jsonl.000000001-000000003").write_text("".join(lines[:3]))
    (four / "gpu_stats.jsonl.000000004-000000009").write_text("".join(lines[3:9]))
    stats.write_text("".join(lines[9:]) + '{"event":"gpu","ti')  # torn, as a crash leaves it
    assert breakdown_lines(collect(four).cells[0]) == whole


def test_a_long_recording_is_drawn_as_means_and_broken_at_gaps(four: Path) -> None:
    stats = four / "gpu_stats.jsonl"
    first = json.loads(stats.read_text().splitlines()[0])
    with stats.open("w") as file:
        for number in range(10 * MAX_POINTS):
            gap = 3600 if number >= 5 * MAX_POINTS else 0
            first |= {"seq": number + 1, "time": 1000.0 + number + gap}
            first["multi_gpu_data"][0]["memory_used_mb"] = float(number % 10)
            file.write(json.dumps(first) + "\n")
    history = collect(four).cells[0].gpus
    curve = history.gpus[0].curves["memory"]
    assert (history.num_samples, history.seconds) == (1600, 5199.0)
    assert [value == value for value in curve.means].count(False) == 1  # one break
    assert len(curve.means) == MAX_POINTS + 1
    assert (curve.means[0], curve.peaks[0], curve.seconds[0]) == (4.5, 9.0, 4.5)
    assert (curve.means[-1], curve.seconds[-1]) == (4.5, 5194.5)
    assert history.gpus[0].spreads["memory"].n == 1600


def test_a_matrix_compares_variants_and_draws_so_many_cells(
    four: Path, tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_report, "MAX_CELLS_DRAWN", 1)
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam", "lion"]})
    trained = make.training([2.0, 1.0], [0.5], 0.5)
    for optimizer, used in (("sgd", 12000.0), ("adam", 18000.0)):
        run = made.add({"OPTIMIZER": optimizer}, trained)
        shutil.copy(four / "gpu_stats.jsonl", run)
        text = (run / "gpu_stats.jsonl").read_text()
        (run / "gpu_stats.jsonl").write_text(
            text.replace('"memory_used_mb":12000.0', f'"memory_used_mb":{used}').replace(
                '"total_memory_used_mb":48000.0', f'"total_memory_used_mb":{4 * used}'
            )
        )
    made.add({"OPTIMIZER": "lion"}, trained)
    summary = collect(made.directory)
    write_all(summary)
    compared = [
        (row["variant"], row["peak_total_mb"], row["fullest_gpu_peak_mb"])
        for row in rows(made.directory, "gpu_memory_comparison")
    ]
    assert compared == [("sgd", "48000.0", "12000.0"), ("adam", "72000.0", "18000.0")]
    assert {row["variant"] for row in rows(made.directory, "gpu_power_temperature")} == {"sgd", "adam"}
    cell = made.directory / "optimizer-sgd" / "graphs"
    assert sorted(path.name for path in cell.glob("*.png")) == [
        *("gpu_load_balance_analysis.png", "gpu_memory_timeline.png", "gpu_power_temperature.png"),
        "per_gpu_memory_breakdown.png",
    ]
    assert [(made.directory / f"optimizer-{one}" / "graphs").exists() for one in ("adam", "lion")] == [
        False
    ] * 2
    assert [row[:3] for row in runs_table(summary).rows] == [
        ["optimizer-sgd", "4", "48,000"],
        ["optimizer-adam", "4", "72,000"],
    ]
    page = (made.directory / "summary.md").read_text()
    assert "## GPUs\n\n| run | GPUs | peak memory (MB)" in page
    assert "\n![gpu memory comparison](graphs/gpu_memory_comparison.png)\n" in page
    assert '<section id="gpus">' in (made.directory / "report.html").read_text()
    of_runs = [run["gpus"] for run in json.loads((made.directory / "summary.json").read_text())["runs"]]
    assert of_runs[2] is None
    assert of_runs[1]["load_balance"]["memory"] == {"cv": 0.0, "quality": "Excellent"}
    assert (of_runs[1]["peak_memory_mb"], of_runs[1]["ranks"]) == (72000.0, None)
    assert of_runs[1]["ranks_not_computed"] == "only one rank wrote a journal"
    assert gpu_report_lines(summary)[-2] == "m - 2 of 3 runs with GPU samples:"
    told = gpu_summary_lines(summary)
    assert [line.partition(" (")[0] for line in told if "Breakdown" in line] == [
        "optimizer-sgd - Per-GPU Breakdown",
        "optimizer-adam - Per-GPU Breakdown",
    ]
    assert [line.partition("memory CV")[0] for line in told if "Balance" in line] == 2 * ["    Balance: "]
    assert told[-1] == "  graphs not drawn yet of 1 more run: `make gpu-report` draws them"
    assert told[-6:-4] == ["GPUs: 2 of 3 runs with samples", runs_table(summary).plain().splitlines()[0]]


def test_of_a_large_matrix_the_terminal_has_a_screen_of_tables(
    four: Path, tmp_path: Path, make: Make
) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": [str(number) for number in range(1, 8)]})
    for number in range(1, 8):
        run = made.add({"SEED": str(number)}, make.training([2.0, 1.0], [0.5], 0.5))
        shutil.copy(four / "gpu_stats.jsonl", run)
    told = gpu_summary_lines(collect(made.directory))
    tables = [line for line in told if "Breakdown" in line]
    assert len(tables) == 4
    assert len(told) < MAX_LINES + 20
    assert [line.partition(":")[0].strip() for line in told[-4:]] == [
        *("seed-5", "seed-6", "seed-7", "every GPU of the other 3 runs"),
    ]
    assert told[-4].startswith(
        "  seed-5: GPU 2 had its clocks held down (hw_thermal_slowdown) in 100% of the"
    )


def test_a_matrix_without_samples_has_no_gpu_graphs(matrix: MatrixDirectory) -> None:
    summary = collect(matrix.directory)
    assert draw_all(summary, gpu_graphs()) == []
    with pytest.raises(ReportError) as caught:
        check_known(summary)
    assert "has GPU samples" in str(caught.value)


def rewritten(run: Path, change: Callable[[int, dict[str, Any]], None]) -> Path:
    """A recording with its samples one second apart, each changed by its number."""
    stats = run / "gpu_stats.jsonl"
    records = [json.loads(line) for line in stats.read_text().splitlines()]
    began = records[0]["time"]
    for number, record in enumerate(records):
        record["time"] = began + number
        change(number, record)
    stats.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def test_gpu_that_was_lost_and_is_back_says_for_how_long(recorded_two: Path, tmp_path: Path) -> None:
    """Lost in the third and fourth second of eight; when sampling began again, nobody knew its UUID."""
    run = Path(shutil.copytree(recorded_two, tmp_path / "back"))

    def lose(number: int, record: dict[str, Any]) -> None:
        gpu = record["multi_gpu_data"][1]
        gpu["power_draw_watts"] = 100.0 if number < 2 else 300.0
        record["aggregate_stats"]["total_power_watts"] = 100.0 + gpu["power_draw_watts"]
        if number in (2, 3):
            gpu |= dict.fromkeys(gpu, None) | {"index": 1, "state": "lost", "error": "gone", "run_share": 1.0}
            record["aggregate_stats"]["total_power_watts"] = 100.0

    history = collect(rewritten(run, lose)).cells[0].gpus
    n = history.num_samples
    assert [gpu.spreads["power"].n for gpu in history.gpus] == [n, n - 2]
    assert remarks(history) == [
        f"GPU 1 did not answer for 2.0 s, from 2.0 s to 4.0 s; its numbers are of the {n - 2} samples before "
        "and after"
    ]
    # two samples of 200 W and the others of 400 W, not counting those that lack a GPU
    mean, count = history.totals["power"]
    assert mean == pytest.approx((400 + 400 * (n - 4)) / (n - 2))
    assert count == 2


def test_total_of_a_run_that_moved_is_at_most_its_peak(recorder: Recorder, tmp_path: Path) -> None:
    """Half the time on GPU 0, then on GPU 1; GPU 2 is another's."""
    run = recorder.record(tmp_path / "moved", 8, "gpus 3", "all memory_used 4000")

    def move(number: int, record: dict[str, Any]) -> None:
        for gpu in record["multi_gpu_data"]:
            gpu["run_share"] = 1.0 if gpu["index"] == (0 if number < 4 else 1) else None
        record["aggregate_stats"] |= {"total_memory_used_mb": 4000.0, "total_power_watts": 70.0}

    lines = breakdown_lines(collect(rewritten(run, move)).cells[0])
    assert [line[4:9] for line in lines if line.startswith("    GPU ") and "Simulated" in line] == [
        *("GPU 0", "GPU 1", "GPU 2"),
    ]
    assert lines[5].startswith("    Total: 4,000.0 MB of 1 GPU, peak 4,000.0 MB, 70.0 W of 1 GPU, ")
    assert lines[-4] == "    Other GPUs of this machine:"


def test_cpu_training_has_only_other_gpus(
    recorded_two: Path, tmp_path: Path, make: Make, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(recorded_two, tmp_path / "cpu"))

    def give_away(number: int, record: dict[str, Any]) -> None:
        for gpu in record["multi_gpu_data"]:
            gpu["run_share"] = None
        nothing = dict.fromkeys(("total_memory_used_mb", "total_power_watts", "energy_joules", "cost"))
        record["aggregate_stats"] |= {**nothing, "devices": [], "devices_source": "device"}

    summary = collect(rewritten(run, give_away))
    check_known(summary)
    lines = gpu_report_lines(summary)
    assert re.fullmatch(r"cpu - no GPU of its own \(\d+ samples over \d+\.0 s\):", lines[0])
    assert lines[1:3] == [
        "    Ranks: not computed (only one rank wrote a journal)",
        "    Other GPUs of this machine:",
    ]
    assert [line[4:9] for line in lines[-2:]] == ["GPU 0", "GPU 1"]
    assert [summary.cells[0].number(metric_named(name)) for name in ("energy_joules", "cost")] == [None, None]
    runpy.run_path(str(root / "scripts/gpu_report.py"))["main"]([f"RUN={run}"])
    said = ["no graph: there is no GPU of its own, and one rank"]
    assert capsys.readouterr().out.splitlines() == [*lines, *said]
    # in a matrix it has no row among the runs with GPUs
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd"]})
    cell = made.add({"OPTIMIZER": "sgd"}, make.training([2.0, 1.0], [0.5], 0.5))
    shutil.copy(run / "gpu_stats.jsonl", cell)
    assert runs_table(collect(made.directory)).rows == []


def test_shared_gpu_counts_for_each_run_by_its_share(recorded_one: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(recorded_one, tmp_path / "shared"))

    def share(number: int, record: dict[str, Any]) -> None:
        [gpu] = record["multi_gpu_data"]
        gpu |= {"run_share": 1.0 if number < 4 else 0.5, "energy_joules": 100.0 * number}

    [gpu] = collect(rewritten(run, share)).cells[0].gpus.gpus
    n = gpu.num_samples
    assert gpu.energy_joules == 300 + 50 * (n - 4)
    assert gpu.run_share == pytest.approx((4 + 0.5 * (n - 4)) / n)
    assert (
        f"{100 * gpu.run_share:.0f}% of its time counts for the run" in remarks(collect(run).cells[0].gpus)[0]
    )
