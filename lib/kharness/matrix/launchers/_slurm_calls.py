"""Slurm's programs: what is asked of sbatch, squeue, scancel, scontrol and sacct, and what they answer."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from kharness.runs.launch import Slot, environment_of_runs

# Where munged listens unless it is told another place.
MUNGE_SOCKET = "/run/munge/munge.socket.2"

SECONDS = 60.0
"""Time that a program may take: each tries again by itself while its controller does not answer."""

# A job has no end in these states.
ACTIVE = frozenset(
    {
        *("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING"),
        *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED"),
    }
)
# sbatch takes some of its options from the environment, too: of them only where a job runs, and for whom.
TAKEN = frozenset({"SLURM_CONF", "SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION"})
# The login node's own GPUs are not those of the job.
OF_THIS_HOST = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

_FULL = (
    "temporarily unable to accept",
    "submit limit",
    "MaxSubmit",
    "exceeds configured limit",
    "MaxJobCount",
)
_AWAY = (
    *("Socket timed out", "Unable to contact", "Zero Bytes", "Connection refused", "Connection timed out"),
    *("Communication connection failure", "in standby mode", "Transport endpoint", "not responding"),
    "authentication error",  # munged is down, here or there
)
# A limit in Slurm's words, of which those on submission alone pass by themselves.
_LIMIT = re.compile(r"\b(?:Assoc|QOS)\w+")
_CHUNK = 100  # ranges of tasks in one name


class Answer(Enum):
    """The answer to a submission."""

    TAKEN = "taken"
    FULL = "full"
    """There is no room for so many jobs now."""
    UNKNOWN = "unknown"
    """The controller did not answer, and may have taken it."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Row:
    """One job, or task of an array, as squeue shows it."""

    job: str
    """Its id, without the index."""
    state: str
    reason: str
    expected: float | None
    """When it is to start, or has started, UTC epoch seconds."""
    nodes: str
    by: str = ""
    """Who has cancelled it, where the cluster keeps accounts."""
    ended: float | None = None
    """When, as the accounts have it."""

    def task(self, index: int) -> str:
        """Slurm's own name for a task of the array, `1234_7`."""
        return f"{self.job}_{index}"

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE


def sbatch(arguments: Sequence[str]) -> tuple[Answer, str]:
    """Submit a job; returns its id, or the reason why it was refused."""
    if dead := dead_munge():
        return Answer.UNKNOWN, dead
    command = ["sbatch", "--parsable", *arguments]
    with subprocess.Popen(
        command,
        env=job_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C must not leave it open whether the job is there
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line.strip().removeprefix("sbatch: ").removeprefix("error: "))
            # It would try for two minutes, in which nobody would look after what runs.
            if "sleeping and retrying" in line or "temporarily unable to accept" in line:
                process.kill()
        output = process.stdout.read()
    code = process.returncode
    reason = "; ".join(said) or f"exit code {code}"
    # A site's wrapper may greet before it.
    if code == 0 and (words := output.split()):
        return Answer.TAKEN, words[-1].partition(";")[0]
    if means_full(reason):
        return Answer.FULL, reason
    return (Answer.UNKNOWN if any(word in reason for word in _AWAY) else Answer.REFUSED), reason


def means_full(reason: str) -> bool:
    """Whether sbatch refuses for want of room only, which comes when other jobs have ended."""
    if limits := _LIMIT.findall(reason):
        return any("Submit" in limit for limit in limits)
    return any(word in reason for word in _FULL)


def squeue(names: Sequence[str]) -> dict[tuple[str, int], Row]:
    """The tasks of arrays of these names by name and index, also those that have ended a while ago.

    SlurmAway where the controller does not answer.
    """
    if not names:
        return {}
    columns = "%j|%K|%F|%T|%S|%N|%r"
    text = answer("squeue", "-h", "-r", "-t", "all", f"--name={','.join(names)}", "-o", columns)
    found: dict[tuple[str, int], Row] = {}
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) < 7:
            continue  # what a site's wrapper says
        name, index, job, state, expected, nodes, reason = fields
        start = float(expected) if expected.isdecimal() else None
        row = Row(job, state, "" if reason == "None" else reason, start, nodes)
        for task in indices_of(index):
            before = found.get((name, task))
            # Of two jobs of one name, as a submission in doubt leaves them, the one that is not over counts.
            found[name, task] = before if before and before.is_active and not row.is_active else row
    return found


