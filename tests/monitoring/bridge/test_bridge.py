"""The bridge around a program: signals, exit codes, what is left behind, SIGKILL at any moment, refusals."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import psutil
import pytest

from monitoring.bridge.last_words import last_words
from monitoring.bridge.recorder import REPORTED
from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

from ...processes import is_gone
from ...waiting import wait_until
from ...warm_python import StartedPython, WarmPython
from .conftest import Bridged, ours
from .test_sources import records

LONG = 300


Started = Callable[..., StartedPython]


@pytest.fixture
def started(warm_monitoring: WarmPython) -> Started:
    """Start a program under the bridge."""

    def start(run_dir: Path, *program: object) -> StartedPython:
        command = ["-m", "monitoring.bridge", run_dir, "--", *program]
        return warm_monitoring.start(command, cwd=run_dir.parent, stderr=subprocess.DEVNULL)

    return start


@pytest.fixture
def bridged_in_matrix(warm_monitoring: WarmPython) -> Callable[..., int]:
    """Run a program to its end under a bridge that prints into output.log, too; its exit code."""

    def run(run_dir: Path, *program: object, options: Sequence[str] = ()) -> int:
        run_dir.mkdir(exist_ok=True)
        command = ["-m", "monitoring.bridge", run_dir, *options, "--", *program]
        with (run_dir / "output.log").open("a") as output:
            done = warm_monitoring.run(command, cwd=run_dir.parent, stdout=output, stderr=output)
        return done.returncode

    return run


def test_exit_code_is_passed_on_and_the_failure_is_recorded(run_dir: Path, bridged: Bridged) -> None:
    ended = bridged(run_dir, sys.executable, "-c", "print('no memory'); raise SystemExit(7)")
    assert (ended.returncode, ended.stderr) == (7, "")
    assert records(run_dir, "end") == [{"status": "failed", "error": "no memory"}]
    assert (run_dir / "output.log").read_text() == "no memory\n"


@pytest.mark.parametrize(
    ("better", "names"),
    [("", "val_acc, wer decide"), ("val/acc=up", "wer decides"), ("wer=down; val_acc=up", "")],
)
def test_what_decides_nothing_is_told_beside_what_was_found(
    run_dir: Path, bridged: Bridged, better: str, names: str
) -> None:
    program = "print('epoch 1, loss 0.5, val acc 0.5, wer 0.5, grad_norm 2, val_accuracy=0.5')"
    config = orjson.dumps({"REPORT_BETTER": better}).decode()
    ended = bridged(run_dir, sys.executable, "-c", program, options=["--config", config])
    told = re.findall(
        r"^(.*) nothing, for which way is better is unknown: kharness report", ended.stderr, re.MULTILINE
    )
    assert told == [names] * bool(names), ended.stderr


def test_name_of_a_metric_controls_no_terminal(run_dir: Path, bridged: Bridged) -> None:
    code = r"""open('m.jsonl', 'w').write('{"step": 1, "a\\u001b[31m\\nb": 2}\n')"""
    ended = bridged(run_dir, sys.executable, "-c", code, options=["--follow", "m.jsonl"])
    assert ended.stderr == "recorded from jsonl: a\\x1b[31m\\nb\n"


# As torchrun prints it: the second rank fails, for the first has.
OF_RANKS = """
begin = "Traceback (most recent call last):"
for rank, line in [(1, begin), (0, begin), (1, "  File x"), (0, "  File y"), (1, "OSError: full"),
                   (1, "disk"), (0, "ValueError: peer")]:
    print(f"[rank{rank}]: {line}")
