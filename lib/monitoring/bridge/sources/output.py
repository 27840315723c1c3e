"""Metrics from what a program prints: known programs' lines, any that name their numbers, one's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from monitoring.bridge.printed_line import NUMBER, named_numbers
from monitoring.bridge.source import Reported, Watched
from monitoring.journal.encoding.global_step import as_step
from monitoring.journal.files import OUTPUT_LOG

# A terminal's colors and other escapes (ECMA-48).
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Longer lines are no report.
LONGEST = 10_000

NANOGPT = (
    # train.py of github.com/karpathy/nanoGPT
    rf"^iter (?P<step>\d+): loss (?P<loss>{NUMBER}), time (?P<step_ms>{NUMBER})ms"
    rf"(?:, mfu (?P<mfu_percent>{NUMBER})%)?",
    rf"^step (?P<step>\d+): train loss (?P<estimated_train_loss>{NUMBER}), val loss (?P<val_loss>{NUMBER})",
)
# metrics of github.com/pytorch/torchtitan, components/metrics.py, without its colors
TORCHTITAN = (
    rf"\bstep: +(?P<step>\d+) +loss: +(?P<loss>{NUMBER})(?: +grad_norm: +(?P<grad_norm>{NUMBER}))?"
    rf"(?: +memory: +(?P<memory_gib>{NUMBER})GiB\([^)]*\))?(?: +tps: +(?P<tokens_per_second>{NUMBER}))?"
    rf"(?: +tflops: +(?P<tflops>{NUMBER}))?(?: +mfu: +(?P<mfu_percent>{NUMBER})%)?",
)
MNIST = (
    # mnist/main.py of github.com/pytorch/examples, whose other lines name their numbers
    rf"^Test set: Average loss: (?P<test__loss>{NUMBER}), Accuracy: \d+/\d+ "
    rf"\((?P<test__accuracy_percent>{NUMBER})%\)",
)
DICT = re.compile(r"\{'[\w/]+': .*\}")
FOUR_DIGITS = "Hugging Face prints 4 digits and no step"

RICHNESS = 10


def variables(watched: Watched) -> Mapping[str, str]:
    """Have Python write each line when it is printed, not 8 KiB later."""
    return {"PYTHONUNBUFFERED": "1"}


def find(watched: Watched) -> Iterator[OutputSource]:
    """Yield what the program prints into output.log."""
    path = watched.directory / OUTPUT_LOG
    if path.is_file():
        yield OutputSource(path, watched.patterns)


class OutputSource:
    """The output of a program; the place is a byte offset."""

    kind = "output"

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        """`patterns` are regular expressions of the user's, which go before ours."""
        self.path = path
        self.note = ""
        self._patterns = [re.compile(pattern) for pattern in (*patterns, *NANOGPT, *TORCHTITAN, *MNIST)]

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what is found in whole lines."""
        with self.path.open("rb") as file:
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                place += len(line)
                # a progress bar draws over itself: what was printed after it counts
                for part in line[:LONGEST].split(b"\r"):
                    found = self._found(part.decode("utf-8", "replace"))
                    if found:
                        step = as_step(found.pop("step", None))
                        yield Reported(found, place, step)

    def _found(self, line: str) -> dict[str, object]:
        if not any(character.isdigit() for character in line):
            return {}
        text = ESCAPES.sub("", line).strip()
        for pattern in self._patterns:
            if match := pattern.search(text):
                groups = match.groupdict().items()
                return {
                    name.replace("__", "/"): _number(value) for name, value in groups if value is not None
                }
        if (match := DICT.search(text)) and "loss" in match[0]:
            self.note = FOUR_DIGITS
            return _dict(match[0])
        return {name: _number(value) for name, value in named_numbers(text).items()}


def _dict(text: str) -> dict[str, object]:
    """Return the numbers of a dict as Python prints it; newer versions print them as text."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {str(name): _number(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return value
    return int(number) if number.is_integer() and re.fullmatch(r"[-+]?[\d,]+", value) else number
