"""Reading a journal while it is written, and turning any value into JSON."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.journal.encoding.json_form import plain
from monitoring.journal.records import last_record, points, read_records


def test_read_records_skips_a_torn_last_line_and_gives_it_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"seq":1}\n{"seq":2}\n{"se')
    assert list(read_records(path)) == [({"seq": 1}, 10), ({"seq": 2}, 20)]
    with path.open("ab") as file:
        file.write(b'q":3}\n')
    assert list(read_records(path, 20)) == [({"seq": 3}, 30)]


def test_read_records_passes_over_a_line_that_a_power_loss_left(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"seq":1}\n\0\0\0\n17\n{"seq":3}\n')
    assert [record for record, _ in read_records(path)] == [{"seq": 1}, {"seq": 3}]


def test_read_records_of_a_journal_that_is_not_there_yet_gives_nothing(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "metrics.jsonl")) == []
    assert last_record(tmp_path / "metrics.jsonl") is None


@settings(deadline=None)
@given(length=st.integers(0, 200_000), torn=st.sampled_from([b"", b"{", b'{"seq":9']))
def test_last_record_is_found_behind_lines_of_any_length(
    tmp_path_factory: object, length: int, torn: bytes
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(b'{"seq":1,"text":"' + b"x" * length + b'"}\n{"seq":2}\n' + torn)
        assert last_record(path) == {"seq": 2}
        path.write_bytes(b'{"seq":1}\n{"seq":2,"text":"' + b"x" * length + b'"}\n' + torn)
        assert last_record(path) == {"seq": 2, "text": "x" * length}


def test_points_are_the_measured_numbers_and_nothing_else() -> None:
    envelope = {"time": 1.5, "seq": 7, "attempt": 1, "global_step": 3}
    measured = {"train_loss": 0.5, "epoch": 2, "nan_inf_detected": True, "lr": None, "split": "val", "x": [1]}
    assert points({"event": "step", **envelope, **measured}) == {
        "train_loss": 0.5,
        "epoch": 2,
        "nan_inf_detected": 1,
    }
    assert points({"event": "start", **envelope, "num_steps": 10}) == {}
    assert points({"event": "gap", **envelope, "lost": 10}) == {}


def test_plain_gives_every_value_a_json_form_or_names_it() -> None:
    opaque = object()
    record = {
        "number": 1.5,
        "decimal": Decimal("0.5"),
        "large": 2**70,
        "numpy": np.float32(0.25),
        "path": Path("a/b"),
        "surrogate": "a\udcff",
        "mapping": {1: Decimal("2"), "list": [opaque]},
        "complex": 1j,
        "opaque": opaque,
        "none": None,
    }
    assert plain(record) == {
        "number": 1.5,
        "decimal": 0.5,
        "large": float(2**70),
        "numpy": np.float32(0.25),
        "path": "a/b",
        "surrogate": "a\\udcff",
        "mapping": {"1": 2.0, "list": [None]},
        "complex": None,
        "opaque": None,
        "none": None,
        "unserializable": ["mapping", "complex", "opaque"],
    }


def test_plain_of_a_number_that_refuses_to_be_one_is_null() -> None:
    class Refuses:
        def __float__(self) -> float:
            raise ArithmeticError

    assert plain({"x": Refuses(), "nan": math.inf}) == {"x": None, "nan": math.inf, "unserializable": ["x"]}
