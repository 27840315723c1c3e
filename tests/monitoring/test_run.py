"""Calls of a training process lead to the records of its journal."""

from __future__ import annotations

import contextlib
import errno
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
import pytest
import torch

from monitoring import MonitoringError, Record, Run, read_records
from monitoring.errors import FollowerOptionsError, RunBusyError, RunDirectoryError, UnknownFollower

from ..warm_python import WarmPython


def open_run(directory: Path, **arguments: Any) -> Run:
    given: dict[str, Any] = {
        "name": "first",
        "project": "digits",
        "config": {"SEED": 1},
        "agent": False,
        **arguments,
    }
    return Run(directory, **given)


def journal(directory: Path) -> list[Record]:
    return [record for record, _ in read_records(directory / "metrics.jsonl")]


def without(record: Record, *names: str) -> Record:
    return {key: value for key, value in record.items() if key not in names}


def test_run_writes_every_kind_of_record(tmp_path: Path) -> None:
    run = open_run(tmp_path, identity={"seed": 1})
    model = {"name": "lenet5", "parameters": 61706, "architecture": "LeNet5()"}
    training = {"num_steps": 2, "num_epochs": 1, "steps_per_epoch": 2, "batch_size": 64, "optimizer": "sgd"}
    run.start(model=model, training=training, schedule="constant")
    run.log_step(1, train_loss=0.5, lr=1e-3, grad_norm=None)
    run.log_eval(2, split="val", val_loss=0.25, val_accuracy=0.9)
    run.log_epoch(1, global_step=2, train_loss=0.4)
    run.log_checkpoint(2, checkpoint_path=tmp_path / "checkpoints" / "best.pt", val_loss=0.25)
    run.finish(test_accuracy=0.91)

    start, step, *others = (without(record, "time") for record in journal(tmp_path))
    assert start["hardware"]["cpu_count"] >= 1  # type: ignore[index]
    assert start["versions"]["torch"] == torch.__version__  # type: ignore[index]
    assert start["correlation_id"] == start["run_id"]
    assert without(start, "hardware", "versions", "git", "run_id", "correlation_id") == {
        "event": "start",
        "seq": 1,
        "attempt": 1,
        "run_name": "first",
        "project": "digits",
        **training,
        "schedule": "constant",
        "model": model,
        "config": {"SEED": 1},
    }
    assert 1 < step["cpu_mem_rss_mb"] < 1e6  # type: ignore[operator]
    assert without(step, "cpu_mem_rss_mb") == {
        "event": "step",
        "seq": 2,
        "attempt": 1,
        "global_step": 1,
        "nan_inf_detected": False,
        "train_loss": 0.5,
        "lr": 0.001,
        "grad_norm": None,
    }
    at_two = {"attempt": 1, "global_step": 2}
    assert others == [
        {"event": "eval", "seq": 3, **at_two, "split": "val", "val_loss": 0.25, "val_accuracy": 0.9},
        {"event": "epoch", "seq": 4, **at_two, "epoch": 1, "train_loss": 0.4},
        {
            "event": "checkpoint",
            "seq": 5,
            **at_two,
            "checkpoint_path": f"{tmp_path}/checkpoints/best.pt",
            "val_loss": 0.25,
        },
        {"event": "end", "seq": 6, "attempt": 1, "status": "complete", "test_accuracy": 0.91},
    ]


