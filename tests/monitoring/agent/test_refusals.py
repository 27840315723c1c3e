"""A batch with records that a sink refuses: these alone are put aside, wherever they stand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.agent.refused_records import deliver_apart, is_refusal, reason_of
from monitoring.errors import MissingPackage
from monitoring.journal.records import Record


class Sink:
    """Takes whole batches, or refuses them for one of some records; it may go down at a delivery."""

    def __init__(self, refused: set[int], *, down_at: int = -1) -> None:
        self.refused = refused
        self.down_at = down_at
        self.taken: list[int] = []
        self.calls = 0

    def deliver(self, records: Sequence[Record]) -> None:
        self.calls += 1
        if self.calls == self.down_at:
            raise OSError(28, "No space left on device")
        seqs = [int(str(record["seq"])) for record in records]
        if self.refused.intersection(seqs):
            raise OverflowError("too large")
        self.taken += seqs


class Told:
    """The seqs of what was put aside."""

    def __init__(self) -> None:
        self.aside: list[object] = []

    def __call__(self, record: Record, error: Exception) -> None:
        self.aside.append(record["seq"])


def steps(count: int) -> list[Record]:
    return [{"event": "step", "seq": seq, "global_step": seq, "loss": 0.5} for seq in range(1, count + 1)]


@given(count=st.integers(1, 40), refused=st.sets(st.integers(1, 40)))
def test_every_other_record_is_taken_once_and_in_order(count: int, refused: set[int]) -> None:
    sink, told = Sink(refused), Told()
    seqs = list(range(1, count + 1))
    if refused.issuperset(seqs):
        with pytest.raises(OverflowError):
            deliver_apart(sink.deliver, steps(count), told)
        assert (sink.taken, told.aside) == ([], [])
        return
    deliver_apart(sink.deliver, steps(count), told)
    assert sink.taken == [seq for seq in seqs if seq not in refused]
    assert told.aside == [seq for seq in seqs if seq in refused]


def test_one_refused_record_of_a_thousand_costs_few_deliveries() -> None:
    sink = Sink({777})
    deliver_apart(sink.deliver, steps(1000), lambda record, error: None)
    assert sink.calls <= 22  # two for each halving of 1000


def test_records_without_points_say_nothing_for_a_sink_that_refuses_all_others() -> None:
    sink, told = Sink({2, 3}), Told()
    records: list[Record] = [{"event": "start", "seq": 1}, *steps(3)[1:]]
    with pytest.raises(OverflowError):
        deliver_apart(sink.deliver, records, told)
    assert told.aside == []


def test_sink_that_goes_down_meanwhile_is_no_refusal() -> None:
    """Records refused before are put aside once the sink has accepted another one."""
    for down_at in range(1, 12):
        sink, told = Sink({3}, down_at=down_at), Told()
        with pytest.raises(OSError, match="No space"):
            deliver_apart(sink.deliver, steps(40), told)
        assert 3 not in sink.taken
        assert sink.taken == [seq for seq in range(1, 41) if seq != 3][: len(sink.taken)]
        assert told.aside == ([3] if sink.taken and down_at > 7 else [])


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (ValueError("x"), True),
        (OverflowError("x"), True),
        (KeyError("aggregate_stats"), True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), True),
        (ConnectionResetError("x"), False),
        (TimeoutError("x"), False),
        (MissingPackage("x"), False),
        (MemoryError(), False),
    ],
)
def test_what_a_record_holds_is_told_from_a_sink_that_is_down(error: Exception, refusal: bool) -> None:
    assert is_refusal(error) is refusal


def test_reason_names_the_record_and_why() -> None:
    [record] = steps(1)
    assert reason_of(record, OverflowError("too large")) == (
        "record 1 (step at step 1): OverflowError: too large"
    )
    assert reason_of({"event": "end", "seq": 9}, KeyError("x")) == "record 9 (end): KeyError: 'x'"
