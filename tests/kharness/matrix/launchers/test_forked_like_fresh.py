"""A forked run cannot be told from a fresh one: the same script tells about itself both ways."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kharness.runs.launch import Slot

from .conftest import Runs

PROBE = '''
"""Tells about its process."""
import builtins, ctypes, json, gc, multiprocessing, os, resource, signal, sys, threading
import numpy, torch

libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
death = ctypes.c_int()
libc.prctl(2, ctypes.byref(death))  # PR_GET_PDEATHSIG
torch.set_num_threads(torch.get_num_threads())  # as a training does, and it may start threads
before = len(os.listdir("/proc/self/task"))
a = numpy.ones((400, 400)) @ numpy.ones((400, 400))
blas = len(os.listdir("/proc/self/task"))
b = torch.ones(1000, 1000) @ torch.ones(1000, 1000)
main = sys.modules["__main__"]
told = {
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "executable": sys.executable, "cwd": os.getcwd(),
    "path": sys.path, "safe": os.environ.get("PYTHONSAFEPATH"),
    "name": __name__, "file": __file__, "doc": __doc__, "spec": str(main.__spec__), "is_main": main.told_by(),
    "loader": type(main.__loader__).__name__, "package": main.__package__,
    "builtins": __builtins__ is builtins,
    "environment": dict(os.environ),
    "c_environment": [str(libc.getenv(name)) for name in (b"OMP_NUM_THREADS", b"PROBE")],
    "leads_session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "open": sorted(fd for fd in os.listdir("/proc/self/fd") if int(fd) < 3),
    "inherited": [p for p in map(link, os.listdir("/proc/self/fd")) if p.startswith(("socket:", "anon"))],
    "outputs": [os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in (1, 2)],
    "streams": [[s.name, s.encoding, s.errors, s.write_through, s.line_buffering, s.isatty()]
                for s in (sys.stdout, sys.stderr, sys.stdin)],
    "affinity": sorted(os.sched_getaffinity(0)), "nice": os.nice(0), "umask": os.umask(0),
    "limits": [resource.getrlimit(n) for n in range(16)], "death": death.value,
    "handlers": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "wakeup": signal.set_wakeup_fd(-1),
    "python_threads": [t.name for t in threading.enumerate()],
    "process": multiprocessing.current_process().name,
    "main_thread": threading.current_thread() is threading.main_thread(),
    "torch_threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
    "threads": [before, blas, len(os.listdir("/proc/self/task"))],
    "torch": [str(torch.get_default_dtype()), torch.is_grad_enabled()],
    "cuda": torch.cuda.is_initialized(), "gc": [gc.isenabled(), gc.get_threshold()],
    "limit": sys.getrecursionlimit(),
    "future": __import__("sys").flags.no_user_site, "annotations": str(told_by.__annotations__),
    "comm": open("/proc/self/comm").read(),
}
print(json.dumps(told))
'''
DEFINITIONS = """
def link(fd):
    import os
    try:
        return os.readlink("/proc/self/fd/" + fd)
    except OSError:
        return ""


def told_by() -> int:
    return __name__ == "__main__"