class ChildFailedError(Exception): ...
raise ChildFailedError
"""
HANDLED = "try: 1 / 0\nexcept Exception: __import__('traceback').print_exc()\n"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise SystemExit('no data')", "no data"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("exit(7)", "exit code 7"),
    ],
)
def test_failure_is_told_by_what_was_raised(
    run_dir: Path, bridged: Bridged, program: str, error: str
) -> None:
    assert bridged(run_dir, sys.executable, "-c", program).returncode != 0
    (end,) = records(run_dir, "end")
    assert (end["status"], end["error"]) == ("failed", error)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise RuntimeError('CUDA error: no\\n\\nCompile with DSA')", "RuntimeError: CUDA error: no"),
        ("import atexit; atexit.register(print, 'bye'); open('no')", "FileNotFoundError: [Errno 2] No such"),
        (f"{HANDLED}raise KeyError('x')", "KeyError: 'x'"),
        ("raise OSError('errors in loading:\\n\\tno key w')", "OSError: errors in loading: no key w"),
        (f"{HANDLED}for i in range(200): print(f'step {{i}}')\nexit(1)", "step 199"),
        (f"{HANDLED}{OF_RANKS}", "OSError: full"),
        ("raise ValueError('\\x1b[2J')", "ValueError: \\x1b[2J"),
    ],
)
def test_last_words_of_a_program_are_what_was_raised(
    tmp_path: Path, warm_monitoring: WarmPython, program: str, error: str
) -> None:
    with (tmp_path / "output.log").open("w") as output:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        done = warm_monitoring.run(["-c", program], env=environment, stdout=output, stderr=output)
    assert done.returncode != 0
    assert last_words(tmp_path / "output.log")[: len(error)] == error


def test_failure_is_the_programs_own_line_where_the_bridge_prints_there_too(
    run_dir: Path, bridged_in_matrix: Callable[..., int]
) -> None:
    """In a matrix the bridge prints into output.log, too; the failure is still the program's last line."""
    code = "print('step 1 loss 0.5'); raise SystemExit('no such file: a.txt')"
    assert bridged_in_matrix(run_dir, sys.executable, "-c", code) == 1
    assert "recorded from output: loss" in (run_dir / "output.log").read_text()
    end = {"status": "failed", "error": "no such file: a.txt", "first_step": 1, "steps_done": 1}
    assert records(run_dir, "end") == [end]


def test_number_that_was_cut_off_is_no_value_whatever_follows_it(
    run_dir: Path, bridged: Bridged, bridged_in_matrix: Callable[..., int]
) -> None:
    """A number cut off when the program dies is dropped; a full disk may cut the mark behind it, too."""
    log = run_dir / "output.log"
    program = (
        "print('iter 1: loss 0.5000, time 1ms'); print('iter 2: loss 0.25', end=''); raise SystemExit(1)"
    )
    for mark in ("\x18\n", "\x18", ""):
        assert bridged_in_matrix(run_dir, sys.executable, "-c", program) == 1
        before, _, after = log.read_text().rpartition("iter 2: loss 0.25")
        assert after.startswith("\x18\nrecorded from output: loss")
        log.write_text(f"{before}iter 2: loss 0.25{mark}{after[2:]}")
    assert bridged(run_dir, "true").returncode == 0
    assert records(run_dir, "step") == [{"global_step": 1, "train_loss": 0.5, "step_ms": 1}] * 3


def test_what_the_bridge_says_meanwhile_stands_in_no_line_of_the_programs(
    run_dir: Path, bridged_in_matrix: Callable[..., int]
) -> None:
    """In a matrix, whose output.log has both."""
    program = (
        "import pathlib, time\n"
        "print('step 1 loss 0.5\\nstep 2 loss 0.2', end='')\n"
        "pathlib.Path('rows.jsonl').write_text('no JSON\\n{\"step\": 1, \"lr\": 1}\\n')\n"
        f"while '\"lr\":' not in pathlib.Path({str(run_dir / 'metrics.jsonl')!r}).read_text():\n"
        "    time.sleep(0.05)\n"
        "print('5')\n"
    )
    options = ["--follow", "rows.jsonl"]
    assert bridged_in_matrix(run_dir, sys.executable, "-c", program, options=options) == 0
    said = "note: rows.jsonl has a line that is no JSON, which is left out: 'no JSON'"
    assert (run_dir / "output.log").read_text().splitlines()[:3] == [
        "step 1 loss 0.5",
        "step 2 loss 0.25",
        said,
    ]
    steps = [(r["global_step"], r["train_loss"]) for r in records(run_dir, "step") if "train_loss" in r]
    assert steps == [(1, 0.5), (2, 0.25)]


