"""Escape text from runs before it is placed in Markdown sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TypeVar

from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.judgment import Comparison

Said = TypeVar("Said", Comparison, Conclusions)


def with_texts(said: Said, escape: Callable[[str], str]) -> Said:
    """The same with every text and every tuple of texts escaped; members of enumerations are our own."""
    return replace(said, **{one.name: _escaped(getattr(said, one.name), escape) for one in fields(said)})


def _escaped(value: Any, escape: Callable[[str], str]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return escape(value)
    if isinstance(value, tuple):
        return tuple(_escaped(one, escape) for one in value)
    return value