def test_log_step_takes_a_mapping_as_it_takes_keywords(tmp_path: Path) -> None:
    """A dict takes the short way; another mapping, and both together, give the same records."""
    metrics = {"train_loss": 0.5, "note": None}
    nameless: dict[Any, object] = {1: 2.0}
    with open_run(tmp_path) as run:
        run.log_step(1, **metrics)
        run.log_step(2, metrics)
        run.log_step(3, MappingProxyType(metrics))
        run.log_step(4, {"train_loss": 0.5}, note=None, at=1e9)
        run.log_step(5, {"train_loss": math.inf, "at": 7.0, "seq": 9})
        run.log_step(6, nameless)
        run.log_step(7, _Unreadable())
    assert metrics == {"train_loss": 0.5, "note": None}
    *steps, end = journal(tmp_path)
    assert [record["seq"] for record in (*steps, end)] == list(range(1, 9))
    assert steps[3]["time"] == 1e9
    own = [without(record, "time", "seq", "attempt", "cpu_mem_rss_mb", "event") for record in steps]
    assert own == [
        *({"global_step": step, "nan_inf_detected": False, **metrics} for step in (1, 2, 3, 4)),
        {
            "global_step": 5,
            "nan_inf_detected": True,
            "train_loss": None,
            "at": 7.0,
            "seq_": 9,
            "nonfinite": ["train_loss"],
        },
        {"global_step": 6, "nan_inf_detected": False, "1": 2.0},
        {"global_step": 7, "nan_inf_detected": False, "metrics": None, "unserializable": ["metrics"]},
    ]


class _Unreadable(Mapping[str, object]):
    """A mapping that fails as it is read."""

    def __getitem__(self, name: str) -> object:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("gone")

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "unreadable"


@pytest.mark.parametrize(
    ("metrics", "written"),
    [
        ({"a": math.nan, "b": 1.0}, {"a": None, "b": 1.0, "nonfinite": ["a"]}),
        ({"a": -math.inf, "b": None}, {"a": None, "b": None, "nonfinite": ["a"]}),
        ({"a": [1.0, math.nan]}, {"a": [1.0, None], "nonfinite": ["a"]}),
        ({"a": {"b": math.inf}}, {"a": {"b": None}, "nonfinite": ["a"]}),
        ({"a": np.float32("nan")}, {"a": None, "nonfinite": ["a"]}),
        ({"a": np.array([1.0, np.nan])}, {"a": [1.0, None], "nonfinite": ["a"]}),
        ({"a": torch.tensor(math.inf)}, {"a": None, "nonfinite": ["a"]}),
        ({"a": object(), "b": math.nan}, {"a": None, "b": None, "unserializable": ["a"], "nonfinite": ["b"]}),
    ],
)
def test_log_step_names_what_is_not_finite(
    tmp_path: Path, metrics: dict[str, object], written: dict[str, object]
) -> None:
    run = open_run(tmp_path)
    run.log_step(1, **metrics)
    [record] = journal(tmp_path)
    envelope = ("event", "time", "seq", "attempt", "global_step", "cpu_mem_rss_mb")
    assert without(record, *envelope) == {"nan_inf_detected": True, **written}
    run.finish()


@pytest.mark.parametrize(
    ("metrics", "written"),
    [
        ({"a": np.float64(0.1), "b": np.int64(2), "c": np.bool_(True)}, {"a": 0.1, "b": 2, "c": True}),
        ({"a": torch.tensor(1.5), "b": torch.tensor([2])}, {"a": 1.5, "b": 2}),
        ({"a": torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True)}, {"a": 0.5}),
        ({"a": torch.ones(2), "b": 1}, {"a": None, "b": 1, "unserializable": ["a"]}),
        ({"a": "null", "b": None}, {"a": "null", "b": None}),
        ({"a": Path("x"), "b": {1: 2}}, {"a": "x", "b": {"1": 2}}),
        ({"time": 3, "seq": 9, "event": "x"}, {"time_": 3, "seq_": 9, "event_": "x"}),
        ({"nan_inf_detected": True}, {"nan_inf_detected": True}),
        ({}, {}),
    ],
)
def test_log_step_takes_values_of_every_kind(
    tmp_path: Path, metrics: dict[str, object], written: dict[str, object]
) -> None:
    run = open_run(tmp_path)
    run.log_step(1, **metrics)
    [record] = journal(tmp_path)
    assert (record["event"], record["seq"], record["global_step"]) == ("step", 1, 1)
    envelope = ("event", "time", "seq", "attempt", "global_step", "cpu_mem_rss_mb")
    assert without(record, *envelope) == {"nan_inf_detected": False, **written}
    run.finish()