def limited(most_bytes: int, run_dir: Path, *program: str) -> tuple[int, str]:
    """Run a program under the bridge, where no file can have more bytes; its exit code and what is said."""
    done = subprocess.run(
        [sys.executable, "-m", "monitoring.bridge", str(run_dir), "--", *program],
        cwd=run_dir.parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY)),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_line_that_a_full_disk_has_cut_off_is_marked_there(run_dir: Path) -> None:
    program = "print('.' * 40_000); print('iter 1: loss 0.5000, time 1ms' * 1000)"
    assert limited(50_000, run_dir, sys.executable, "-c", program)[0] == 1
    log = (run_dir / "output.log").read_bytes()
    assert (len(log), log[-2:], log.count(b"\n")) == (50_000, b"\x18\n", 2)
    assert records(run_dir, "step") == []


def test_attempt_that_a_full_disk_would_not_record_is_not_begun(run_dir: Path) -> None:
    """Killed later, its steps would be taken for those of the attempt before."""
    program = (
        "for step in range(1, 31): print(f'iter {step}: loss {1 / step:.4f}, time 1ms')",
        "import sys; sys.exit('ended')",
    )
    command = [sys.executable, "-c", "\n".join(program)]
    assert limited(resource.RLIM_INFINITY, run_dir, *command)[0] == 1
    code, errors = limited((run_dir / "metrics.jsonl").stat().st_size, run_dir, *command)
    assert code == os.EX_IOERR
    assert f"error: {run_dir}/metrics.jsonl cannot be written: no space left on device" in errors
    assert (run_dir / "output.log").read_text().count("iter 30") == 1
    assert limited(resource.RLIM_INFINITY, run_dir, *command)[0] == 1
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    assert [r["global_step"] for r in journal if r["event"] == "step"] == [*range(1, 31)] * 2
    assert [r["global_step"] for r in counting(journal) if r["event"] == "step"] == [*range(1, 31)]


def test_killed_program_is_told_by_its_signal(run_dir: Path, bridged: Bridged) -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert bridged(run_dir, sys.executable, "-c", killed).returncode == 128 + signal.SIGKILL
    assert records(run_dir, "end") == [{"status": "failed", "error": "ended by SIGKILL"}]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_is_passed_on_once(run_dir: Path, number: signal.Signals, started: Started) -> None:
    program = (
        "import signal, sys, time\n"
        "def stop(number, frame):\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        f"signal.signal({int(number)}, stop)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    time.sleep(0.05)\n"
    )
    bridge = started(run_dir, sys.executable, "-c", program)
    output = run_dir / "output.log"
    wait_until(lambda: output.exists() and "ready" in output.read_text())
    bridge.send_signal(number)
    assert bridge.wait() == 0
    assert output.read_text() == "ready\nsaved\n"
    assert records(run_dir, "end") == [{"status": "interrupted", "cause": "stopped"}]


def test_stop_that_comes_while_the_program_is_started_is_passed_on(tmp_path: Path) -> None:
    stops_at_once = (
        "import os, pathlib, signal\n"
        "from monitoring.bridge.guard import Guard\n"
        "from monitoring.bridge.script import Script\n"
        "class Stopped(Guard):\n"
        "    def watch_this_process(self):\n"
        "        super().watch_this_process()\n"
        "        os.kill(os.getppid(), signal.SIGTERM)\n"
        "command = ['sleep', '600']\n"
        "script = Script(command, environment=os.environ, cwd=pathlib.Path(), output=1, guard=Stopped())\n"
        "print(script.exit_code(), script.stopped_by)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", stops_at_once], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    assert ended.stdout == f"{-signal.SIGTERM} {int(signal.SIGTERM)}\n"


def test_arguments_arrive_letter_for_letter(run_dir: Path, bridged: Bridged) -> None:
    words = ["$(touch x)", "a b", "", "--", "*", "'\"\\", "ünï", "\n"]
    ended = bridged(
        run_dir, sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *words
    )
    assert ended.returncode == 0
    assert orjson.loads((run_dir / "output.log").read_text()) == words


def test_program_that_is_no_python(run_dir: Path, bridged: Bridged) -> None:
    assert bridged(run_dir, "sh", "-c", "echo 'iter 3: loss 0.5, time 2ms'; exit 4").returncode == 4
    assert records(run_dir, "step") == [{"global_step": 3, "train_loss": 0.5, "step_ms": 2}]