def sacct(names: Sequence[str], since: float) -> dict[tuple[str, int], Row] | None:
    """Tasks of arrays of these names, submitted after `since`, that have ended as the accounts have it.

    None where the cluster keeps none; SlurmRefused where they do not answer. A line that has not caught up
    yet, of a job that runs or waits by it, is left out.
    """
    if not names:
        return {}
    # A day before: the clock of the cluster may be another, and those times are of no zone.
    begin = time.strftime("%Y-%m-%d", time.localtime(since - 86400))
    columns = "JobName,JobID,State,NodeList,End"
    command = ["sacct", "-n", "-P", "-X", f"--name={','.join(names)}", "-S", begin, "-o", columns]
    try:
        text = answer(*command)
    except SlurmRefused as error:
        if "storage is disabled" in str(error) or "No such file" in str(error):
            return None
        raise
    found: dict[tuple[str, int], Row] = {}
    for line in text.splitlines():
        fields = line.rsplit("|", 4)
        if len(fields) < 5:
            continue  # what a site's wrapper says
        name, id, state, nodes, ended = fields
        job, _, index = id.partition("_")
        state, _, by = state.partition(" by ")
        time_of_end = float(ended) if ended.isdecimal() else None
        row = Row(job, state, "", None, "" if nodes.startswith("None") else nodes, _user(by), time_of_end)
        if not row.is_active:
            found |= {(name, task): row for task in indices_of(index.strip("[]"))}
    return found


def _user(uid: str) -> str:
    """The name of a user by the number, where this host knows it."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError):
        return uid


def indices_of(text: str) -> list[int]:
    """Return the tasks that `7`, `0-3,5` or `0-99%4` mean: an array that has ended as a whole is one row."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found += range(int(first), int(last or first) + 1)
    return found


def joined(jobs: Sequence[str]) -> list[str]:
    """Name tasks of one array together, `7_[0-3,5]`: scancel makes a request for each name."""
    tasks: dict[str, list[int]] = {}
    for job in jobs:
        array, _, task = job.partition("_")
        tasks.setdefault(array, []).append(int(task))
    names = []
    for array, indices in tasks.items():
        ranges: list[list[int]] = []
        for index in sorted(indices):
            if ranges and index == ranges[-1][1] + 1:
                ranges[-1][1] = index
            else:
                ranges.append([index, index])
        words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
        names += [f"{array}_[{','.join(words[i : i + _CHUNK])}]" for i in range(0, len(words), _CHUNK)]
    return names


def scancel(jobs: Sequence[str], *options: str) -> None:
    """Cancel or signal tasks of arrays; those that have ended meanwhile do not matter.

    SlurmAway where the controller does not answer.
    """
    for name in joined(jobs):
        try:
            answer("scancel", "--quiet", *options, name)
        except SlurmAway:
            raise
        except SlurmRefused:
            continue


class SlurmRefused(Exception):
    """A program of Slurm's says no."""


class SlurmAway(SlurmRefused):
    """The controller does not answer."""


def answer(*command: str, both: bool = False) -> str:
    """Return what a program prints, with `both` on both streams; SlurmAway or SlurmRefused in its words."""
    if dead := dead_munge():
        raise SlurmAway(dead)
    try:
        done = subprocess.run(
            command, env=asking(), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SlurmAway(f"{command[0]} gives no answer") from None
    except OSError as error:
        raise SlurmRefused(f"{command[0]}: {error.strerror}") from error
    if done.returncode == 0:
        return done.stdout + (done.stderr if both else "")
    lines = done.stderr.strip().splitlines() or [f"{command[0]}: exit code {done.returncode}"]
    told = lines if both else lines[-1:]
    reason = "; ".join(line.removeprefix(f"{command[0]}: ").removeprefix("error: ") for line in told)
    raise (SlurmAway if any(word in done.stderr for word in _AWAY) else SlurmRefused)(reason)


def dead_munge() -> str:
    """The socket that munged has left; empty where it listens. Slurm's programs try for 50 seconds."""
    path = _munge_socket()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return f"munged does not answer at {path}"
        except OSError:  # not there, not ours to read, or busy: Slurm's programs say it soon
            return ""
    return ""


@cache
def _munge_socket() -> str:
    """Where slurm.conf has it, as far as it can be read here."""
    for place in (os.environ.get("SLURM_CONF", ""), "/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf"):
        try:
            text = Path(place).read_text(errors="replace")
        except OSError:
            continue
        named = re.search(r"^\s*AuthInfo\s*=.*?\bsocket=([^,\s]+)", text, flags=re.M | re.I)
        return named[1] if named else MUNGE_SOCKET
    return MUNGE_SOCKET


def asking() -> Mapping[str, str]:
    """Return the environment of a Slurm program whose output is parsed."""
    return {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def job_environment() -> dict[str, str]:
    """The environment that sbatch hands on to the job."""
    ours = environment_of_runs(Slot())
    return {
        name: value
        for name, value in ours.items()
        if name in TAKEN or not name.startswith(("SLURM_", "SBATCH_", *OF_THIS_HOST))
    }
