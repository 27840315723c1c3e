"""A program that is started as a fork, and one that such a program starts: no difference to fresh ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitoring.host.process import process_started

from .few_digits import environment_of
from .warm_python import WarmPython

PROGRAM = '''
import json, os, signal, subprocess, sys, tempfile
import monitoring.errors

SHOWN = ("cmdline", "environ")

def seen():
    """Arguments, environment and files by which a process can see how it was started."""
    opened = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    return {
        "argv": sys.argv,
        "original": sys.orig_argv[1:],
        "path": sys.path,
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "shown": [sorted(filter(None, open(f"/proc/self/{name}").read().split("\\0"))) for name in SHOWN],
        # what programs get that are given none: C's, which os.environ only remembers
        "handed_on": sorted(subprocess.run(["env", "-0"], capture_output=True).stdout.decode().split("\\0")),
        "opened": sorted(opened),
        "session": os.getsid(0) == os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "handlers": [str(signal.getsignal(number)).split(" at ")[0] for number in (2, 13, 15, 17)],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "unbuffered": sys.stdout.write_through,
        "parent": os.getppid() == int(os.environ.get("PARENT", os.getppid())),
        "file": __file__,
        "ours": monitoring.errors.__file__,
    }

if sys.argv[1:] == ["child"]:
    print(json.dumps(seen()), file=sys.stderr)
    print("jinja2" in sys.modules)
    sys.exit(7)

signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
folder = tempfile.TemporaryDirectory()
log = open("log", "w")
log.write("once\\n")
sys.stdout.write("once\\n")
here = {**os.environ, "PARENT": str(os.getpid())}
command = [sys.executable, __file__, "child"]
found = [seen()]

def prepare():
    os.sched_setaffinity(0, {0})
    signal.pthread_sigmask(signal.SIG_BLOCK, [12])

for options in ({}, {"start_new_session": True, "preexec_fn": prepare}):
    done = subprocess.run(command, env=here, capture_output=True, text=True, **options)
    found.append([done.returncode, json.loads(done.stderr)])
forked = done.stdout
try:
    subprocess.run(command, cwd="absent")
except OSError as error:
    found.append(str(error))
read, write = os.pipe()
actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, write, 2)]
spawned = os.posix_spawn(sys.executable, command, here, file_actions=actions, setsid=True, setsigmask=[10])
found.append(os.getsid(spawned) == spawned)  # before this process could end, and its group with it
os.close(write)
found += [json.loads(open(read).read()), os.waitpid(spawned, 0)[1]]
for how in ("execve", "execv"):
    read, write = os.pipe()
    if (replaced := os.fork()) == 0:
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(write, 2)
        os.set_inheritable(os.open("said", os.O_RDONLY), how == "execv")
        os.environ.update(here)
        os.execve(sys.executable, command, here) if how == "execve" else os.execv(sys.executable, command)
    os.close(write)
    found += [json.loads(open(read).read()), os.waitpid(replaced, 0)[1]]
    forked += open("said").read()
found.append(os.path.isdir(folder.name))
log.flush()
print(json.dumps([forked, found]).replace(str(os.getpid()), "PID"))
'''


def test_whoever_needs_the_same_modules_shares_a_server() -> None:
    """Which ends with its last connection."""
    first, second = WarmPython("calendar"), WarmPython("calendar")
    servers = [warm.run(["-c", "import os; print(os.getppid())"]).stdout for warm in (first, second)]
    first.close()
    servers.append(second.run(["-c", "import os; print(os.getppid())"]).stdout)
    second.close()
    assert servers == 3 * servers[:1]
    deadline = time.monotonic() + 600
    while process_started(int(servers[0])) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def other_lib(root: Path, tmp_path: Path) -> Path:
    """Library of another checkout, with all modules that lie beside the packages of this one."""
    package = tmp_path / "checkout" / "lib" / "monitoring"
    package.mkdir(parents=True)
    for module in (root / "lib").glob("*.py"):
        shutil.copy(module, package.parent)
    (package / "__init__.py").touch()
    (package / "errors.py").touch()
    return package.parent


@pytest.mark.parametrize("checkout", ["this one", "another", "few digits"])
def test_whoever_is_forked_sees_what_a_fresh_one_does(
    request: pytest.FixtureRequest, tmp_path: Path, other_lib: Path, few_digits: Path, checkout: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    told = []
    here = dict(os.environ)  # readline has added variables to the system's own
    if checkout == "another":
        here["PYTHONPATH"] = str(other_lib)
    if checkout == "few digits":
        here["PYTHONPATH"] = str(few_digits / "lib")
    warm: WarmPython = request.getfixturevalue("warm_few" if checkout == "few digits" else "warm_python")
    command = [sys.executable, str(script)]
    fresh = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    for done in (warm.run([script], cwd=tmp_path, env=here), fresh):
        assert (done.returncode, done.stderr) == (0, "")
        once, found = done.stdout.splitlines()
        told.append(json.loads(found))
        assert (once, (tmp_path / "log").read_text()) == ("once", "once\n")
    (is_forked, forked), (is_fresh, as_fresh) = told
    for ours, theirs in zip(forked, as_fresh, strict=True):
        assert ours == theirs
    assert (is_forked, is_fresh) == (3 * "True\n", 3 * "False\n"), "it was not forked"


def test_a_server_of_another_checkout_has_its_modules(few_digits: Path, warm_few: WarmPython) -> None:
    look = "import sys; print(sys.modules['kharness.training.opening'].__file__)"
    done = warm_few.run(["-c", look], env=environment_of(few_digits))
    assert (done.stdout, done.stderr) == (f"{few_digits}/lib/kharness/training/opening.py\n", "")


STARTS = """
import os, subprocess, sys
look = [sys.executable, "-c", "import sys; print('calendar' in sys.modules, 'sched' in sys.modules)"]
for variable in ("OTHER", "OWN_FOLDER"):
    print(subprocess.check_output(look, env={**os.environ, variable: "x"}, text=True), end="")
"""


def test_a_server_that_is_a_fork_of_another_goes_by_its_own_variables() -> None:
    """A variable that only the forked server reads makes its children start anew."""
    outer = WarmPython("calendar")
    inner = WarmPython("sched", read=("OWN_",)).forked_from(outer)
    done = inner.run(["-c", STARTS])
    inner.close()
    outer.close()
    assert (done.stdout, done.stderr) == ("True True\nFalse False\n", "")


TESTS = """
import os, signal, sys

def test_it_has_the_modules():
    assert "sched" in sys.modules

def test_it_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_it():
    assert "sched" in sys.modules
"""


def test_a_worker_of_pytest_is_a_fork_whose_death_is_noticed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    worker = f"1*popen//python={sys.executable} {root}/tests/warm_worker.py sched"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dist", "load"]
    command += ["--tx", worker]
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "worker 'gw0' crashed while running 'test_it.py::test_it_dies'" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 failed, 2 passed"), done.stdout + done.stderr
