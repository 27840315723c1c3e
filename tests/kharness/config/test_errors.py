"""The one place where an error becomes lines on the terminal and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import termios

import pytest


def run(body: str) -> tuple[int, str]:
    code = f"""
from kharness.config.errors import ConfigError, KharnessError, run_command
from monitoring.errors import UserError

class CellFailed(KharnessError):
    exit_code = 3

class Foreign(UserError):
    pass

def main(argv):
    {body}

run_command(main)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("return None", 0, ""),
        ("return 75", 75, ""),
        ("raise ConfigError('x is wrong', hint='do y')", 2, "error: x is wrong\nhint: do y\n"),
        ("raise ConfigError('x is wrong')", 2, "error: x is wrong\n"),
        ("raise CellFailed('one cell failed', hint='see log')", 3, "error: one cell failed\nhint: see log\n"),
        ("raise Foreign('elsewhere', hint='try this')", 2, "error: elsewhere\nhint: try this\n"),
        ("raise KeyboardInterrupt", 130, ""),
        (
            "raise OSError(28, 'No space left on device', 'a/b')",
            74,
            "error: a/b: no space left on device\nhint: free some space\n",
        ),
        (
            "open('/dev/full', 'wb', 0).write(b'x')",
            74,
            "error: no space left on device\nhint: free some space\n",
        ),
    ],
)
def test_command_ends_with(body: str, code: int, stderr: str) -> None:
    assert run(body) == (code, stderr)


def test_prompt_after_ctrl_c_has_a_line_of_its_own() -> None:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    body = "from kharness.config.errors import run_command\nrun_command(lambda argv: signal.raise_signal(2))"
    done = subprocess.run([sys.executable, "-c", f"import signal\n{body}"], stderr=slave, check=False)
    assert (done.returncode, os.read(master, 100)) == (130, b"\r\n")
    os.close(slave)
    os.close(master)


def test_bug_keeps_its_traceback() -> None:
    code, stderr = run("raise ValueError('a bug')")
    assert code == 1
    assert stderr.startswith("Traceback (most recent call last):\n")
    assert stderr.endswith("ValueError: a bug\n")


def test_output_that_is_on_the_full_disk_still_gives_the_exit_code() -> None:
    code = "from kharness.config.errors import run_command\nrun_command(lambda argv: print('x', flush=True))"
    with open("/dev/full", "w") as full:
        both = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=full, check=False)
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert both.returncode == 74
    assert (done.returncode, done.stderr) == (
        74,
        "error: what was printed: no space left on device\nhint: free some space\n",
    )


def test_printing_goes_on_on_a_full_disk_and_its_own_code_counts() -> None:
    body = "[print('x', flush=True) for _ in range(3)] and 7"
    code = f"from kharness.config.errors import run_command\nrun_command(lambda argv: {body})"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, check=False)
    assert done.returncode == 7


def test_closed_standard_output_is_no_error() -> None:
    code = "from kharness.config.errors import run_command\nrun_command(lambda argv: print('x'))"
    command = ["bash", "-c", '"$@" >&-', "bash", sys.executable, "-c", code]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_reader_that_leaves_early_is_no_error() -> None:
    command = f'{sys.executable} -c "$CODE" | head -1'
    body = "print(chr(10).join(['line'] * 100000))"
    code = f"from kharness.config.errors import run_command\nrun_command(lambda argv: {body})"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={"CODE": code},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "line\n", "")


def test_value_that_the_terminal_cannot_show_is_escaped() -> None:
    code = "from kharness.config.errors import run_command\nrun_command(lambda argv: print('\u6570'))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "\\u6570\n")