"""


def told(output: str) -> dict[str, Any]:
    found = json.loads(output.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "slot",
    [
        Slot(),
        Slot(gpus=("GPU-1", "GPU-2"), threads=2, cores=(min(os.sched_getaffinity(0)),)),
    ],
    ids=["anywhere", "bound"],
)
def test_what_a_run_finds_is_the_same(
    forked: Runs, fresh: Runs, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE", "a\udcffb")
    monkeypatch.setenv("MAKEFLAGS", "w")
    script = PROBE.replace("import builtins", DEFINITIONS + "import builtins", 1)
    found = {}
    for kind, runs in (("forked", forked), ("fresh", fresh)):
        ended, output = runs.run(script, "--flag", "two words", slot=slot)
        assert (ended.exit_code, ended.signal) == (0, None), output
        found[kind] = json.loads(json.dumps(told(output)).replace(str(runs.root), "ROOT"))
    agents = found["forked"]["environment"].pop("MONITORING_AGENT_STARTER")
    assert agents.startswith("monitoring-agents-")
    assert found["forked"] == found["fresh"]
    assert found["forked"]["argv"] == ["model1/train.py", "--run-dir", "run1", "--flag", "two words"]
    assert found["forked"]["torch_threads"][0] == (slot.threads or found["fresh"]["torch_threads"][0])
    assert found["forked"]["inherited"] == []
    assert "MAKEFLAGS" not in found["forked"]["environment"]


RANDOM = """
import json, random, uuid, numpy, torch
drawn = [random.random(), numpy.random.rand(), torch.rand(1).item(), torch.initial_seed()]
print(json.dumps([*drawn, str(uuid.uuid4())]))
"""


def test_unseeded_random_numbers_differ_from_run_to_run(forked: Runs) -> None:
    drawn = [json.loads(forked.run(RANDOM)[1]) for _ in range(3)]
    assert [len(set(column)) for column in zip(*drawn, strict=True)] == [3] * 5


# What a script does at its end, with the exit code and the signal that it comes to.
ENDS = {
    "falls off its end": ("print('done')", 0, None),
    "exits with nothing": ("import sys; sys.exit()", 0, None),
    "exits with a number": ("import sys; sys.exit(75)", 75, None),
    "exits with a large number": ("import sys; sys.exit(300)", 44, None),
    "exits with a negative number": ("import sys; sys.exit(-1)", 255, None),
    "exits with text": ("import sys; sys.exit('a reason')", 1, None),
    "exits with True": ("import sys; sys.exit(True)", 1, None),
    "raises": ("def f():\n    raise ValueError('x')\nf()", 1, None),
    "raises from another": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
        1,
        None,
    ),
    "does not parse": ("print('a'\n", 1, None),
    "is interrupted": ("import atexit\natexit.register(print, 'end')\nraise KeyboardInterrupt", None, 2),
    "has SIGINT sent": (
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nfor _ in range(9): pass",
        None,
        2,
    ),
    "leaves at once": ("import os; os._exit(7)", 7, None),
    "has functions at its end": (
        "import atexit, sys\natexit.register(print, 'first')\natexit.register(print, 'second')\nsys.exit(4)",
        4,
        None,
    ),
    "has a thread at its end": (
        "import threading, time\n"
        "def work():\n    time.sleep(0.05); print('from the thread')\n"
        "threading.Thread(target=work).start(); print('main ends')",
        0,
        None,
    ),
    "has a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        0,
        None,
    ),
    "has a child process": (
        "import multiprocessing\n"
        "def work():\n    print('from the child')\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); print(child.exitcode)",
        0,
        None,
    ),
    "segfaults": ("import ctypes; ctypes.string_at(0)", None, 11),
    "is killed": ("import os, signal; print('x'); os.kill(os.getpid(), signal.SIGKILL)", None, 9),
    "is terminated": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", None, 15),
    "has its output in C's hands": ("import ctypes; ctypes.CDLL(None).puts(b'from C')", 0, None),
    "cannot print": ("import sys; sys.stdout = open('/dev/full', 'w'); print('x')", 120, None),
    "warns": ("import warnings; warnings.warn('careful')", 0, None),
    "excepthook": ("import sys\nsys.excepthook = lambda *a: print('hooked', a[0])\n1 / 0", 1, None),
}


FLUSHING = r"Exception ignored (in: <_io\.TextIOWrapper .*>|(on|while) flushing sys\.stdout:)"


@pytest.mark.parametrize("end", ENDS)
def test_a_script_that_ends_in_any_way(forked: Runs, fresh: Runs, end: str) -> None:
    """Exit code, signal and every line of output are those of `python SCRIPT`.

    Where output cannot be flushed each version of Python has words of its own for the same line, and 3.13
    says it once for each time that it tried.
    """
    script, exit_code, signal_number = ENDS[end]
    found = []
    for runs in (forked, fresh):
        ended, output = runs.run(script)
        output = re.sub(FLUSHING, "Exception ignored: sys.stdout", output.replace(str(runs.root), "ROOT"))
        output = re.sub(r"(Exception ignored: sys\.stdout\n.*\n)\1", r"\1", output)
        found.append((ended.exit_code, ended.signal, output))
    assert found[0] == found[1]
    assert found[0][:2] == (exit_code, signal_number)


def test_a_script_that_is_not_there(forked: Runs, fresh: Runs) -> None:
    found = []
    for runs in (forked, fresh):
        launch = runs.launch("")
        Path(runs.root, "model1/train.py").unlink()
        ended = runs.end(runs.launcher.submit(launch, Slot()))
        found.append((ended.exit_code, runs.output().replace(str(runs.root), "ROOT")))
    assert found[0] == found[1]
    assert found[0][0] == 2


def test_a_script_that_was_edited_is_run_as_it_is_now(forked: Runs) -> None:
    launch = forked.launch("print(1)")
    forked.end(forked.launcher.submit(launch, Slot()))
    Path(forked.root, launch.program[0]).write_text("print(2)")
    forked.end(forked.launcher.submit(launch, Slot()))
    assert forked.output() == "1\n2\n"


def test_what_compiling_warns_of_is_told_by_every_run(forked: Runs) -> None:
    for _ in range(2):
        output = forked.run("print('a' is 'a')")[1]
        assert "SyntaxWarning" in output
        assert output.endswith("True\n")


def test_output_is_appended_in_the_order_it_is_written(runs: Runs) -> None:
    launch = runs.launch("import os, sys\nprint('one'); sys.stderr.write('two\\n'); os.system('echo three')")
    (launch.directory / "output.log").write_text("before\n")
    runs.end(runs.launcher.submit(launch, Slot()))
    assert runs.output() == "before\none\ntwo\nthree\n"


def test_the_compiler_is_there_for_runs_that_compile(forked: Runs) -> None:
    """It is imported when the first of them is forked: other matrices do not wait for it."""
    found = []
    for config in ("# CONFIG_COMPILE is not set\n", "CONFIG_COMPILE=y\n", ""):
        launch = forked.launch("import sys\nprint('torch._dynamo' in sys.modules)\n")
        (launch.directory / ".config").write_text(config)
        forked.end(forked.launcher.submit(launch, Slot()))
        found.append(forked.output().splitlines()[-1])
    assert found == ["False", "True", "True"]
