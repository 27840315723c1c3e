"""Modules that a bridge imports: those that its program waits for, and all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BEFORE_START = {
    *("bridge", "bridge.between_lines", "bridge.bridge", "bridge.guard", "bridge.hook", "bridge.neighbors"),
    *("bridge.script", "bridge.sooner", "bridge.source", "bridge.sources", "bridge.standing"),
    *(f"bridge.sources.{kind}" for kind in ("csv", "hook", "jsonl", "mlflow", "output", "spool")),
    *(f"bridge.sources.{kind}" for kind in ("tensorboard", "trackio", "wandb")),
    *("dropins", "errors", "host", "host.file_locks", "host.libc", "host.process", "host.stop_signals"),
    *("journal", "journal.end_status", "journal.files", "outside", "spool"),
}

# Modules that take long and that a program needs which reports nothing and has no trackers; `ast` and `dis`
# tell of inspect.
HEAVY = {
    *("ast", "asyncio", "bz2", "csv", "decimal", "dis", "email", "hashlib", "http", "linecache", "lzma"),
    *("multiprocessing", "pkgutil", "shutil", "socket", "sqlite3", "ssl", "tempfile", "tokenize", "zlib"),
    *("numpy", "psutil", "torch"),
    *("monitoring.follower", "monitoring.gpu.aggregates", "monitoring.gpu.options", "monitoring.gpu.sample"),
    *("monitoring.journal.encoding.archive", "monitoring.journal.tail", "monitoring.media.kept_files"),
}


def python(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=True
    )


def test_a_program_waits_for_few_modules(tmp_path: Path) -> None:
    waited_for = """
import sys
from monitoring.bridge.sooner import LATER, before_start

before_start()
import monitoring.bridge.bridge
from monitoring.bridge.sources import source_kinds

source_kinds()
print(*(name for name in sys.modules if name.startswith("monitoring.")))
print(*(name for name in ("dataclasses", "orjson", "sqlite3", "uuid") if name in sys.modules))
print(*(name for name in LATER if "__getattr__" not in vars(sys.modules[name])))
"""
    names, *heavy = python("-c", waited_for, cwd=tmp_path).stdout.splitlines()
    assert (set(names.split()), heavy) == ({f"monitoring.{name}" for name in BEFORE_START}, ["", ""])


def test_a_bridge_imports_nothing_heavy_that_it_does_not_use(tmp_path: Path) -> None:
    done = python("-X", "importtime", "-m", "monitoring.bridge", "run", "--", "echo", "done", cwd=tmp_path)
    imported = set(re.findall(r"^import time:.*\| *(\S+)$", done.stderr, re.MULTILINE))
    assert ({"monitoring.run", "orjson"} - imported, imported & HEAVY) == (set(), set())


def test_what_is_imported_later_is_the_module_once_it_is_used(tmp_path: Path) -> None:
    used = """
import sys
from monitoring.bridge.sooner import after_start, before_start

before_start()
import gc, inspect, dataclasses
from ipaddress import ip_address

later = "ast" in sys.modules
def call(first, *, second=2): ...
print(later, inspect.signature(call), ip_address("127.0.0.1").is_loopback, gc.isenabled())
print("ast" in sys.modules, inspect.isfunction(call), hasattr(inspect, "no such name"))
after_start()
print(gc.isenabled(), gc.get_freeze_count() > 1000)
"""
    assert python("-c", used, cwd=tmp_path).stdout == (
        "False (first, *, second=2) True False\nTrue True False\nTrue True\n"
    )
