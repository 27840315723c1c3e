"""Loops in blocks that undo something: what a signal handler raises at a jump back must not pass them by."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

LIB = Path(__file__).parents[1] / "lib"

# What runs in the process of a training, where handlers of users raise.
RUN_IN_TRAININGS = (
    *(f"monitoring/{name}" for name in ("callbacks", "gpu_monitor", "host", "journal", "media", "telemetry")),
    *(f"monitoring/{name}" for name in ("verbose_logging", "control.py", "run.py")),
    *(f"kharness/training/{name}" for name in ("fake_tensors", "optimizers", "pruning", "saving", "steps")),
    *(f"kharness/training/{name}" for name in ("guard.py", "opening.py", "progress.py", "setup.py")),
)

# Blocks that undo nothing, or files and generators, which end with the last reference to them.
UNDO_NOTHING = ("suppress(", "open(", "with file:", "ExitStack()", "_new(", "self._folder()")


def functions_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from functions_of(constant)


def passed_by(code: CodeType) -> Iterator[int]:
    """Yield the line of each `with` and `finally` that a jump back within it can pass by."""
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    instructions = list(dis.get_instructions(code)) if table else []
    index = {instruction.offset: number for number, instruction in enumerate(instructions)}

    def handlers(offset: int) -> set[int]:
        of_it = next((entry.target for entry in table if entry.start <= offset < entry.end), None)
        return set() if of_it is None else {of_it, *handlers(of_it)}

    for jump in instructions:
        if jump.opname == "JUMP_BACKWARD":
            for handler in handlers(jump.argval) - handlers(jump.offset):
                first, then, *more = instructions[index[handler] :][:9]
                is_except = then.opname != "WITH_EXCEPT_START" and any(
                    one.opname == "CHECK_EXC_MATCH" for one in more
                )
                line = then.positions.lineno if then.positions else None
                # else it is an `except`, or of a comprehension or generator
                if line is not None and first.opname == "PUSH_EXC_INFO" and not is_except:
                    yield line


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 13), reason="other versions of CPython compile loops otherwise"
)
def test_no_jump_back_in_a_training_passes_by_what_undoes_something() -> None:
    found = set()
    for name in RUN_IN_TRAININGS:
        place = LIB / name
        for path in place.rglob("*.py") if place.is_dir() else [place]:
            text = path.read_text(encoding="utf-8")
            for function in functions_of(compile(text, str(path), "exec")):
                for line in passed_by(function):
                    block = text.splitlines()[line - 1].strip()
                    if not any(harmless in block for harmless in UNDO_NOTHING):
                        found.add(f"{path.relative_to(LIB)}:{line}: {function.co_qualname}: {block}")
    assert found == set()
