"""A JSON file of another shape than its reader relies on is named in one line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from monitoring.errors import RunDirectoryError
from monitoring.journal.encoding.json_shape import NUMBER, TEXT_OR_NULL, _faults, _surely_fits
from monitoring.journal.run_json import read_run_json

TRACKING: dict[str, object] = {"project": "p", "name": "n", "group": None, "trackers": {"csv": {}}}
WHOLE = {
    "run_id": "a",
    "tracking": TRACKING,
    "config": {},
    "attempts": [{"attempt": 1}],
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tracking": []}, "tracking is a list, not an object"),
        ({"tracking": {"project": "p"}}, "tracking.name is missing"),
        ({"tracking": {**TRACKING, "trackers": []}}, "tracking.trackers is a list, not an object"),
        (
            {"tracking": {**TRACKING, "trackers": {"x": 1}}},
            "tracking.trackers.x is an integer, not an object",
        ),
        ({"tracking": {**TRACKING, "group": 1.5}}, "tracking.group is a number, not a text or null"),
        ({"attempts": {}}, "attempts is an object, not a list"),
        ({"attempts": []}, "attempts is empty"),
        ({"attempts": [None]}, "attempts[0] is null, not an object"),
        ({"attempts": [{"attempt": True}]}, "attempts[0].attempt is true or false, not an integer"),
        ({"config": "x"}, "config is a text, not an object"),
    ],
)
def test_a_run_json_of_another_shape_is_refused(
    tmp_path: Path, change: dict[str, object], fault: str
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({**WHOLE, **change}))
    with pytest.raises(RunDirectoryError) as caught:
        read_run_json(tmp_path)
    assert str(caught.value) == f"{tmp_path}/run.json does not describe a run: {fault}"
    assert caught.value.hint == "it is damaged, or not what a training wrote"


@pytest.mark.parametrize("text", ["[]", "5", "null", "{}"])
def test_what_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunDirectoryError, match="does not describe a run"):
        read_run_json(tmp_path)


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(WHOLE))
    assert read_run_json(tmp_path) == WHOLE


def test_what_surely_fits_has_no_fault() -> None:
    values = [None, True, 1, 1.5, "x", [], [1], ["x", 2], {}, {"a": 1}, {"a": "x", "b": None}, {"b": [1]}]
    leaves = [int, str, dict, NUMBER, TEXT_OR_NULL, ({"a": int}, type(None))]
    shapes = [*leaves, *([leaf] for leaf in leaves), *({"*": leaf} for leaf in leaves)]
    shapes += [{"a": one, "b?": other} for one, other in itertools.product(leaves, leaves)]
    nested = [{"a": value, "b": [value, other]} for value, other in itertools.product(values, values)]
    shapes += [{"a": one, "b?": [other]} for one, other in itertools.product(leaves, leaves)]
    found = {
        (_surely_fits(content, shape), not any(_faults(content, shape, "")))
        for content, shape in itertools.product([*values, *nested], shapes)
    }
    assert found == {(True, True), (False, False)}
