"""What is told of the agents' alerts at the end of a matrix, from the files that they leave."""

from __future__ import annotations

import json
from pathlib import Path

from kharness.matrix.running.delivery import alert_lines


def alert(time: float, severity: str, message: str, **fields: object) -> str:
    return json.dumps({"event": "alert", "time": time, "severity": severity, "message": message, **fields})


def test_alerts_are_told_once_in_the_order_of_time_and_only_while_they_hold(tmp_path: Path) -> None:
    alerts = {
        "a": [
            alert(1.0, "warning", "of an attempt before"),
            alert(12.0, "warning", "GPU 0 is hot", state="firing"),
            alert(13.0, "info", "no longer: GPU 0 is hot", state="resolved"),
            alert(14.0, "info", "the tracker came back"),
        ],
        "b": [
            alert(11.0, "error", "GPU 1 is lost", state="firing"),
            alert(15.0, "warning", "GPU 0 is hot", state="firing"),
        ],
        "c": [],
    }
    write(tmp_path, alerts)
    assert alert_lines([tmp_path / name for name in alerts], since=10.0) == [
        "error: GPU 1 is lost (1 of 3 runs)",
        "warning: GPU 0 is hot (2 of 3 runs)",
        "info: the tracker came back (1 of 3 runs)",
    ]


def test_a_process_that_died_is_no_matter_once_another_attempt_is_complete(tmp_path: Path) -> None:
    gone = alert(12.0, "error", "the training process is gone", rule="trainer")
    write(tmp_path, {"retried": [gone], "given-up": [gone]})
    ends = {"retried": [None, "complete"], "given-up": ["complete", None]}
    for name, statuses in ends.items():
        records = [{"event": "end", "status": status} if status else {"event": "step"} for status in statuses]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    retried, given_up = tmp_path / "retried", tmp_path / "given-up"
    assert alert_lines([retried]) == []
    assert alert_lines([given_up, retried]) == ["error: the training process is gone (1 of 2 runs)"]


def write(folder: Path, alerts: dict[str, list[str]]) -> None:
    for name, lines in alerts.items():
        (folder / name).mkdir()
        (folder / name / "alerts.jsonl").write_text("".join(f"{line}\n" for line in lines))
