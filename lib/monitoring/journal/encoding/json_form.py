"""A JSON form for values of any kind, and the names of the fields that have lost something on the way.

JSON's own types, what orjson takes and numpy arrays of any layout keep their values. Other numbers become
floats, mappings, lists, tuples and sets are taken part by part. What is left (an opaque object, a complex
number, a tensor of several elements, a part that holds itself) is null.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import os
import sys
from collections.abc import Container, Iterable, Mapping
from typing import Any

import orjson

from monitoring.journal.encoding.tensors import host_number, is_tensor
from monitoring.journal.records import ENVELOPE, JSON_LINE, Record
from monitoring.journal.reentrant_queue import raised_by_handler

PYTHONS_OWN = frozenset((int, str, list, tuple, dict, set, frozenset))
"""Types without methods of anybody else; those of parts in them are called apart."""

# Parts that are nested deeper are null; orjson itself stops at 254.
MOST_DEPTH = 200

# Parts of one field, besides numbers and nulls, that are looked at: a mapping may make up ever new ones.
MOST_PARTS = 50_000


def plain(record: Mapping[str, object]) -> Record:
    """A copy of values that JSON knows; fields with a null that was something else are in `unserializable`.

    Never raises for a value, whatever its methods do. NaN and infinities stay. Names are text that UTF-8
    can hold, each once: a lone surrogate stands as its escape.
    """
    own = frozenset(key for key in record if type(key) is str and _is_encodable(key))
    result: Record = {}
    lost: list[str] = []
    for key, value in record.items():
        forms = _Forms()
        is_own = type(key) is str and key in own
        name = key if is_own else free_name(forms.name(key), own.union(result))
        result[name] = forms.of_field(value)
        if forms.is_lossy:
            lost.append(name)
    if lost:
        put(result, "unserializable", lost)
    return result


def strict_line(record: Record) -> bytes:
    """Return one line of strict JSON for any record; it names the values that were lost."""
    try:
        # A copy part by part takes ten times as long, and GPU samples, in which much is null, are many.
        try:
            line = orjson.dumps(record, option=JSON_LINE)
        except TypeError as error:
            if raised_by_handler(error):
                raise
            line = b""
        if line and _is_strict(record):
            return line
        form = plain(record)
        mark_nonfinite(form)
        return orjson.dumps(form, option=JSON_LINE)
    except (RecursionError, MemoryError) as error:
        if raised_by_handler(error):
            raise
        # hardly anything can be called: what kind of record, and which fields
        form = {key: record[key] for key in ENVELOPE if type(record.get(key)) in (str, int, float)}
        form["unserializable"] = [key for key in record if key not in ENVELOPE and _is_encodable(key)]
        return orjson.dumps(form, option=JSON_LINE)


def mark_nonfinite(record: Record) -> None:
    """Note in a record of JSON's types and numpy arrays which values are null as NaN or infinite."""
    names = [key for key, value in record.items() if _has_nonfinite(value)]
    if names:
        put(record, "nonfinite", names)
        record["nan_inf_detected"] = True


def put(record: Record, name: str, value: object) -> None:
    """Set a field; a caller's of the same name is kept under a free one, with `_` appended."""
    if name in record:
        record[free_name(name, record)] = record[name]
    record[name] = value


def free_name(name: str, taken: Container[str]) -> str:
    """Return the name, with as many `_` appended as make it unique."""
    while name in taken:
        name += "_"
    return name


def text(value: str) -> str:
    """Return text that UTF-8 can hold: lone surrogates, as in file names of other encodings, are escaped."""
    return str.encode(value, "utf-8", "backslashreplace").decode()


