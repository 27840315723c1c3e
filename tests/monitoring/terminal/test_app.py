"""The terminal dashboard without a terminal: its whole screens and keys; terminals are in another file.

The GPUs of the screens are made up: they stand in the files of a run, as its agent writes them. Whole screens
are in tests/data/gpu_dashboard/.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring import Run
from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.sample import GpuSample
from monitoring.journal.alerts import Alerts
from monitoring.terminal.app import Dashboard
from monitoring.terminal.display.cells import Line
from monitoring.terminal.display.graphs import graph_rows
from monitoring.terminal.display.keys import KeyPress
from monitoring.terminal.display.numbers import duration
from monitoring.terminal.display.themes import THEMES, painted
from monitoring.terminal.panels.process_table import ProcessChoice, process_table
from monitoring.terminal.panels.run_panel import RunPanel
from monitoring.terminal.run_view import RunView, RunWatch
from monitoring.terminal.screen import KEYS as KEYS_LINE
from monitoring.terminal.screen import View, screen

SMALL, LARGE = (80, 24), (200, 60)

KEYS = f" {KEYS_LINE}"

Then = Callable[[], object]


def write(path: Path, *records: dict[str, Any]) -> None:
    with path.open("ab") as file:
        for record in records:
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def gpu(index: int, **values: Any) -> GpuSample:
    about = {"uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "state": "ok"}
    return GpuSample(index, **{**about, **values})


def busy(index: int, sample: int) -> GpuSample:
    """A GPU that works; the second one is hot, and the third one is lost after three samples."""
    if index == 2 and sample > 3:
        return gpu(index, state="lost", error="GPU is lost")
    return gpu(
        index,
        utilization_percent=10.0 * sample + 5 * index,
        memory_used_mb=(40 + 10 * index) * 1024.0,
        memory_total_mb=80 * 1024.0,
        memory_percent=50 + 12.5 * index,
        temperature_celsius=60.0 + 21 * index,
        power_draw_watts=350.0 + 10 * sample,
        power_limit_watts=700.0,
        energy_joules=1000.0 * sample,
        throttle_reasons=["hw_thermal_slowdown"] if index == 1 else ["gpu_idle"],
        processes=[{"pid": 1000 + index, "name": "python", "memory_mb": 2048.0 * (index + 1)}],
    )


def gpu_record(samples: Sequence[GpuSample], seq: int, at: float) -> dict[str, Any]:
    return {
        "event": "gpu",
        "time": at,
        "seq": seq,
        "attempt": 1,
        "multi_gpu_data": [sample._asdict() for sample in samples],
        "aggregate_stats": aggregate(samples),
    }


def training(directory: Path, *, name: str = "digits", status: str | None = None) -> Path:
    """A run of 20 steps that has done 10 of them at ten minutes each; this process trains it."""
    Run(directory, name=name, project="p", config={}, agent=False).finish()
    journal = directory / "metrics.jsonl"
    journal.unlink()
    last = time.time() + 60
    start = {"event": "start", "time": last - 6060, "seq": 1, "attempt": 1, "num_steps": 20}
    write(journal, {**start, "steps_per_epoch": 4})
    for step in range(1, 11):
        measured = {"train_loss": 2.0 / step, "lr": 1e-3, "grad_norm": 0.5, "samples_per_sec": 100.0 + step}
        place = {"time": last - 600 * (10 - step), "seq": step + 1, "attempt": 1, "global_step": step}
        write(journal, {"event": "step", **place, **measured})
    if status is not None:
        write(journal, {"event": "end", "time": last, "seq": 12, "attempt": 1, "status": status})
    return directory


def sampled(directory: Path, num_gpus: int = 3, num_samples: int = 8, *, age: float = 0.0) -> Path:
    last = time.time() - age
    for sample in range(1, num_samples + 1):
        gpus = [busy(index, sample) for index in range(num_gpus)]
        write(directory / "gpu_stats.jsonl", gpu_record(gpus, sample, last - num_samples + sample))
    return directory


def lines(app: Dashboard, size: tuple[int, int]) -> list[str]:
    """The screen, without what the clock says."""
    picture = app.picture(*size)
    for theme in THEMES:  # each knows how everything looks
        assert all("\n" not in painted(line, size[0], theme, many_colors=True) for line in picture)
    text = ["".join(span.text for span in line)[: size[0]].rstrip() for line in picture]
    return [re.sub(r"\d\d:\d\d:\d\d", "12:34:56", line) for line in text]


def look(app: Dashboard, size: tuple[int, int], *keys: str, then: Then | None = None) -> list[str]:
    """The screen after some keys."""
    try:
        app.tick()
        app.picture(*size)
        for key in keys:
            app.handle(KeyPress(key))
            app.picture(*size)
        if then is not None:
            then()
        return lines(app, size)
    finally:
        app.close()


def styles(app: Dashboard, size: tuple[int, int]) -> dict[str, str]:
    """Style of each text that is a warning or bad."""
    look(app, size)
    picture: list[Line] = app.picture(*size)
    found = {
        span.text.strip(): span.style
        for line in picture
        for span in line
        if set(span.text) - set(" █▁▂▃▄▅▆▇")
    }
    return {text: style for text, style in found.items() if style in ("bad", "warn")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training run with three GPUs: one busy, one hot, one lost."""
    return sampled(training(tmp_path / "run"))