def test_what_is_left_running_is_ended_and_said(run_dir: Path, bridged: Bridged) -> None:
    """Also what ignores SIGTERM."""
    deaf = "trap '' TERM; echo $$; exec sleep 600"
    ended = bridged(run_dir, "sh", "-c", 'sleep 600 & echo $!; setsid -f sh -c "$0"', deaf)
    assert "note: what the program had left running is ended" in ended.stderr
    left = [int(pid) for pid in (run_dir / "output.log").read_text().split()]
    assert len(left) == 2
    wait_until(lambda: [pid for pid in left if _runs(pid)] == [])


def test_killed_bridge_takes_the_program_and_its_children_along(run_dir: Path, started: Started) -> None:
    """Also one that has called setsid, as each worker of torchrun."""
    program = "sleep 600 & setsid -f sh -c 'echo $$; exec sleep 600'; echo $$ $!; wait"
    bridge = started(run_dir, "sh", "-c", program)
    output = run_dir / "output.log"
    wait_until(lambda: len(output.read_text().split()) == 3)
    pids = output.read_text().split()
    bridge.kill()
    bridge.wait()
    for pid in map(int, pids):
        wait_until(lambda pid=pid: not _runs(pid))  # type: ignore[misc]
    assert [bridge.returncode, *map(_runs, map(int, pids))] == [-signal.SIGKILL, False, False, False]