class _Forms:
    """The JSON forms of one field's parts."""

    def __init__(self) -> None:
        self.is_lossy = False
        self._left = MOST_PARTS
        self._above: set[int] = set()

    def of_field(self, value: object) -> object:
        """Return the form of a field; orjson's own, unless a null in it may stand for something lost."""
        if value is None or type(value) in (bool, int, float, str):
            return self.of(value)
        try:
            encoded = orjson.dumps(value, option=JSON_LINE)
            if b"null" not in encoded:
                return orjson.loads(encoded)
        except (TypeError, ValueError):
            pass
        return self.of(value)

    def of(self, value: object) -> object:
        """Return the form of a part and all below it; None, with `is_lossy` set, if it has none."""
        if value is None or type(value) in (bool, float):
            return value
        self._left -= 1
        is_new = id(value) not in self._above
        if self._left < 0 or not is_new or len(self._above) > MOST_DEPTH:
            return self._lost()
        try:
            self._above.add(id(value))
            return self._form(value)
        except Exception as error:
            # what is not one of Python's own types has methods of its own: its field is named
            if type(value) in PYTHONS_OWN and raised_by_handler(error):
                raise
            return self._lost()
        finally:
            self._above.discard(id(value))

    def name(self, key: object) -> str:
        """Return the text of a mapping's key, which may be anything."""
        try:
            return text(key) if isinstance(key, str) else text(str(key))
        except Exception:  # noqa: BLE001 - the key's own methods are called here; its value is kept
            return f"<{type(key).__name__}>"

    def _lost(self) -> object:
        self.is_lossy = True
        return None

    def _form(self, value: Any) -> object:
        kind = type(value)  # not `__class__`, which an object may define as it likes
        if issubclass(kind, enum.Enum):
            return self.of(value.value)
        if issubclass(kind, str):
            return text(value)
        if issubclass(kind, int):
            return _within_64_bits(int.__index__(value))
        if issubclass(kind, float):
            return float.__float__(value)
        if issubclass(kind, dict):
            return self._mapping(dict.items(value))
        for known in (list, tuple, set, frozenset):
            if issubclass(kind, known):
                return [self.of(part) for part in known.__iter__(value)]
        return self._rarer(value, kind)

    def _rarer(self, value: Any, kind: type[Any]) -> object:
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic)):
            return self._numpy_form(numpy, value)
        if is_tensor(value):
            number = host_number(value)
            return self._lost() if number is None else self.of(number)
        if dataclasses.is_dataclass(kind):
            shown = [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
            return self._mapping((name, getattr(value, name)) for name in shown)
        if issubclass(kind, os.PathLike):
            path = os.fspath(value)
            return text(path) if isinstance(path, str) else path.decode("utf-8", "backslashreplace")
        if issubclass(kind, Mapping):
            return self._mapping(value.items())
        if issubclass(kind, numbers.Complex) and not issubclass(kind, numbers.Real):
            return self._lost()
        if hasattr(kind, "__float__") or hasattr(kind, "__index__"):  # Decimal, Fraction …
            return float(value)
        return orjson.loads(orjson.dumps(value, option=JSON_LINE))  # dates, times, UUIDs

    def _mapping(self, items: Iterable[tuple[object, object]]) -> Record:
        result: Record = {}
        for key, part in items:
            result[free_name(self.name(key), result)] = self.of(part)
            if self._left < 0:
                break
        return result

    def _numpy_form(self, numpy: Any, value: Any) -> object:
        """Return a scalar or array as orjson takes it, in native byte order and C layout, else its parts."""
        if value.dtype.kind == "c":
            return self._lost()
        is_array = isinstance(value, numpy.ndarray)
        if is_array and not isinstance(value, numpy.ma.MaskedArray):
            value = numpy.array(value, dtype=value.dtype.newbyteorder("="), order="C")
        try:
            orjson.dumps(value, option=JSON_LINE)
            return value
        except TypeError:
            pass
        parts = value.tolist() if is_array else value.item()
        if isinstance(parts, numpy.longdouble):
            return float(parts)
        return self._lost() if parts is None else self.of(parts)


def _within_64_bits(number: int) -> int | float:
    return number if -(2**63) <= number < 2**64 else float(number)


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
        return True
    except UnicodeEncodeError:
        return False


def _is_strict(record: Record) -> bool:
    """Whether a record has JSON's types and finite numbers only, so that each null in its line was a None.

    Call it on what orjson has encoded: then no part contains itself.
    """
    parts: list[Any] = [record]
    for part in parts:  # the list grows meanwhile: recursion would take most of the time
        kind = type(part)
        if kind is float:
            if part - part:  # NaN, which is true, for NaN and both infinities; 0 for finite numbers
                return False
        elif kind is dict:
            if not {*map(type, part)} <= {str}:
                return False
            parts += part.values()
        elif kind is list:
            parts += part
        elif not (part is None or kind is str or kind is int or kind is bool):
            return False
    return True


def _has_nonfinite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if value is None or isinstance(value, (int, str)):
        return False
    if isinstance(value, dict):
        return any(_has_nonfinite(part) for part in value.values())
    if isinstance(value, list):
        return any(_has_nonfinite(part) for part in value)
    return b"null" in orjson.dumps(value, option=JSON_LINE)  # a numpy array, recognized without numpy
