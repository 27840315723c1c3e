"""Files of a matrix whose JSON is of another shape: what is read is read, and the rest is one clear error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kharness.matrix.overview import look, status_lines
from kharness.matrix.selected_runs import find
from kharness.report.summary import collect
from kharness.report.writing.files import FILES as REPORT_FILES
from monitoring.errors import UserError, error_lines

from .conftest import MatrixDirectory, training

RUN_JSON = {
    "run_id": "r",
    "tracking": {"project": "p", "name": "n", "group": None, "trackers": {"csv": {}}},
    "config": {},
    "attempts": [{"attempt": 1, "host": "h", "pid": 7, "started": 1000.0, "command": "train", "boot": "b"}],
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(2**70),
    st.floats(),
    st.text(max_size=5),
    st.just("\ud800"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants with a seed each, of which one failed."""
    directory = tmp_path_factory.mktemp("foreign") / "test_matrix_x"
    matrix = MatrixDirectory(directory, {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1"]})
    matrix.add({"OPTIMIZER": "sgd", "SEED": "1"}, training([2.0, 1.0], [0.5], 0.5))
    failed = training([3.0, None], [])
    matrix.add({"OPTIMIZER": "adam", "SEED": "1"}, failed, status="failed", reason="exit code 1")
    for run in directory.glob("optimizer-*"):
        (run / "run.json").write_text(json.dumps(RUN_JSON))
    return directory


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within, the outermost first."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any, *, gone: bool) -> Any:
    """A copy with another value there, or without it."""
    if not at:
        return new
    found = copy.deepcopy(value)
    inner = found
    for key in at[:-1]:
        inner = inner[key]
    if gone:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return found


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def show_status(directory: Path) -> list[str]:
    return status_lines(look(find(directory, directory.parent)), "m")


def summarize(directory: Path) -> list[str]:
    summary = collect(directory)
    return [name for name, make in REPORT_FILES.items() if make(summary)]


def answer_of(read: Callable[[Path], list[str]], directory: Path) -> tuple[list[str], list[str]]:
    """Lines that a reader returns, or the lines of its error."""
    try:
        return read(directory), []
    except UserError as error:
        return [], error_lines(error, error.hint)


FILES = (
    "matrix.json",
    *(f"optimizer-{it}_seed-1/{name}.json" for it in ("sgd", "adam") for name in ("status", "run")),
)
JOURNALS = ("optimizer-sgd_seed-1/metrics.jsonl", "optimizer-adam_seed-1/metrics.jsonl")


def test_the_files_as_they_are_can_be_read(made: Path) -> None:
    assert "1 complete, 1 failed" in "\n".join(show_status(made))
    assert summarize(made) == list(REPORT_FILES)


@pytest.mark.parametrize("at", list(places(RUN_JSON))[1:], ids=str)
def test_a_run_json_without_one_of_its_fields_is_read(made: Path, at: tuple[Any, ...]) -> None:
    path = made / "optimizer-adam_seed-1" / "run.json"
    path.write_text(json.dumps(changed(RUN_JSON, at, None, gone=True)))
    try:
        assert "1 complete, 1 failed" in "\n".join(show_status(made))
        assert summarize(made) == list(REPORT_FILES)
    finally:
        path.write_text(json.dumps(RUN_JSON))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_json_of_another_shape_is_read_or_refused(made: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*FILES, *JOURNALS]))
    path, new, gone = made / name, data.draw(VALUES), data.draw(st.booleans())
    before = path.read_text()
    is_journal = name in JOURNALS
    content = lines(path) if is_journal else json.loads(before)
    at = data.draw(st.sampled_from(list(places(content))[1 if is_journal else 0 :]))
    written = changed(content, at, new, gone=gone)
    texts = [json.dumps(record) for record in written] if is_journal else [json.dumps(written)]
    try:
        path.write_text("".join(f"{text}\n" for text in texts))
        for read in (show_status, summarize):
            answer, refusal = answer_of(read, made)
            assert answer or [len(line.splitlines()) for line in refusal] == [1] * len(refusal) != []
    finally:
        path.write_text(before)
