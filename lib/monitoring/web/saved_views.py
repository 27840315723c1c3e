"""Views that people have saved: names and addresses of the page, in views.json of the first folder."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import orjson

from monitoring.errors import MonitoringError, unwritable
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.encoding.json_shape import json_lines

VIEWS_JSON = "views.json"
MOST, LONGEST_NAME, LONGEST_ADDRESS = 200, 80, 8000


class ViewError(MonitoringError):
    """A view that cannot be saved."""


class SavedViews:
    """Reads and writes the file; thread-safe."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self._path = folder / VIEWS_JSON
        self._read_only = read_only
        self._lock = Lock()

    def all(self) -> dict[str, str]:
        """Return addresses by name; empty without a file, or if it is damaged."""
        try:
            views = orjson.loads(self._path.read_bytes())["views"]
            return {str(name): str(address) for name, address in views.items() if _is_address(address)}
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return {}

    def save(self, name: object, address: object) -> dict[str, str]:
        """Save an address under a name, or remove it if the address is None; returns all that remain."""
        if self._read_only:
            raise ViewError("this page is read-only", hint="start it without READ_ONLY=y")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME or not name.isprintable():
            raise ViewError(
                f"a view's name has 1 to {LONGEST_NAME} characters", hint="such as: lr, by optimizer"
            )
        if address is not None and not _is_address(address):
            raise ViewError("that is not an address of this page", hint="it begins with #")
        with self._lock:
            views = self.all()
            views.pop(name.strip(), None)
            if address is not None:
                views[name.strip()] = str(address)
            if len(views) > MOST:
                raise ViewError(f"there are {MOST} views already", hint="remove some")
            try:
                write_atomically(self._path, json_lines({"views": views}))
            except OSError as error:
                raise unwritable(self._path, error) from error
            return views


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith("#") and len(value) <= LONGEST_ADDRESS