def test_tensor_without_a_number_stops_no_training(tmp_path: Path) -> None:
    """With a default device torch's own Python asks the tensor, as it does one on the meta device."""
    several, none = torch.ones(2), torch.empty((), device="meta")
    with open_run(tmp_path) as run, torch.device("cpu"):
        for step, loss in enumerate((torch.tensor(0.5), several, none, torch.tensor(0.25))):
            run.log_step(step, loss=loss)
    *steps, _ = journal(tmp_path)
    assert [(record["loss"], record.get("unserializable")) for record in steps] == [
        (0.5, None),
        (None, ["loss"]),
        (None, ["loss"]),
        (0.25, None),
    ]


def test_run_in_the_same_directory_is_the_next_attempt_of_the_same_run(tmp_path: Path) -> None:
    first = open_run(tmp_path)
    first.log_step(1)
    first.finish("interrupted")
    second = open_run(tmp_path, name="renamed", project="elsewhere", config={"SEED": 2})
    second.log_step(2)
    second.finish()
    assert (second.run_id, second.name, second.project, second.attempt) == (
        first.run_id,
        "first",
        "digits",
        2,
    )
    assert [(record["seq"], record["attempt"], record["event"]) for record in journal(tmp_path)] == [
        (1, 1, "step"),
        (2, 1, "end"),
        (3, 2, "step"),
        (4, 2, "end"),
    ]
    saved = orjson.loads((tmp_path / "run.json").read_bytes())
    assert [attempt["attempt"] for attempt in saved["attempts"]] == [1, 2]
    assert saved["config"] == {"SEED": 2}


def test_run_after_finish_writes_nothing_and_says_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = open_run(tmp_path)
    run.finish("interrupted")
    run.log_step(1)
    run.log_epoch(1, global_step=1)
    run.finish("failed")
    assert [record["status"] for record in journal(tmp_path)] == ["interrupted"]
    warning = f"warning: {tmp_path}/metrics.jsonl: a record was not written: it is closed\n"
    assert capfd.readouterr().err == warning


def test_runs_of_one_process_do_not_meet(tmp_path: Path) -> None:
    one, two = open_run(tmp_path / "one"), open_run(tmp_path / "two")
    with pytest.raises(RunBusyError):
        open_run(tmp_path / "one")
    one.log_step(1)
    two.log_step(1)
    one.finish()
    two.log_step(2)
    two.finish()
    assert one.run_id != two.run_id
    assert [record["event"] for record in journal(tmp_path / "one")] == ["step", "end"]
    assert [record["event"] for record in journal(tmp_path / "two")] == ["step", "step", "end"]


class OutOfRoom(Exception):
    """An error that knows its cause."""

    cause = "disk_full"


@pytest.mark.parametrize(
    ("raised", "end"),
    [
        (None, {"status": "complete"}),
        (SystemExit(0), {"status": "complete"}),
        (SystemExit(3), {"status": "failed", "error": "SystemExit: 3", "cause": "error"}),
        (KeyboardInterrupt(), {"status": "interrupted", "cause": "stopped"}),
        (ValueError("no data"), {"status": "failed", "error": "ValueError: no data", "cause": "error"}),
        (OutOfRoom("full"), {"status": "failed", "error": "OutOfRoom: full", "cause": "disk_full"}),
        (
            OSError(errno.ENOSPC, "full"),
            {"status": "failed", "error": f"OSError: [Errno {errno.ENOSPC}] full", "cause": "disk_full"},
        ),
    ],
)
def test_run_as_a_context_records_how_it_was_left(
    tmp_path: Path, raised: BaseException | None, end: Record
) -> None:
    expected = pytest.raises(type(raised)) if raised is not None else contextlib.nullcontext()
    with expected, open_run(tmp_path):
        if raised is not None:
            raise raised
    [record] = journal(tmp_path)
    assert without(record, "time") == {"event": "end", "seq": 1, "attempt": 1, **end}


