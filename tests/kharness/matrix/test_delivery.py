"""What is told of the agents' alerts at the end of a matrix, from the files that they leave."""

from __future__ import annotations

import json
from pathlib import Path

from kharness.matrix.delivery import alert_lines


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
    for name, lines in alerts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "alerts.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert alert_lines([tmp_path / name for name in alerts], since=10.0) == [
        "error: GPU 1 is lost (1 of 3 runs)",
        "warning: GPU 0 is hot (2 of 3 runs)",
        "info: the tracker came back (1 of 3 runs)",
    ]
