"""Numbers and times as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable

NONE = "–"


def number(value: float | None, factor: float = 1.0, digits: int = 0, unit: str = "") -> str:
    return NONE if value is None else f"{value * factor:.{digits}f}{unit}"


def figure(value: float, digits: int) -> str:
    """Format with so many digits, and without an exponent for what a person counts: 14,512."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"


def energy(joules: float) -> str:
    """Format in watt-hours, if there are any, else in joules."""
    return f"{joules / 3600:.1f} Wh" if joules >= 3600 else f"{joules:.0f} J"


def duration(seconds: float) -> str:
    """Return a time for a person: `42 s`, `3:05 min`, `2:07 h`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 48 * 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def span(seconds: float) -> str:
    """Format a length of time without what is not needed: `30 s`, `5 min`, `4 h`, else as `duration`."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit:.0f} {name}"
    return duration(seconds)


def age(seconds: float | None) -> str:
    """Format as `duration` does, in at most seven cells: `42s`, `3:05`, `2:07:59`, `3d04h`."""
    if seconds is None:
        return NONE
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of those that are known, None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known, None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