@pytest.mark.parametrize(("name", "size"), [("80x24", SMALL), ("200x60", LARGE)])
def test_whole_screen_with_a_hot_and_a_lost_gpu(
    root: Path, run: Path, name: str, size: tuple[int, int]
) -> None:
    expected = (root / f"tests/data/gpu_dashboard/{name}.txt").read_text().splitlines()
    assert look(Dashboard(run=run), size) == expected


def test_key_turns_to_the_gpus_of_the_next_host(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_HOST_NAME", "node0")
    other = [gpu(index, name="GPU of node1", utilization_percent=7.0) for index in range(2)]
    write(run / "gpu_stats.node1.jsonl", {**gpu_record(other, 1, time.time()), "host": "node1"})
    titles = {}
    for keys in ("", "h", "hh"):
        screen = look(Dashboard(run=run), LARGE, *keys)
        [titles[keys]] = [line.strip().split("  ")[0] for line in screen if "GPUs of" in line]
        assert sum("GPU of node1" in line for line in screen) == (2 if keys == "h" else 0)
    used = {
        "cpu_usage_percent": 37.0,
        "memory_usage_percent": 50.0,
        "memory_used_gb": 8.0,
        "disk_free_gb": 9.0,
    }
    about = {"event": "system", "seq": 1, "host": "node1", "memory_total_gb": 16.0, "load_average_1m": 3.5}
    write(run / "system_stats.node1.jsonl", {**about, **used})
    [host] = [line for line in look(Dashboard(run=run), LARGE, "h") if line.startswith(" host")]
    assert " ".join(host.split()) == "host CPU 37% ▄ RAM 7.5/14.9 GiB 50% load 3.50 disk 9 GB free"
    own = "GPUs of the run on node0, host 1 of 2"
    assert titles == {"": own, "h": "GPUs of the run on node1, host 2 of 2", "hh": own}


def test_colors_follow_the_thresholds(run: Path) -> None:
    hot = gpu(
        0, memory_percent=76.0, temperature_celsius=81.0, power_draw_watts=700.0, power_limit_watts=700.0
    )
    full = gpu(
        1, memory_percent=91.0, temperature_celsius=70.0, power_draw_watts=750.0, power_limit_watts=700.0
    )
    cool = gpu(
        2, memory_percent=74.0, temperature_celsius=69.0, power_draw_watts=600.0, power_limit_watts=700.0
    )
    (run / "gpu_stats.jsonl").unlink()
    write(run / "gpu_stats.jsonl", gpu_record([hot, full, cool], 1, time.time()))
    assert styles(Dashboard(run=run), SMALL) == {
        "76%": "warn",
        "81°!": "bad",
        "700/700": "warn",
        "91%!": "bad",
        "70°": "warn",
        "750/700!": "bad",
    }


def test_gpu_that_was_lost_is_red_and_keeps_its_line(run: Path) -> None:
    found = styles(Dashboard(run=run), SMALL)
    assert found["LOST: GPU is lost"] == "bad"
    assert found["2"] == "bad"


def test_machine_without_a_gpu_says_so_and_shows_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for selection in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.setenv(selection, "")  # also on a machine that has some

    app = Dashboard(run=training(tmp_path / "run"))

    def first_look() -> None:
        while "looking" in "".join(lines(app, SMALL)):
            time.sleep(0.01)
            app.tick()

    shown = look(app, SMALL, then=first_look)
    assert re.fullmatch(r" GPUs of \S+ +12:34:56 UTC", shown[0])
    assert re.fullmatch(
        r" host CPU +\S+ [▁▂▃▄▅▆▇█ ]+  RAM [\d.]+/[\d.]+ GiB \d+%  load [\d. ]+(  disk \d+ GB free)?",
        shown[1],
    )
    assert shown[2:5] == [
        " there is no GPU to sample",
        " run digits                     running  step 10 of 20  epoch 2.50  1:40 h left",
        " loss 0.2 (0.2–2)                        samples/s 110 (101–110)",
    ]
    assert shown[-2:] == [" lr 0.001  grad norm 0.5", KEYS]


def test_samples_of_a_run_that_ended_are_told_to_be_old(tmp_path: Path) -> None:
    shown = look(Dashboard(run=sampled(training(tmp_path / "run", status="failed"), age=3600)), SMALL)
    told = r" GPUs of the run  recorded until \d{4}-\d\d-\d\dT12:34:56Z, not since +12:34:56 UTC"
    assert re.fullmatch(told, shown[0])
    [state] = [line for line in shown if line.startswith(" run ")]
    assert state == " run digits                                   failed  step 10 of 20  epoch 2.50"


def test_run_that_is_gone_without_a_word_was_killed(run: Path) -> None:
    about = orjson.loads((run / "run.json").read_bytes())
    about["attempts"][-1]["pid_started"] -= 1
    (run / "run.json").write_bytes(orjson.dumps(about))
    assert " run digits                                   killed  step 10 of 20  epoch 2.50" in look(
        Dashboard(run=run), SMALL
    )


def test_long_name_of_a_run_keeps_beginning_and_end(tmp_path: Path) -> None:
    name = "optimizer-adamwspam_learning-rate-0.0006_schedule-cosine_seed-1"
    run = training(tmp_path / "run", name=name)
    small, large = (
        next(line for line in look(Dashboard(run=run), size) if line.startswith(" run "))
        for size in (SMALL, LARGE)
    )
    assert small == " run optimizer-adamwspa…dule-cosine_seed-1  running  step 10 of 20  1:40 h left"
    assert large.startswith(f" run {name}   ")
    assert large.endswith("   running  step 10 of 20  epoch 2.50  1:40 h left")


def test_cell_of_a_matrix_is_called_as_in_the_matrix(tmp_path: Path) -> None:
    run = training(tmp_path / "optimizer-sgd_seed-1", name="optimizer-sgd_seed-1_20261121T174107Z")
    [line] = [line for line in look(Dashboard(run=run), SMALL) if line.startswith(" run ")]
    assert line.startswith(" run optimizer-sgd_seed-1     ")


def test_fast_training_is_told_without_exponents(tmp_path: Path) -> None:
    run = training(tmp_path / "run")
    step = {"time": time.time() + 61, "seq": 12, "attempt": 1, "global_step": 11, "samples_per_sec": 14512.4}
    write(run / "metrics.jsonl", {"event": "step", **step})
    assert any(line.endswith("  samples/s 14,512 (101–14,512)") for line in look(Dashboard(run=run), SMALL))


def test_text_of_others_does_not_control_the_terminal(tmp_path: Path) -> None:
    run = training(tmp_path / "run", name="a\x1b[2Jb")
    process = {"pid": 7, "name": "py\x1b]0;x\x07\n", "memory_mb": 1.0}
    write(run / "gpu_stats.jsonl", gpu_record([gpu(0, name="G\x9b", processes=[process])], 1, time.time()))
    shown = look(Dashboard(run=run), SMALL)
    assert [line for line in shown if not line.isprintable()] == []
    assert shown[2].startswith("    0 G?  ")
    assert [line for line in shown if line.startswith("   0        7 ") and line.endswith(" – py?]0;x??")]


def test_what_a_gpu_does_not_report_is_a_dash(run: Path) -> None:
    (run / "gpu_stats.jsonl").unlink()
    write(run / "gpu_stats.jsonl", gpu_record([gpu(0)], 1, time.time()))
    shown = look(Dashboard(run=run), SMALL)
    assert shown[2].split() == ["0", "H100", "80GB", "HBM3", *"–––––"]
    assert " not reported by the driver" in shown


def test_more_gpus_than_lines_are_a_key_away(tmp_path: Path) -> None:
    run = training(tmp_path / "run")
    write(run / "gpu_stats.jsonl", gpu_record([gpu(index) for index in range(72)], 1, time.time()))
    shown = look(Dashboard(run=run), SMALL, *["down"] * 70)
    assert shown[1].split()[:6] == ["+8", "↑↓", "util", "mem", "°C", "util"]
    assert [line[60:64] for line in shown[2:18]] == [f"  {index}" for index in range(54, 69)] + ["> 69"]
    assert any(line.startswith(" run digits ") for line in shown)
    assert shown[-1] == KEYS


@pytest.mark.parametrize("width", [1, 2, 3, 8, 40, 79, 139, 140, 300])
@pytest.mark.parametrize("height", [1, 2, 5, 23, 100])
def test_every_size_is_filled_and_no_line_is_longer(run: Path, width: int, height: int) -> None:
    samples = [busy(index, 4) for index in range(3)]
    panel = RunPanel(RunView(run), time.time(), width)
    processes = process_table(samples, ProcessChoice(), {})
    view = View(width, height, time.time(), samples=samples, processes=processes, run=panel)
    assert len(screen(view)) == height
    if width >= 80:
        assert {len("".join(span.text for span in line)) > width for line in screen(view)} == {False}


# ----------------------------------------------------------------- keys


def test_q_quits(run: Path) -> None:
    app = Dashboard(run=run)

    look(app, SMALL, "q")
    assert app.ended


def test_n_shows_another_metric_of_the_run(run: Path) -> None:
    write(
        run / "metrics.jsonl",
        *(
            {"event": "eval", "time": time.time(), "seq": 20 + step, "attempt": 1, "global_step": step}
            | {"split": "val", "val_loss": 3.0 / step}
            for step in (4, 8)
        ),
    )
    app = Dashboard(run=run)
    look(app, SMALL)
    assert app._run is not None
    names = app._run.metrics()
    assert "val_loss" in names
    assert "train_loss" not in names
    headings = []
    for _ in names:
        shown = look(app, SMALL, "n")
        headings.append(next(line for line in shown if line.startswith(" loss "))[40:].strip())
    assert headings[names.index("val_loss")] == "val_loss 0.375 (0.375–0.75)"
    assert [one.split(" ")[0] for one in headings] == [
        "samples/s" if n == "samples_per_sec" else n for n in names
    ]
    back = look(app, SMALL, "N")
    assert f"{names[-2]}, {len(names) - 1} of {len(names)} metrics" in back[-1]


def test_a_metric_can_be_asked_for_before_the_run_has_it(run: Path) -> None:
    [line] = [line for line in look(Dashboard(run=run, metric="wer"), SMALL) if line.startswith(" loss ")]
    assert line[40:].strip() == "wer"


def test_of_several_alerts_the_newest_is_shown_and_the_others_are_counted(run: Path) -> None:
    alerts = Alerts(run)
    for rule in ("loss_plateau", "gradient_norm", "step_time"):
        alerts.add(rule, "warning", f"{rule} fires", state="firing", subject=None)
    alerts.close()
    assert " ! step_time fires  (+2)" in look(Dashboard(run=run), SMALL)


def test_s_saves_the_documented_files(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("saved" * 24)  # too long to stand beside the keys, wherever tests have their files
    shown = look(Dashboard(run=run, save_dir=folder), LARGE, "s")
    gpus, steps = sorted(folder.iterdir())
    stamp = gpus.name.removeprefix("gpu_metrics_")
    assert re.fullmatch(r"\d{8}_\d{6}\.jsonl", stamp)
    assert steps.name == f"training_metrics_{stamp}"
    assert shown[-1] == f" saved {folder}/{{gpu,training}}_metrics_{stamp}"[:200]
    saved = [orjson.loads(line) for line in gpus.read_bytes().splitlines()]
    assert [line["gpu_index"] for line in saved] == [0, 1, 2] * 8
    run_id = orjson.loads((run / "run.json").read_bytes())["run_id"]
    assert {key: value for key, value in saved[1].items() if key != "timestamp"} == {
        "gpu_index": 1,
        "utilization_percent": 15.0,
        "memory_used_mb": 51200.0,
        "memory_total_mb": 81920.0,
        "memory_percent": 62.5,
        "temperature_celsius": 81.0,
        "power_draw_watts": 360.0,
        "fan_speed_percent": None,
        "energy_joules": 1000.0,
        "gpu_uuid": "GPU-1",
        "gpu_name": "NVIDIA H100 80GB HBM3",
        "state": "ok",
        "error": None,
        "correlation_id": run_id,
    }
    trained = [orjson.loads(line) for line in steps.read_bytes().splitlines()]
    assert len(trained) == 10
    assert {key: value for key, value in trained[4].items() if key != "timestamp"} == {
        "step": 5,
        "epoch": 1.25,
        "loss": 0.4,
        "learning_rate": 0.001,
        "gradient_norm": 0.5,
        "throughput_samples_per_sec": 105.0,
        "step_duration_seconds": None,
        "memory_allocated_mb": None,
        "memory_reserved_mb": None,
        "correlation_id": run_id,
    }


def test_message_that_does_not_fit_beside_the_keys_takes_their_place(run: Path, tmp_path: Path) -> None:
    shown = look(Dashboard(run=run, save_dir=tmp_path / "s"), SMALL, "s")
    assert shown[-1].startswith(f" saved {tmp_path}"[:80])


def test_s_tells_what_it_cannot_write(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shown = look(Dashboard(run=run, save_dir=tmp_path / "file"), LARGE, "s")
    assert shown[-1].removeprefix(f"{KEYS}  ").startswith(f" not saved: {tmp_path / 'file'}")


def test_r_resets_the_graphs_and_what_comes_later_is_shown(run: Path) -> None:
    app = Dashboard(run=run, interval=60)

    def one_more() -> None:
        write(run / "gpu_stats.jsonl", gpu_record([busy(0, 4)], 9, time.time()))
        assert "▅" not in "".join(lines(app, SMALL))
        app.tick()

    shown = look(app, (120, 24), "r", then=one_more)
    [row] = [line for line in shown if " H100 " in line]
    assert (row.split()[5:7], sum(sign in "▁▂▃▄▅▆▇█" for sign in row)) == (["▄", "40.0/80.0"], 1)
    assert shown[-1] == f"{KEYS}   reset at 12:34:56"


def test_question_mark_helps_and_any_key_closes_it(run: Path) -> None:
    [helped] = [line for line in look(Dashboard(run=run), SMALL, "?") if line.startswith(" q ")]
    assert helped == " q quit     ? this help, and any key closes it     Ctrl-Z suspend   h next host"
    assert look(Dashboard(run=run), SMALL, "?", "s")[-1] == KEYS  # the key that closed it saved nothing


def test_arrows_choose_a_gpu_and_come_back_to_all(run: Path) -> None:
    def heading(*keys: str) -> str:
        shown = look(Dashboard(run=run), SMALL, *keys)
        return next(line[:20].strip() for line in shown if ": util" in line)

    assert [heading(*keys) for keys in [(), ("down",), ("up",), ["down"] * 4]] == [
        "all GPUs: util 82%",
        "GPU 0: util 80% (0–",
        "GPU 2: util – (0–10",
        "all GPUs: util 82%",
    ]


def test_chosen_gpu_is_marked_and_its_processes_are_shown(run: Path) -> None:
    shown = look(Dashboard(run=run), SMALL, "down", "down")
    assert [line[:5] for line in shown if " H100 " in line] == ["    0", ">   1", "    2"]
    [heading] = [place for place, line in enumerate(shown) if line.startswith(" gpu      pid user ")]
    assert shown[heading + 1].split() == ["1", "1001", "–", "4096", *"––––", "python"]
    assert [line for line in shown if " 1000 " in line] == []


def test_zoom_is_told_and_stands_at_the_axis(run: Path) -> None:
    def axis(*keys: str) -> str:
        return next(line for line in look(Dashboard(run=run), LARGE, *keys) if line.endswith(" now"))[:60]

    assert [axis(*keys).split()[:5] for keys in [(), ("-",), ("-", "+", "+"), ["-"] * 3]] == [
        ["-1", "min", "-30", "s", "now"],
        ["-5", "min", "-2:30", "min", "now"],
        ["-1", "min", "-30", "s", "now"],
        ["-4", "h", "-2", "h", "now"],
    ]
    assert look(Dashboard(run=run), LARGE, *["-"] * 9)[-1].endswith(" graphs of all that is known")


def test_axis_of_losses_is_chosen_by_a_key(tmp_path: Path) -> None:
    run = training(tmp_path / "run")

    def heading(*keys: str) -> str:
        shown = look(Dashboard(run=run), LARGE, *keys)
        return next(line for line in shown if line.startswith(" loss "))[:40].strip()

    assert [heading(*["l"] * times) for times in range(4)] == [
        *("loss 0.2 (0.2–2)", "loss 0.2 (0.2–2, log)", "loss 0.2 (0.2–2)", "loss 0.2 (0.2–2)"),
    ]


def test_theme_is_chosen_by_a_key_and_by_the_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Dashboard(run=run)
    assert app.theme == "mono"
    look(app, SMALL, "t")
    assert (app.theme, Dashboard(run=run, theme="light").theme) == ("safe", "light")


@pytest.mark.parametrize(
    ("num_gpus", "size", "columns"),
    [(8, SMALL, 1), (16, SMALL, 2), (64, SMALL, 4), (64, (120, 40), 4), (64, LARGE, 3), (8, (120, 40), 1)],
)
def test_gpus_stand_side_by_side_where_they_are_many(
    tmp_path: Path, num_gpus: int, size: tuple[int, int], columns: int
) -> None:
    run = training(tmp_path / "run")
    samples = [gpu(index, temperature_celsius=30.0 + index) for index in range(num_gpus)]
    write(run / "gpu_stats.jsonl", gpu_record(samples, 1, time.time()))
    shown = look(Dashboard(run=run), size)
    rows = -(-num_gpus // columns)
    heats = [re.findall(r"(\d+)[°!]", line) for line in shown[2 : 2 + rows]]
    by_columns = [heat for column in range(columns) for row in heats for heat in row[column : column + 1]]
    assert by_columns == [str(30 + index) for index in range(num_gpus)]
    assert any(line.startswith(" run digits ") for line in shown)


# ----------------------------------------------------------------- runs


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Two runs that train, and one that ended long ago."""
    for name, age in (("b", 1.0), ("a", 5.0), ("old", 4000.0)):
        training(tmp_path / "matrix" / name, name=name, status="complete" if name == "old" else None)
        written = time.time() - age
        os.utime(tmp_path / "matrix" / name / "metrics.jsonl", (written, written))
    return tmp_path / "matrix"


def test_arrows_choose_a_run_of_a_matrix(matrix: Path) -> None:
    def shown(*keys: str) -> str:
        [line] = [line for line in look(Dashboard(run=matrix), SMALL, *keys) if line.startswith(" run ")]
        return line.split("   ")[0]

    assert [shown(*keys) for keys in [(), ("right",), ("left",), ("right", "right")]] == [
        " run b (2 of 2)",
        " run a (1 of 2)",
        " run a (1 of 2)",
        " run b (2 of 2)",
    ]


def test_run_is_watched_until_it_ends_and_then_another(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.terminal.run_view.LOOK_AGAIN", 0.0)
    monkeypatch.setattr("monitoring.terminal.run_view.SHARE", 1e9)
    watch = RunWatch(matrix)

    def name() -> str:
        watch.look()
        assert watch.view is not None
        return watch.view.name

    seen = [name()]
    newer = time.time() + 100  # b has not written for longer than that it counts as lately
    os.utime(matrix / "a" / "metrics.jsonl", (newer, newer))
    seen.append(name())
    write(matrix / "b" / "metrics.jsonl", {"event": "end", "time": newer, "seq": 12, "status": "complete"})
    name()
    newer = time.time() + 200
    os.utime(matrix / "a" / "metrics.jsonl", (newer, newer))
    seen.append(name())
    assert seen == ["b", "b", "a"]


def test_dashboard_waits_for_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.terminal.run_view.LOOK_AGAIN", 0.0)
    app = Dashboard(run=tmp_path, interval=60)
    assert [line for line in lines(app, LARGE) if "no run" in line] == []  # it has not looked
    before: list[str] = []

    def begin() -> None:
        before.extend(lines(app, LARGE))
        sampled(training(tmp_path / "run"))
        while f" no run in {tmp_path} yet" in lines(app, LARGE):  # it looks again when it has rested
            app.tick()

    after = look(app, LARGE, then=begin)
    assert f" no run in {tmp_path} yet" in before
    assert after[0].startswith(" GPUs of the run  90 GiB used")
    assert any(line.startswith(" run digits  ") for line in after)


# ----------------------------------------------------------------- parts


def test_graph_has_gaps_where_nothing_was_measured() -> None:
    assert graph_rows([0, 25, 50, None, 100, 1000], 8, 2, 0, 100) == ["    ▁ ██", "  ▁▅█ ██"]


def test_long_history_is_drawn_in_means() -> None:
    assert graph_rows([0.0] * 4 + [100.0] * 4, 4, 1, 0, 100) == ["▁▁██"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (185, "3:05 min"), (7620, "2:07 h"), (273600, "3 d 4 h")],
)
def test_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text
