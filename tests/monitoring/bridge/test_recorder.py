"""When it is decided which of several sources a metric is recorded from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from monitoring.bridge.recorder import Followed, Recorder
from monitoring.bridge.source import Reported


class Records:
    """Keeps what is recorded: step, values, and who reported them."""

    def __init__(self) -> None:
        self.found: list[tuple[int | None, object, object]] = []

    def relay(self, event: str, global_step: int | None, at: float, fields: Mapping[str, object]) -> None:
        mark = fields["reported"]
        assert isinstance(mark, dict)
        self.found.append((global_step, fields["train_loss"], mark["by"]))


PRINTED = [(0, 0.25, "output")]


@pytest.mark.parametrize(
    ("richer", "is_expected", "early", "late"),
    [
        ([], False, 0.9, 1.0),  # it is alone
        ([], True, 4.9, 5.0),  # the file of another is not there yet
        ([7], False, 4.9, 5.0),  # another has reported something, if not this
        ([0], False, 29.9, 30.0),  # another is there and silent
        ([7, 0], False, 29.9, 30.0),
        ([0], True, 29.9, 30.0),
    ],
)
def test_a_printed_value_waits_for_a_richer_source(
    richer: Sequence[int], is_expected: bool, early: float, late: float
) -> None:
    """`richer` are how far W&B's logs have been read."""
    run = Records()
    recorder = Recorder(run, {}, lambda: is_expected)
    output = recorder.sources[0] = Followed(0, "output")
    for number, read_to in enumerate(richer, 1):
        recorder.sources[number] = Followed(number, "wandb", read_to=read_to)
    recorder.take(output, Reported({"loss": 0.25}, 20, 0), 100.0)
    assert recorder.waits
    recorder.record(100.0 + early)
    assert run.found == []
    recorder.record(100.0 + late)
    assert run.found == PRINTED
    assert not recorder.waits


def test_the_richer_source_counts_if_it_reports_meanwhile() -> None:
    run = Records()
    recorder = Recorder(run, {}, lambda: True)
    output = recorder.sources[0] = Followed(0, "output")
    tracker = recorder.sources[1] = Followed(1, "trackio")
    recorder.take(output, Reported({"loss": 0.25}, 20, 0), 100.0)
    recorder.record(104.0)
    recorder.take(tracker, Reported({"loss": 0.2512}, 1, 0), 104.5)
    recorder.record(106.0)
    assert run.found == [(0, 0.2512, "trackio")]
    assert output.left_out == {"loss": "trackio"}


def test_a_source_that_comes_later_doubles_nothing() -> None:
    run = Records()
    recorder = Recorder(run, {})
    output = recorder.sources[0] = Followed(0, "output")
    recorder.take(output, Reported({"loss": 0.25}, 20, 0), 100.0)
    recorder.record(101.0)
    tracker = recorder.sources[1] = Followed(1, "trackio")
    recorder.take(tracker, Reported({"loss": 0.2512}, 1, 0), 102.0)
    recorder.record(140.0, all_of_it=True)
    assert run.found == PRINTED
    assert tracker.left_out == {"loss": "output"}