def test_children_go_along_with_a_bridge_killed_as_soon_as_its_program_runs(tmp_path: Path) -> None:
    """Before the bridge could have told the guard itself which group to end."""
    killed_at_once = (
        "import os, pathlib, signal, time\n"
        "from monitoring.bridge.guard import Guard\n"
        "from monitoring.bridge.script import Script\n"
        "log = pathlib.Path('log')\n"
        "to = os.open(log, os.O_WRONLY | os.O_CREAT)\n"
        "command = ['sh', '-c', 'sleep 600 & echo $$ $!; wait']\n"
        "Script(command, environment=os.environ, cwd=pathlib.Path(), output=to, guard=Guard())\n"
        "while not log.read_text():\n"
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", killed_at_once], cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in (tmp_path / "log").read_text().split()]
    wait_until(lambda: [pid for pid in pids if _runs(pid)] == [])


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def reported(run_dir: Path, attempt: int) -> dict[tuple[int, int], int]:
    """How often each place of a source is in the records of an attempt."""
    counts: dict[tuple[int, int], int] = {}
    for record, _ in read_records(run_dir / "metrics.jsonl"):
        mark = record.get(REPORTED)
        if isinstance(mark, dict) and "place" in mark and record["attempt"] == attempt:
            key = mark["source"], mark["place"]
            counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.mark.parametrize("seed", range(4))
def test_after_sigkill_every_value_is_there_once(
    run_dir: Path, seed: int, bridged: Bridged, started: Started
) -> None:
    moments = random.Random(seed)
    bridge = started(run_dir, *ours("nanogpt", LONG, 0.003))
    output = run_dir / "output.log"
    wait_until(lambda: output.exists() and output.read_text().count("iter") > moments.randrange(LONG - 50))
    time.sleep(moments.random())  # the looks of the bridge are a second apart
    program = psutil.Process(bridge.pid).children()
    bridge.kill()
    bridge.wait()
    wait_until(lambda: all(is_gone(process) for process in program))  # it prints no more
    printed = output.read_text().count("time 12.50ms, mfu 1.25%\n")

    ended = bridged(run_dir, *ours("nanogpt", 20))
    assert ended.returncode == 0, ended.stderr

    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    second = next(i for i, r in enumerate(journal) if r["event"] == "start" and r["attempt"] == 2)
    before = [r["global_step"] for r in journal[:second] if r["event"] == "step"]
    assert before == list(range(printed))  # each once, also those that the killed one had not read
    assert [r["global_step"] for r in counting(journal) if r["event"] == "step"] == list(range(20))


@pytest.mark.parametrize("is_open", [False, True])
def test_values_of_a_program_whose_bridge_was_killed_as_it_started(
    run_dir: Path, is_open: bool, bridged: Bridged
) -> None:
    """The program runs before its run is open: what it reported by then is an attempt of its own."""
    if is_open:  # and no record written yet
        opens = f"Run({str(run_dir)!r}, name='a', project='p', config={{}}, agent=False); os._exit(0)"
        subprocess.run([sys.executable, "-c", f"import os; from monitoring import Run; {opens}"], check=True)
    run_dir.mkdir(exist_ok=True)
    (run_dir / "metrics.jsonl").touch()
    (run_dir / "output.log").write_text("iter 0: loss 2.0000, time 12.50ms, mfu 1.25%\n")
    ended = bridged(run_dir, *ours("nanogpt", 2))
    assert ended.returncode == 0, ended.stderr
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    assert [(r["event"], r["attempt"], r.get("global_step")) for r in journal] == [
        ("start", 1, None),
        ("step", 1, 0),
        ("end", 1, None),
        ("start", 2, None),
        ("start", 2, None),  # with what it does again
        ("step", 2, 0),
        ("step", 2, 1),
        ("end", 2, None),
    ]
    assert journal[2]["error"] == "the bridge was killed before it had opened the run"
    assert [r["train_loss"] for r in counting(journal) if r["event"] == "step"] == [4.0, 2.0]


def test_line_that_was_cut_off_in_a_killed_attempt_is_no_value_and_no_part_of_the_next(
    run_dir: Path, bridged: Bridged
) -> None:
    run_dir.mkdir()
    (run_dir / "metrics.jsonl").touch()
    (run_dir / "output.log").write_text("step 1 loss 2.0\nstep 2 loss 1")
    for code in (1, 1, 0):  # of one that ends well it is the program's own
        program = f"print('step 1 loss 1.5'); print('step 2 loss 1.25', end=''); raise SystemExit({code})"
        assert bridged(run_dir, sys.executable, "-c", program).returncode == code
    steps = [(r["global_step"], r["train_loss"]) for r in records(run_dir, "step")]
    assert steps == [(1, 2.0), (1, 1.5), (1, 1.5), (1, 1.5), (2, 1.25)]
    cut_off, *again, whole = (run_dir / "output.log").read_text().splitlines()[1::2]
    assert (cut_off, again, whole) == ("step 2 loss 1\x18", ["step 2 loss 1.25\x18"] * 2, "step 2 loss 1.25")


def test_steps_that_a_killed_attempt_did_again_count_once_though_it_recorded_none(
    run_dir: Path, bridged: Bridged
) -> None:
    """The bridge was killed before it had read them."""
    assert bridged(run_dir, *ours("nanogpt", 4)).returncode == 0
    journal = run_dir / "metrics.jsonl"
    *killed, end = journal.read_bytes().splitlines(keepends=True)
    second = {**orjson.loads(killed[0]), "seq": orjson.loads(end)["seq"], "attempt": 2}
    second["resumed_from"] = {"checkpoint": None, "global_step": 3}
    journal.write_bytes(b"".join([*killed, orjson.dumps(second), b"\n"]))
    with (run_dir / "output.log").open("a") as output:
        output.write("iter 2: loss 9.0000, time 12.50ms\niter 3: loss 8.0000, time 12.50ms\n")
    program = "print('iter 3: loss 7.0000, time 12.50ms')"
    assert bridged(run_dir, sys.executable, "-c", program).returncode == 0
    found = [record for record, _ in read_records(journal)]
    steps = [(r["global_step"], r["train_loss"]) for r in found if r["event"] == "step"]
    assert steps == [(0, 4.0), (1, 2.0), (2, 1.3333), (3, 1.0), (2, 9.0), (3, 8.0), (3, 7.0)]
    counted = [(r["global_step"], r["train_loss"]) for r in counting(found) if r["event"] == "step"]
    assert counted == [(0, 4.0), (1, 2.0), (2, 9.0), (3, 7.0)]


@pytest.mark.parametrize(
    ("every", "resumed", "gone", "counted"),
    [
        (5, {"checkpoint": None, "global_step": 5}, {"first_seq": 7, "last_seq": 10}, 5),
        (100, None, {"first_seq": 1, "last_seq": 10}, 0),
        (1, {"checkpoint": None, "global_step": 8}, None, 8),
    ],
)
def test_what_a_program_with_its_own_checkpoints_does_not_do_again_still_counts(
    run_dir: Path, every: int, resumed: object, gone: object, counted: int, bridged: Bridged
) -> None:
    program = [sys.executable, Path(__file__).with_name("checkpoints.py"), run_dir.parent / "kept", every]
    assert bridged(run_dir, *program).returncode == 3
    assert bridged(run_dir, *program).returncode == 0
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    last = [record for record in journal if record["event"] == "start"][-1]
    assert (last["attempt"], last["resumed_from"], last["supersedes"]) == (2, resumed, gone)
    steps = [(r["attempt"], r["global_step"]) for r in counting(journal) if r["event"] == "step"]
    assert steps == [(1 if step <= counted else 2, step) for step in range(1, 13)]
    assert records(run_dir, "end")[-1] == {"status": "complete", "first_step": 1, "steps_done": 12}


def test_options_of_the_whole_run_do_not_tell_where_an_attempt_goes_on(
    run_dir: Path, bridged: Bridged
) -> None:
    program = [sys.executable, Path(__file__).with_name("checkpoints.py"), run_dir.parent / "kept", 4]
    options = ["--pattern", r"^(?P<step>0) hp_metric=(?P<hp_metric>\S+)"]
    assert [bridged(run_dir, *program, options=options).returncode for _ in range(2)] == [3, 0]
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    assert [r["resumed_from"] for r in journal if r["event"] == "start"] == [
        None,
        {"checkpoint": None, "global_step": 8},
    ]
    losses = [r["global_step"] for r in counting(journal) if "train_loss" in r]
    assert losses == list(range(1, 13))


def test_a_later_attempt_takes_no_file_that_another_program_has_written_meanwhile(
    run_dir: Path, bridged: Bridged, warm_bridge: WarmPython
) -> None:
    assert bridged(run_dir, *ours("nanogpt", 2)).returncode == 0
    assert warm_bridge.run(ours("tensorboard", 3)[1:], cwd=run_dir.parent).returncode == 0
    (file,) = (run_dir.parent / "runs").rglob("events.out.tfevents.*")
    # the first attempt a minute and a half ago, the other program a minute ago
    os.utime(run_dir / "stores" / "processes", times=(time.time() - 90, time.time() - 90))
    os.utime(file, times=(time.time() - 60, time.time() - 60))
    assert bridged(run_dir, *ours("nanogpt", 2)).returncode == 0
    journal = [record for record, _ in read_records(run_dir / "metrics.jsonl")]
    assert [(r["attempt"], r["train_loss"]) for r in journal if r["event"] == "step"] == [
        (1, 4.0),
        (1, 2.0),
        (2, 4.0),
        (2, 2.0),
    ]
    sources = orjson.loads((run_dir / "bridge.json").read_bytes())["sources"]
    assert [source["kind"] for source in sources] == ["output"]


def test_bridge_within_a_bridge_records_a_run_of_its_own(run_dir: Path, bridged: Bridged) -> None:
    inner = run_dir.with_name("inner")
    line = "print('iter 3: loss 0.5, time 2ms')"
    within = [sys.executable, "-m", "monitoring.bridge", inner, "--", sys.executable, "-c", line]
    assert bridged(run_dir, *within).returncode == 0
    assert records(inner, "step") == [{"global_step": 3, "train_loss": 0.5, "step_ms": 2}]
    assert records(inner, "end") == [{"status": "complete", "first_step": 3, "steps_done": 3}]
    assert records(run_dir, "step") == []


def test_second_bridge_of_a_directory_is_refused(run_dir: Path, bridged: Bridged, started: Started) -> None:
    bridge = started(run_dir, "sleep", "600")
    wait_until(lambda: (run_dir / "output.log").exists())
    second = bridged(run_dir, "true")
    bridge.terminate()
    bridge.wait()
    assert second.returncode == 2
    assert second.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "error: there is no command\nhint: python -m monitoring.bridge DIR -- python train.py\n"),
        (["--", "no-such-program"], "error: no-such-program cannot be started: No such file or directory\n"),
    ],
)
def test_what_cannot_run_is_refused_in_a_line(run_dir: Path, command: list[str], said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "monitoring.bridge", str(run_dir), *command],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(said)
