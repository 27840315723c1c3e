"""Causes of rare failures are ruled out: short guards, ports given back, handlers that wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .waiting import GUARD

ROOT = Path(__file__).resolve().parent.parent

# How long a test waits before it gives up; a try that is repeated, as urlopen's are, may be short.
GUARDS = re.compile(
    r"(?:\b(?:deadline|until|guard) = time\.monotonic\(\) \+ "
    r"|\.(?:wait|join)\((?:timeout=)?"
    r"|(?:communicate|run|wait_procs)\([^()]*timeout=)(\d+(?:\.\d+)?)(?![\w.(])"
)

# What a handler may not call: it runs within whatever the main thread does, also within these themselves.
NEEDS_A_LOCK = {"acquire", "notify_all", "print", "put", "set"}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The modules of the tests, this one left out."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if path != Path(__file__)}


def test_no_guard_is_shorter_than_ten_minutes(texts: dict[str, str]) -> None:
    """Nothing takes so long on a loaded machine; anything less some run will take."""
    short = ["p.wait(120)", "p.communicate(timeout=5)", "deadline = time.monotonic() + 120", "t.join(0.5)"]
    assert all(GUARDS.search(line) for line in short)
    found = [
        f"{name}: {match[0]}"
        for name, text in texts.items()
        for match in GUARDS.finditer(text)
        if 0 < float(match[1]) < GUARD
    ]
    assert found == []


def test_ports_are_given_out_in_one_place(texts: dict[str, str]) -> None:
    """One that the kernel has chosen and taken back, it gives to the next who asks."""
    assert [name for name, text in texts.items() if "def free_port(" in text] == ["tests/ports.py"]


def programs(text: str) -> Iterator[str]:
    """The module and the programs that stand in it as strings."""
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    within = [string for string in strings if isinstance(string, str) and "signal.signal(" in string]
    yield from within
    for string in within:
        text = text.replace(string, "")
    yield text


def test_who_handles_signals_sleeps_for_short_times_only(texts: dict[str, str]) -> None:
    """A signal between Python's look for one and the sleep itself is handled when that is over."""
    suspects = [name for name, text in texts.items() if "signal.signal(" in text and "sleep(" in text]
    found = [
        name
        for name in suspects
        for program in programs(texts[name])
        if re.search(r"signal\.signal\([^,]*, (?!signal\.SIG)", program)
        and any(float(seconds) > 1 for seconds in re.findall(r"sleep\((\d+(?:\.\d+)?)\)", program))
    ]
    assert suspects != []
    assert found == []


def test_no_handler_waits_for_a_lock(nodes: Callable[[Path], list[Any]]) -> None:
    """The main thread may hold it, in the midst of `Event.wait` or `print`, and goes on only after that."""
    sources = [path for folder in ("lib", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
    handled = [path for path in sources if "signal.signal(" in path.read_text()]
    assert [(str(path.relative_to(ROOT)), call) for path in handled for call in locking(nodes(path))] == []
    assert {path.name for path in handled} >= {"guard.py", "signals.py", "stop_signals.py"}
    old = "def end(n, f):\n    stop.set()\nsignal.signal(15, end)\nsignal.signal(2, lambda n, f: stop.set())"
    assert list(locking(list(ast.walk(ast.parse(old))))) == ["set", "set"]


def locking(found: list[Any]) -> Iterator[str]:
    """The calls of a module's handlers that may wait for a lock."""
    calls = [
        node for node in found if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal"
    ]
    functions = {node.name: node for node in found if isinstance(node, ast.FunctionDef)}
    for call in calls:
        name = ast.unparse(call.args[1]).rpartition(".")[2]
        handler = functions.get(name, call.args[1])
        for node in ast.walk(handler):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in NEEDS_A_LOCK:
                    yield called
