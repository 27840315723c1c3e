"""Nothing that a training logs raises: any value, under any name, with any step."""

from __future__ import annotations

import functools
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring import Record, Run

ENVELOPE = ("event", "time", "seq", "attempt", "global_step", "cpu_mem_rss_mb", "nan_inf_detected")


def open_run(directory: Path) -> Run:
    return Run(directory, name="n", project="p", config={}, agent=False)


def strict(directory: Path, after: int = 0) -> list[Record]:
    """The journal by the standard library's parser, which is told to take neither NaN nor a name twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names), names
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content = (directory / "metrics.jsonl").read_bytes()
    assert content.endswith(b"\n")
    return [
        json.loads(line, object_pairs_hook=once, parse_constant=refuse)
        for line in content.decode().split("\n")[after:-1]
    ]


class Hostile:
    """An object whose every method raises."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)

    def fail(self, *given: object) -> Any:
        raise LookupError("no")

    __repr__ = __str__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = fail
    __hash__ = object.__hash__
    __eq__ = __fspath__ = __getitem__ = __call__ = __array__ = fail


class Endless(Mapping[str, object]):
    """A mapping that makes up ever more of itself."""

    def __getitem__(self, key: str) -> object:
        return Endless()

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


def circular() -> list[object]:
    parts: list[object] = [1.0]
    parts.append({"again": parts})
    return parts


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


# By name, because pytest looks at parameters.
LOST: dict[str, object] = {
    "object": object(),
    "hostile": Hostile(),
    "complex": 1j,
    "numpy complex": np.complex64(1j),
    "numpy complex array": np.array([1j]),
    "complex tensor": torch.tensor(1j),
    "bytes": b"1.5",
    "beyond any float": 10**400,
    "meta tensor": torch.empty((), device="meta"),
    "tensor": torch.ones(2),
    "error": Exception("x"),
    "not a time": np.datetime64("NaT"),
}

PARTLY: dict[str, object] = {
    "circular": circular(),
    "deep": deep(300),
    "in a list": [Hostile()],
    "in a dict": {"a": 1j},
    "a key": {Hostile(): object()},
    "in an array": np.array([object()]),
}


@pytest.mark.parametrize("name", [*LOST, *PARTLY])
def test_what_has_no_json_form_is_named_and_the_other_fields_stay(tmp_path: Path, name: str) -> None:
    lost = {**LOST, **PARTLY}[name]
    with open_run(tmp_path) as run, warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log_step(1, a=0.5, lost=lost, b=[1, None], c=np.float32(0.25), d="null")
        run.log_eval(1, split="val", lost=lost, val_loss=0.5)
        run.finish(lost=lost, test_loss=0.5)
    step, evaluation, end = strict(tmp_path)
    assert {key: step[key] for key in ("seq", "global_step", "a", "b", "c", "d", "unserializable")} == {
        "seq": 1,
        "global_step": 1,
        "a": 0.5,
        "b": [1, None],
        "c": 0.25,
        "d": "null",
        "unserializable": ["lost"],
    }
    assert [record["seq"] for record in (evaluation, end)] == [2, 3]
    assert (end["status"], end["test_loss"], end["unserializable"]) == ("complete", 0.5, ["lost"])
    if name in LOST:
        assert (step["lost"], evaluation["lost"], end["lost"]) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.arange(6.0).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
        (np.arange(6)[::2], [0, 2, 4]),
        (np.array([1.5, 2.5], dtype=">f4"), [1.5, 2.5]),
        (np.array(1.5, dtype=">f8"), 1.5),
        (np.array([[1, 2]], dtype=">i2"), [[1, 2]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.longdouble(0.5), 0.5),
        (np.ma.array([1.0, 2.0], mask=[False, True]), [1.0, None]),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (["a\udc80", {"b\ud800": 1}], ["a\\udc80", {"b\\ud800": 1}]),
        ({1: "a", "1": "b"}, {"1": "a", "1_": "b"}),
        (deep(250), deep(250)),
    ],
    ids=str,
)
def test_what_has_a_json_form_keeps_its_values(tmp_path: Path, value: object, written: object) -> None:
    with open_run(tmp_path) as run:
        run.log_step(1, value=value)
    step = strict(tmp_path)[0]
    assert {key: step[key] for key in step if key not in ENVELOPE} == {"value": written}


def test_values_that_never_end_are_cut(tmp_path: Path) -> None:
    both: list[object] = []
    both += [both, both]
    with open_run(tmp_path) as run:
        run.log_step(1, endless=Endless(), both=both, a=1)
    assert (strict(tmp_path)[0]["a"], strict(tmp_path)[0]["unserializable"]) == (1, ["endless", "both"])


