"""The language that selects runs: what it selects, what it refuses, and that it only compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.where import WhereError, field_name, parse_where

RUNS: dict[str, dict[str, object]] = {
    "lenet-sgd-1": {"status": "complete", "optimizer": "sgd", "learning_rate": 0.05, "amp": False,
                    "val_loss": 0.3},
    "lenet-adamw-1": {"status": "running", "optimizer": "adamw", "learning_rate": 3e-3, "amp": True,
                      "val_loss": 0.2},
    "gpt2-adamw-2": {"status": "failed", "optimizer": "adamw", "learning_rate": 6e-4, "seed": "0012"},
}  # fmt: skip


def selected(text: str) -> list[str]:
    where = parse_where(text)

    def matches(name: str) -> bool:
        run = {"name": name, **RUNS[name]}
        return where(run.get)

    return [name for name in RUNS if matches(name)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [*RUNS]),
        ("adamw", ["lenet-adamw-1", "gpt2-adamw-2"]),
        ("ADAMW status=running", ["lenet-adamw-1"]),
        ("optimizer=AdamW and val_loss<0.25", ["lenet-adamw-1"]),
        ("learning_rate>=3e-3", ["lenet-sgd-1", "lenet-adamw-1"]),
        ("learning_rate=0.0006", ["gpt2-adamw-2"]),
        ("CONFIG_OPTIMIZER==sgd or status=failed", ["lenet-sgd-1", "gpt2-adamw-2"]),
        ("not optimizer=sgd", ["lenet-adamw-1", "gpt2-adamw-2"]),
        ("not (gpt2 or status=running)", ["lenet-sgd-1"]),
        ("status!=complete val_loss>0", ["lenet-adamw-1"]),
        ("amp=y", ["lenet-adamw-1"]),
        ("amp=false", ["lenet-sgd-1"]),
        ("name~'net-a'", ["lenet-adamw-1"]),
        ("name!~lenet", ["gpt2-adamw-2"]),
        ("seed=12", ["gpt2-adamw-2"]),
        ("status = failed", ["gpt2-adamw-2"]),
        ("optimizer<1", []),
        ("sgd or adamw and status=failed", ["lenet-sgd-1", "gpt2-adamw-2"]),
    ],
)
def test_selects(text: str, expected: list[str]) -> None:
    assert selected(text) == expected


@pytest.mark.parametrize(
    "field", ["val_loss<1", "val_loss>=0", "val_loss!=7", "val_loss=0.3", "val_loss~0", "val_loss!~x"]
)
def test_what_a_run_does_not_have_fulfills_no_condition(field: str) -> None:
    assert "gpt2-adamw-2" not in selected(field)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr<", "a value after < is missing at the end"),
        ("lr<)", "no value stands after lr<"),
        ("(a or b", "a bracket is not closed"),
        ("a )", "unexpected )"),
        ("a and", "a condition is missing at the end"),
        ("<3", "< stands where a name should"),
        ("name='x", "'x has no end quote"),
        ("(" * 60 + "a" + ")" * 60, "more than 50 brackets stand in each other"),
        ("x" * 3000, "the condition has more than 2000 characters"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(WhereError) as caught:
        parse_where(text)
    assert caught.value.message == message
    assert caught.value.hint or "brackets" in message or "characters" in message


def test_a_field_that_no_run_has_is_told_with_the_nearest() -> None:
    where = parse_where("optimzer=sgd")
    known = {field_name(name) for run in RUNS.values() for name in run}
    with pytest.raises(WhereError) as caught:
        where.check(known)
    assert (caught.value.message, caught.value.hint) == ("no run has optimzer", "did you mean optimizer?")


@given(st.text(max_size=60))
def test_any_text_selects_or_is_refused_with_a_sentence(text: str) -> None:
    try:
        found = selected(text)
    except WhereError as error:
        found = list(RUNS) if error.message else [text]
    assert set(found) <= set(RUNS)
