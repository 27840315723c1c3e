"""Where earlier runs lie: a directory, or `dir:SYMBOL=value …` for some runs of it."""

from __future__ import annotations

from pathlib import Path

# Each of these makes a directory one of a run or a matrix.
_MARKS = ("matrix.json", "status.json", "metrics.jsonl")


def split_place(text: str) -> tuple[Path | None, str]:
    """`dir:SYMBOL=value` as directory and assignments; without a directory the text is assignments alone."""
    place, colon, given = text.rpartition(":")
    if colon and "=" in given and _holds_runs(Path(place).expanduser()):
        return Path(place).expanduser(), given
    whole = Path(text).expanduser()
    return (whole, "") if _holds_runs(whole) else (None, text)


def lasting_place(text: str) -> str:
    """A place as it is called from any directory and later on, too; what is none stays as it is.

    `results/latest` is another matrix as soon as the next one is planned.
    """
    directory, given = split_place(text.strip())
    if directory is None:
        return text
    return f"{directory.resolve()}:{given}" if given else str(directory.resolve())


def _holds_runs(path: Path) -> bool:
    return any((path / name).is_file() for name in _MARKS)