@pytest.mark.parametrize(
    ("metrics", "written"),
    [
        (
            {"a" + chr(0xDC80): 1, "a" + chr(0xDC81): 2, r"a\udc80": 3},
            {r"a\udc80_": 1, r"a\udc81": 2, r"a\udc80": 3},
        ),
        ({"time": 1, "time_": 2, "time__": 3}, {"time___": 1, "time_": 2, "time__": 3}),
        ({"global_step": 5}, {"global_step_": 5}),
        (
            {"nonfinite": 1, "unserializable": 2, "x": math.nan, "y": 1j},
            {
                "nonfinite_": 1,
                "unserializable_": 2,
                "x": None,
                "y": None,
                "nonfinite": ["x"],
                "unserializable": ["y"],
            },
        ),
    ],
)
def test_no_name_takes_the_place_of_another(
    tmp_path: Path, metrics: dict[str, object], written: Record
) -> None:
    with open_run(tmp_path) as run:
        run.log_step(1, **metrics)
        run.finish(global_step=7)
    step, end = strict(tmp_path)
    assert {key: step[key] for key in step if key not in ENVELOPE} == written
    assert ("global_step" in end, end["global_step_"]) == (False, 7)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no")

    @property
    def cause(self) -> str:
        raise LookupError("no")


def test_error_that_cannot_be_shown_still_ends_the_run(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.start(model=Hostile(), training=Hostile())  # type: ignore[arg-type]
    with pytest.raises(Unspeakable), run:
        raise Unspeakable
    start, end = strict(tmp_path)
    assert (start["event"], start["unserializable"]) == ("start", ["training", "model"])
    assert (end["status"], end["error"], end["cause"]) == ("failed", "Unspeakable", "error")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
# Hypothesis itself looks into what it makes, so the hostile one is not for it.
ODD = {
    name: value for name, value in {**LOST, **PARTLY}.items() if name not in ("hostile", "in a list", "a key")
}
ANY = st.recursive(
    JSON
    | st.sampled_from(sorted(ODD)).map(lambda name: ODD[name])
    | st.sampled_from([np.arange(4)[::2], np.array([1.0], ">f8"), Path("x"), type, math])
    | st.complex_numbers()
    | st.decimals()
    | st.integers()
    | st.binary()
    | st.datetimes()
    | st.text(st.characters(), max_size=5),
    lambda parts: st.tuples(parts) | st.lists(parts, max_size=3) | st.frozensets(st.text(), max_size=2),
    max_leaves=6,
)
NAMES = st.text(st.characters(), max_size=4) | st.sampled_from(
    [*ENVELOPE, "time_", "nonfinite", "refused_step"]
)
STEPS = st.integers() | st.floats() | ANY


def test_any_record_is_one_strict_line_with_its_other_fields(tmp_path: Path) -> None:
    run = open_run(tmp_path)

    @settings(deadline=None, max_examples=200)
    @given(metrics=st.dictionaries(NAMES, ANY, max_size=4), step=STEPS, kept=JSON)
    def check(metrics: dict[str, object], step: Any, kept: object) -> None:
        metrics.pop("nan_inf_detected", None)  # ours, if a value is not finite
        before = run.last_seq()
        run.log_step(step, **{**metrics, "kept value": kept})
        run.log_checkpoint(step, checkpoint_path=step, **{**metrics, "kept value": kept})
        metrics.pop("global_step", None)
        run.log_epoch(step, global_step=step, **{**metrics, "kept value": kept})
        records = strict(tmp_path, before)
        assert [(record["event"], record["seq"]) for record in records] == [
            *(("step", before + 1), ("checkpoint", before + 2), ("epoch", before + 3))
        ]
        for record in records:
            assert record["kept value"] == _nulled(kept)
            assert isinstance(record.get("global_step", 0), int)
            assert "global_step" in record or "refused_step" in record

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy and decimal, at what is made up
        check()
    run.finish()


@settings(deadline=None, max_examples=20)
@given(metrics=st.dictionaries(NAMES, ANY, max_size=4), status=ANY)
def test_end_record_is_written_whatever_is_in_it(metrics: dict[str, object], status: Any) -> None:
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = open_run(Path(folder))
        run.finish(status, **{**metrics, "kept value": 1})
        [end] = strict(Path(folder))
    assert (end["event"], end["seq"], end["kept value"], "status" in end) == ("end", 1, 1, True)


def _nulled(value: object) -> object:
    """The JSON value with null for NaN and infinities, as strict JSON has it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_nulled(part) for part in value]
    return {key: _nulled(part) for key, part in value.items()} if isinstance(value, dict) else value


def test_several_elements_are_another_error_before_torch_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch 1.13 says "only one element tensors can be converted" by a ValueError, without a frame of Python
    monkeypatch.setattr(torch.Tensor, "item", staticmethod(functools.partial(int, "several")))
    with open_run(tmp_path) as run:
        run.log(several=torch.ones(2), loss=0.5)
    (step,) = [record for record in strict(tmp_path) if record["event"] == "step"]
    assert (step["loss"], step["several"], step["unserializable"]) == (0.5, None, ["several"])
