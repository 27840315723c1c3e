"""Output of a training: kept for its log file, and never a reason to stop."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from kharness.config.options import Options
from kharness.config.output import lasting_text
from monitoring.errors import UserError

# Packages that do not follow the root logger but a variable that they read when they are imported.
HAVE_VERBOSITY = ("TRANSFORMERS", "DATASETS", "HF_HUB")


@contextmanager
def lasting_output() -> Iterator[KeptOutput]:
    """Within it, printing never fails: what cannot be written is dropped.

    The terminal may be closed, the reader of a pipe be gone (`… | head`), the disk below output.log be full:
    the journal has all that counts, and the training continues and ends as it would have.
    """
    before, kept = sys.stdout, KeptOutput()
    sys.stdout = kept.of(lasting_text(before, drop_all=True))
    # It stays: the line that says why a training ended comes after this block.
    sys.stderr = kept.of(sys.stderr)
    try:
        yield kept
    except (SystemExit, KeyboardInterrupt, UserError):
        raise
    except BaseException:
        kept.add(traceback.format_exc())
        raise
    finally:
        sys.stdout.flush()
        sys.stdout = before


class KeptOutput:
    """Printed output, held until the run directory is known, then written to a file in it."""

    def __init__(self) -> None:
        self._text: list[str] | None = []
        self._path: Path | None = None

    def of(self, stream: TextIO) -> TextIO:
        """A stream that prints to another one, and here."""
        return cast(TextIO, _Kept(stream, self)) if stream is not None else stream

    def keep_in(self, path: Path) -> None:
        """Append what was printed so far to a file, and all that follows."""
        text, self._text, self._path = self._text or [], None, path
        self.add("".join(text))

    def drop(self) -> None:
        """Somebody else keeps it."""
        self._text = self._path = None

    def add(self, text: str) -> None:
        """Take a text; never raises."""
        if self._text is not None:
            self._text.append(text)
        elif self._path is not None and text:
            # On a full disk the journal has all that counts.
            with suppress(OSError), self._path.open("ab", buffering=0) as file:
                file.write(text.encode(errors="backslashreplace"))


class _Kept:
    """A stream whose text is kept, too."""

    def __init__(self, shown: TextIO, kept: KeptOutput) -> None:
        self.shown = shown
        """The stream that progress bars draw on; the file gets no bars."""
        self._kept = kept

    def write(self, text: str) -> int:
        self._kept.add(text)
        return self.shown.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)


@contextmanager
def printing(options: Options) -> Iterator[None]:
    """Within it, LOG_LEVEL says whether there is standard output, and from here on DEP_LOG_LEVEL what else.

    DRY_RUN and INSPECT_STEP print what they are for, at any level.
    """
    set_dependencies_level(options.DEP_LOG_LEVEL or "warning")
    if (options.LOG_LEVEL or "info") == "info" or options.DRY_RUN or options.INSPECT_STEP:
        yield
        return
    with nothing_printed():
        yield


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Within it, standard output goes nowhere."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def set_dependencies_level(level: str) -> None:
    """Set the log level of dependencies: `debug`, `info`, `warning` or `error`."""
    if level == "warning":  # theirs, by default: what somebody has set by TORCH_LOGS stays
        return
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=number)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and "." not in name and logger.level:
            logger.setLevel(number)
    logging.captureWarnings(True)
    for package in HAVE_VERBOSITY:
        os.environ.setdefault(f"{package}_VERBOSITY", level)
