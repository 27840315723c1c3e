"""The documented snippets, taken from a copy of the document and run as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[2] / "data/verbose_logging/verbose-logging.md"


def snippet(containing: str) -> str:
    """The one block of Python that contains a text."""
    [found] = [
        block
        for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.S)
        if containing in block
    ]
    return str(found)


@pytest.fixture
def in_logs(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(written)
    return written


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_documented_test_makes_a_log_of_each_level(written: Path) -> None:
    found = {
        level: entries(written / f"test_verbose_logs_{level}.jsonl") for level in ("low", "medium", "high")
    }
    counts = {level: len(lines) for level, lines in found.items()}
    assert counts == {"low": 8, "medium": 16, "high": 24}
    types = {entry["type"] for entry in entries(written / "test_verbose_logs_ultra.jsonl")}
    assert types == {
        *("system_initialization", "training_initialization", "training_start", "epoch_begin", "step_begin"),
        *("training_step_complete", "training_metrics_update", "evaluation_start", "prediction_step"),
        *("evaluation_complete", "model_checkpoint_save", "epoch_complete", "training_complete"),
    }
    assert not (written / "verbose_logging_errors.log").exists()
    standard = entries(written / "training_logs.jsonl")
    assert [line["step"] for line in standard] == [*range(1, 11)] * 4
    assert standard[0].keys() == {"timestamp", "step", "epoch", "loss", "learning_rate"}


def test_reading_and_timing_run_as_written(in_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(snippet("# Read verbose logs"), names)
    assert [log["step"] for log in names["training_steps"]] == [*range(1, 11)]
    assert names["resource_warnings"] == []
    exec(snippet("# Extract timing data"), names)
    assert re.fullmatch(r"Average step time: \d+\.\d{3}s ± \d+\.\d{3}s\n", capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_plot_of_resources_runs_as_written(in_logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {"logs": entries(in_logs / "verbose_training_logs.jsonl")}
    exec(snippet("# Extract memory usage"), names)
    [line] = names["plt"].gca().get_lines()
    assert list(line.get_ydata()) == names["memory_usage"]
    assert len(names["memory_usage"]) == 16
    assert all(0 < share <= 100 for share in names["memory_usage"])
    names["plt"].close()


def test_the_validator_passes_each_log(in_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(snippet("def validate_log_file"), names)
    logs = sorted(path.name for path in in_logs.glob("test_verbose_logs_*.jsonl"))
    for name in logs:
        names["validate_log_file"](name)
    expected = [f"✅ {name} is valid" for name in ["verbose_training_logs.jsonl", *logs]]
    assert capsys.readouterr().out.splitlines() == expected


def test_monitoring_a_log_prints_its_warning(tmp_path: Path) -> None:
    warning = {"level": "WARNING", "message": "⚠️ High memory usage: 92.3%"}
    (tmp_path / "verbose_training_logs.jsonl").write_text(json.dumps(warning) + "\n")
    program = f"import json\n{snippet('def monitor_logs')}\nmonitor_thread.join()"
    with subprocess.Popen(
        [sys.executable, "-u", "-X", "utf8", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert line == "⚠️ Warning: ⚠️ High memory usage: 92.3%\n"


def test_fastapi_starts_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_transformers: None
) -> None:
    from fastapi.testclient import TestClient

    from monitoring.verbose_logging import configured_callbacks

    monkeypatch.chdir(tmp_path)
    state = SimpleNamespace(global_step=0, epoch=0.0, max_steps=1, num_train_epochs=1)

    def train_with_config(config: dict[str, Any]) -> None:
        [callback] = configured_callbacks(config)
        callback.on_train_begin(None, state, None)
        callback.on_train_end(None, state, None)
        callback.close()

    names: dict[str, Any] = {"train_with_config": train_with_config}
    exec(snippet("from fastapi import FastAPI"), names)
    with TestClient(names["app"]) as client:
        answer = client.post("/train", json={"max_steps": 1})
    assert answer.json() == {"status": "Training started with verbose logging"}
    found = entries(tmp_path / "verbose_training_logs.jsonl")
    assert [entry["type"] for entry in found] == [
        "system_initialization",
        "training_start",
        "training_complete",
    ]


def test_the_configuration_decides_whether_there_is_a_log(without_transformers: None) -> None:
    from monitoring.verbose_logging import configured_callbacks

    config: dict[str, Any] = {}
    exec(snippet("# Verbose Logging Settings"), {}, config)
    [callback] = configured_callbacks(config["config"])
    assert (callback.verbosity_level, callback.log_file) == ("high", "verbose_training_logs.jsonl")
    assert configured_callbacks({"use_verbose_logging": False, "verbosity_level": "loud"}) == []
    with pytest.raises(ValueError, match="verbosity_level='loud'"):
        configured_callbacks({"use_verbose_logging": True, "verbosity_level": "loud"})
