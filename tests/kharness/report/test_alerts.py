"""Alerts of runs as sentences, from the files that the agents leave: make, `make status` and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kharness.matrix.overview import look, status_lines
from kharness.matrix.selected_runs import find
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown
from kharness.report.writing.html import as_html
from monitoring.alert_sentences import alert_lines
from monitoring.journal.alerts import is_news
from monitoring.web.details import alerts_of
from monitoring.web.rows import alert_facts

from .conftest import Make, written_json


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
        "error: GPU 1 is lost (1 of 3 runs: b)",
        "warning: GPU 0 is hot (2 of 3 runs: a, b)",
        "note: the tracker came back (1 of 3 runs: a)",
    ]


def test_gap_that_a_full_disk_has_left_is_no_alert(tmp_path: Path) -> None:
    gap = json.dumps({"event": "gap", "time": 13.0, "seq": 2, "attempt": 1, "delayed": 3, "lost": 0})
    write(tmp_path, {"full": [alert(12.0, "warning", "csv: no space left on device"), gap]})
    assert alert_lines([tmp_path / "full"]) == ["warning: csv: no space left on device"]
    assert alert_facts(tmp_path / "full") == {
        "errors": 0,
        "warnings": 1,
        "alert": "csv: no space left on device",
    }
    assert [one["event"] for one in alerts_of(tmp_path / "full")] == ["alert"]
    assert not is_news(json.loads(gap))


def test_a_process_that_died_is_no_matter_once_another_attempt_is_complete(tmp_path: Path) -> None:
    gone = alert(12.0, "error", "the training process is gone", rule="trainer")
    write(tmp_path, {"retried": [gone], "given-up": [gone]})
    ends = {"retried": [None, "complete"], "given-up": ["complete", None]}
    for name, statuses in ends.items():
        records = [{"event": "end", "status": status} if status else {"event": "step"} for status in statuses]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    retried, given_up = tmp_path / "retried", tmp_path / "given-up"
    assert alert_lines([retried]) == []
    assert alert_lines([given_up, retried]) == [
        "error: trainer: the training process is gone (1 of 2 runs: given-up)"
    ]


def write(folder: Path, alerts: dict[str, list[str]]) -> None:
    for name, lines in alerts.items():
        (folder / name).mkdir()
        (folder / name / "alerts.jsonl").write_text("".join(f"{line}\n" for line in lines))


SPIKE = "the training loss is more than 8 standard deviations above its median"


def spike(step: int) -> str:
    fields = {"rule": "loss_spike", "state": "firing", "global_step": step, "condition": SPIKE}
    return alert(float(step), "warning", f"{SPIKE}: 7.5 at step {step}, limit 0.5", **fields)


def test_every_reader_prints_the_same_sentence(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2", "3"]})
    for seed in "123":
        made.add({"SEED": seed}, make.training([2.0, 1.0], [0.5]))
    for name, steps in (("seed-1", [30, 60]), ("seed-3", [20])):
        (made.directory / name / "alerts.jsonl").write_text("".join(f"{spike(step)}\n" for step in steps))
    line = f"warning: loss_spike: {SPIKE} (2 of 3 runs: seed-1 at step 30, seed-3 at step 20)"
    summary = collect(made.directory)
    assert alert_lines(summary.run_directories) == [line]
    assert f"  {line}" in status_lines(look(find(made.directory, tmp_path)), "m")
    assert f"## Alerts\n\n- {line}" in as_markdown(summary)
    assert f"<li>{line}</li>" in as_html(summary)
    told: Any = written_json(summary)["alerts"]
    assert [(it["run"], it["rule"], it["global_step"]) for it in told] == [
        ("seed-1", "loss_spike", 30),
        ("seed-1", "loss_spike", 60),
        ("seed-3", "loss_spike", 20),
    ]


def test_alert_of_a_single_run_has_its_value(tmp_path: Path) -> None:
    write(tmp_path, {"run": [spike(30)]})
    assert alert_lines([tmp_path / "run"]) == [f"warning: loss_spike: {SPIKE}: 7.5 at step 30, limit 0.5"]


def test_report_without_alerts_has_no_such_part(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1"]})
    made.add({"SEED": "1"}, make.training([2.0, 1.0], [0.5]))
    summary = collect(made.directory)
    assert "Alerts" not in as_markdown(summary) + as_html(summary)
    assert written_json(summary)["alerts"] == []
