"""The dashboard shows a run from its files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from monitoring import Record, Run
from monitoring.journal.alerts import Alerts
from monitoring.terminal.app import Dashboard
from monitoring.terminal.panels.run_panel import RunPanel, _line
from monitoring.terminal.run_view import RunView

from .test_app import SMALL, look


@pytest.fixture
def run(run_dir: Path) -> Path:
    with Run(run_dir, name="n", project="p", config={}, agent=False):
        return run_dir


def test_alert_ends_when_its_subject_is_well_again(run: Path) -> None:
    view, alerts = RunView(run), Alerts(run)
    shown = []
    for rule, severity, subject in (
        ("gpu_lost", "error", "GPU-1"),
        ("gpu_error", "error", "GPU-2"),
        ("gpu_back", "info", "GPU-2"),
        ("gpu_xid", "error", "GPU-2"),
        ("gpu_back", "info", "GPU-1"),
        ("gpu_monitor", "warning", None),
        ("gpu_monitor", "info", None),
    ):
        alerts.add(rule, severity, f"{rule} {subject}", subject=subject)  # type: ignore[arg-type]
        view.look()
        shown.append(view.alert)
    alerts.close()
    lost, error, xid = "gpu_lost GPU-1", "gpu_error GPU-2", "gpu_xid GPU-2"
    assert shown == [lost, error, lost, xid, xid, "gpu_monitor None", xid]


def test_alerts_of_single_gpus_end_when_all_answer_again(run: Path) -> None:
    alerts = Alerts(run)
    for subject in ("GPU-1", "GPU-2", None):
        alerts.add("gpu_error", "error", "cannot be read", subject=subject)
    alerts.add("gpu_back", "info", "all 2 GPUs answer again", subject=None)
    alerts.close()
    view = RunView(run)
    view.look()
    assert view.alert is None


def test_rule_that_is_resolved_fires_no_longer(run: Path) -> None:
    view, alerts = RunView(run), Alerts(run)
    alerts.add("loss_plateau", "warning", "no progress", state="firing", subject=None)
    view.look()
    assert view.alert == "no progress"
    alerts.add("loss_plateau", "info", "no longer: no progress", state="resolved", subject=None)
    alerts.close()
    view.look()
    assert view.alert is None


def test_graphs_of_a_long_run_go_back_to_its_beginning(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a resume, of which the steps that were done again are shown once."""
    monkeypatch.setattr("monitoring.terminal.run_view.LAST_BYTES", 200_000)
    monkeypatch.setattr("monitoring.terminal.run_view.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("monitoring.journal.series.journals.LONG", 200_000)
    journal = run / "metrics.jsonl"
    steps = [*range(1, 3001), *range(2001, 9001)]
    with journal.open("ab") as file:
        for seq, step in enumerate(steps, 100):
            if seq == 3100:
                gone = {"first_seq": 2100, "last_seq": 3099}
                again: Record = {"event": "start", "seq": seq, "attempt": 2, "supersedes": gone}
                file.write(orjson.dumps({**again, "time": 1.0}, option=orjson.OPT_APPEND_NEWLINE))
            place = {"event": "step", "time": 1.0 + seq, "seq": seq, "attempt": 1, "global_step": step}
            file.write(orjson.dumps({**place, "train_loss": 9000.0 - step}, option=orjson.OPT_APPEND_NEWLINE))
    view = RunView(run)
    view.look()
    found = view.window("train_loss")
    assert found.coarse
    shown = [*map(int, found.x)]
    assert (shown[0], found.x_last[-1], shown) == (1, 9000, sorted(set(shown)))
    assert max(later - step for step, later in pairwise(shown)) < 200
    assert [(x, loss) for x, loss in zip(found.x, found.max, strict=True) if loss != 9000.0 - x] == []
    while view.window("train_loss").coarse:
        view.look()
    assert sum(view.window("train_loss").count) == 9000
    assert [line["step"] for line in view.training_lines()][-3:] == [8998, 8999, 9000]


def test_columns_of_a_long_run_are_of_steps_and_not_of_records(run: Path) -> None:
    """Records each step at first and each tenth later: a straight line stays straight."""
    steps = [*range(1, 101), *range(110, 401, 10)]
    with (run / "metrics.jsonl").open("ab") as file:
        for step in steps:
            place = {"event": "step", "time": 1.0, "seq": step, "attempt": 1, "global_step": step}
            file.write(orjson.dumps({**place, "train_loss": step}, option=orjson.OPT_APPEND_NEWLINE))
    view = RunView(run)
    view.look()
    panel = RunPanel(view, 0.0, 84)
    shown = panel._by_step(*_line(view.window("train_loss")))
    known = [value for value in shown if value is not None]
    assert [place for place, (one, other) in enumerate(pairwise(known)) if not 5 <= other - one <= 16] == []
    assert "".join(span.text for span in panel.axis()).split()[:4] == ["1", "201", "step", "400"]


@pytest.mark.parametrize(
    ("metrics", "heading"),
    [
        ({"epoch": 1.0}, "samples/s"),
        ({"epoch": 1.0, "lr": 0.5}, "lr 0.5 (0.5–0.5)"),
        ({"lr": 0.5, "val_f1": 0.75, "val_loss": 0.25}, "val_loss 0.25 (0.25–0.25)"),
    ],
)
def test_a_run_without_throughput_shows_what_it_has(
    tmp_path: Path, metrics: dict[str, float], heading: str
) -> None:
    with Run(tmp_path / "own", agent=False) as own:
        own.log(metrics | {"loss": 2.0}, step=1)
    [line] = [line for line in look(Dashboard(run=own.directory), SMALL) if line.startswith(" loss ")]
    assert line[40:].strip() == heading
