"""Checks that the content of a JSON file has the shape that its reader relies on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

Shape = object
"""A type or several of them; [shape] for a list of such; {"key": shape} for an object, where "key?" may be
missing, "*" stands for every key, and keys that are not named may hold anything. An object may be one of
several, too."""

NUMBER = (int, float)
TEXT_OR_NULL = (str, type(None))
NUMBER_OR_NULL = (int, float, type(None))
WHOLE_OR_NULL = (int, type(None))
OBJECT_OR_NULL = (dict, type(None))

_WORDS = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "an integer",
    list: "a list",
    str: "a text",
    type(None): "null",
}


def read_json(text: bytes) -> Any:
    """Return the content of a JSON file; ValueError if invalid, as are NaN, Infinity and lone surrogates."""
    return orjson.loads(text)


def json_lines(content: object) -> bytes:
    """Return the JSON of a dataclass, a mapping or a list as indented lines; NaN becomes null."""
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def check_shape(content: object, shape: Shape) -> None:
    """ValueError for the first place that has another shape: `tracking is a list, not an object`."""
    if not _surely_fits(content, shape):
        for fault in _faults(content, shape, ""):
            raise ValueError(fault)


def _surely_fits(content: object, shape: Shape) -> bool:
    """True for nearly all that fits, in a tenth of the time that it takes to find a fault's place."""
    # The type itself: isinstance would take True for a whole number.
    kind = type(content)
    if kind is shape:
        return True
    if isinstance(shape, tuple):
        return kind in shape or any(_surely_fits(content, one) for one in shape if isinstance(one, dict))
    if isinstance(shape, list):
        return isinstance(content, list) and _all_fit(content, shape[0])
    if not (isinstance(shape, dict) and isinstance(content, dict)):
        return False
    for key, inner in shape.items():
        if key == "*":
            if not _all_fit(content.values(), inner):
                return False
            continue
        name = key[:-1] if key[-1] == "?" else key
        if name not in content:
            if name == key:
                return False
        elif type(value := content[name]) is not inner and not _surely_fits(value, inner):
            return False
    return True


def _all_fit(values: Collection[object], shape: Shape) -> bool:
    if isinstance(shape, type):
        return {*map(type, values)} <= {shape}
    return all(_surely_fits(value, shape) for value in values)


def _faults(content: object, shape: Shape, at: str) -> Iterator[str]:
    if isinstance(shape, Mapping):
        if not isinstance(content, dict):
            yield _fault(content, (dict,), at)
            return
        for key, inner in shape.items():
            name = str(key).removesuffix("?")
            if name == "*":
                for each, value in content.items():
                    yield from _faults(value, inner, f"{at}.{each}")
            elif name in content:
                yield from _faults(content[name], inner, f"{at}.{name}")
            elif name == key:
                yield f"{at}.{name} is missing".lstrip(".")
    elif isinstance(shape, list):
        if not isinstance(content, list):
            yield _fault(content, (list,), at)
            return
        for index, value in enumerate(content):
            yield from _faults(value, shape[0], f"{at}[{index}]")
    else:
        several = shape if isinstance(shape, tuple) else (shape,)
        objects = [one for one in several if isinstance(one, Mapping)]
        if objects and isinstance(content, dict):
            yield from _faults(content, objects[0], at)
            return
        types = tuple(dict if isinstance(one, Mapping) else one for one in several)
        # true is no number, although Python's bool is an int
        if not isinstance(content, types) or (isinstance(content, bool) and bool not in types):
            yield _fault(content, types, at)


def _fault(content: object, types: tuple[type, ...], at: str) -> str:
    wanted = " or ".join(dict.fromkeys(_WORDS[one] for one in types if not (one is int and float in types)))
    return f"{at.lstrip('.') or 'it'} is {_WORDS[type(content)]}, not {wanted}"