def test_run_refuses_before_the_first_record_what_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused: list[tuple[type[MonitoringError], str, Path, dict[str, object]]] = [
        (RunDirectoryError, "/sys/run cannot be written: ", Path("/sys/run"), {}),
        (RunDirectoryError, "file/run cannot be written: not a directory", tmp_path / "file/run", {}),
        (UnknownFollower, "unknown tracker 'wand'", tmp_path / "run", {"wand": {}}),
        (UnknownFollower, "unknown tracker '../csv'", tmp_path / "run", {"../csv": {}}),
        (FollowerOptionsError, "wandb has no option 'team'", tmp_path / "run", {"wandb": {"team": "x"}}),
    ]
    for kind, message, directory, trackers in refused:
        with pytest.raises(kind) as caught:
            open_run(directory, trackers=trackers)
        assert message in str(caught.value)
        assert caught.value.hint
    assert not (tmp_path / "run").exists()


NEEDS_NOTHING = """
import sys
from pathlib import Path
import monitoring, monitoring.agent.follow
from monitoring import Run
with Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False) as run:
    run.log_step(1, train_loss=0.5, lr=float('nan'))
    import threading
    print(threading.active_count(), "thread")
print({"torch", "numpy", "trackio", "wandb", "tensorboard", "kharness"} & set(sys.modules) or "light")
"""


def test_run_needs_no_torch_no_tracker_and_no_thread(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-c", NEEDS_NOTHING, tmp_path / "run"]
    said = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True).stdout
    assert said == "1 thread\nlight\n"


WORKERS = """
import sys
from pathlib import Path
import torch
from monitoring import Run

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        run.log_step(index, from_worker=1)
        return index

if __name__ == "__main__":
    with Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False) as run:
        for step, batch in enumerate(torch.utils.data.DataLoader(Noisy(), num_workers=2), start=1):
            run.log_step(step, item=batch)
"""


def test_run_is_left_alone_by_data_loader_workers(tmp_path: Path, warm_torch: WarmPython) -> None:
    (tmp_path / "train.py").write_text(WORKERS)
    warm_torch.run([tmp_path / "train.py", tmp_path / "run"], timeout=600).check_returncode()
    steps = [(record.get("global_step"), record.get("item")) for record in journal(tmp_path / "run")]
    assert steps == [*((i + 1, i) for i in range(8)), (None, None)]


def test_steps_with_and_without_tensors_in_turns_are_all_numbers(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    given = [0.5, torch.tensor(0.25), torch.tensor(math.nan), 0.125, math.inf, torch.tensor(2.0), None, 1.0]
    for step, loss in enumerate(given, start=1):
        run.log_step(step, train_loss=loss, note="null")
    run.finish()

    steps = [record for record in journal(tmp_path) if record["event"] == "step"]
    assert [record["seq"] for record in steps] == list(range(1, 9))
    assert [record["train_loss"] for record in steps] == [0.5, 0.25, None, 0.125, None, 2.0, None, 1.0]
    assert [record.get("nonfinite") for record in steps] == [
        *(None, None, ["train_loss"], None, ["train_loss"]),
        *(None, None, None),
    ]


def test_at_is_when_a_record_was(results: Path) -> None:
    with Run(results / "at", name="at", project="p", config={}, agent=False) as run:
        run.log_step(1, at=1e9, train_loss=1.0)
        run.log_eval(1, at=1e9 + 0.5, split="val", val_loss=2.0)
        run.log_step(2, at="a word", train_loss=0.5)
    first, second, third = [record for record, _ in read_records(results / "at" / "metrics.jsonl")][:3]
    assert (first["time"], second["time"]) == (1e9, 1e9 + 0.5)
    assert "at" not in first
    assert "at" not in second
    assert third["at"] == "a word"
    assert float(str(third["time"])) > 1.7e9
