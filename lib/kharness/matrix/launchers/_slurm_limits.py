"""Limits of the cluster, and what it would refuse: found before a matrix is written."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kharness.config.make.typed import typed_setting
from kharness.matrix.launchers._slurm_arrays import SlurmOptions, TaskRequest
from kharness.matrix.launchers._slurm_calls import SlurmRefused, answer, means_full
from kharness.runs.errors import MatrixError

OURSELVES = "LAUNCHER=slurm", "--launcher slurm"

_NAME = re.compile(r"[A-Za-z0-9_.@+-]+(,[A-Za-z0-9_.@+-]+)*", re.ASCII)
_TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}", re.ASCII)

# Flags that would change which cell a job runs, where its output goes or how it is told to save.
OURS = (
    *("array", "chdir", "clusters", "dependency", "error", "export", "export-file", "get-user-env", "input"),
    *("job-name", "kill-on-bad-exit", "no-requeue", "nodes", "ntasks", "open-mode", "output", "parsable"),
    *("quiet", "requeue", "signal", "test-only", "verbose", "wait", "wrap"),
)


@dataclass(frozen=True)
class Partition:
    """A partition, by the largest of its nodes."""

    name: str
    is_default: bool
    seconds: float
    """The longest time limit of a job; infinite for none."""
    memory_mb: int
    cpus: int
    gpus: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.memory_mb, self.cpus, self.gpus


@dataclass(frozen=True)
class ClusterLimits:
    """Sizes that the cluster allows."""

    array_size: int
    partitions: Mapping[str, Partition]

    def has_gpus(self, asked: str) -> bool:
        """Whether one of the partitions asked for, or the default one, has GPUs."""
        return any(one.gpus for one in self.of(asked))

    def of(self, asked: str) -> list[Partition]:
        """The partitions that a list of names means; the default one without any."""
        names = asked.split(",") if asked else []
        return [one for one in self.partitions.values() if (one.name in names if names else one.is_default)]


def read_limits() -> ClusterLimits:
    """Ask Slurm; MatrixError where it does not answer."""
    if shutil.which("sbatch") is None:
        raise MatrixError(
            f"{typed_setting(*OURSELVES)}: there is no sbatch on the PATH",
            hint="run it where sbatch and squeue work, such as the cluster's login node",
        )
    try:
        config = answer("scontrol", "show", "config")
        nodes = answer("sinfo", "-h", "-o", "%P|%l|%m|%c|%G")
    except SlurmRefused as error:
        raise MatrixError(
            f"{typed_setting(*OURSELVES)}: Slurm does not answer: {error}",
            hint="`sinfo` and `squeue` show when it does",
        ) from error
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, flags=re.M)
    partitions: dict[str, Partition] = {}
    for line in nodes.splitlines():
        fields = line.split("|")
        if len(fields) != 5:
            continue  # what a site's wrapper says
        name, limit, memory, cpus, gres = fields
        own, is_default = name.rstrip("*"), name.endswith("*")
        sizes = [_number(memory), _number(cpus), _gpus(gres)]
        if before := partitions.get(own):
            sizes = [max(pair) for pair in zip(sizes, before.sizes, strict=True)]
        partitions[own] = Partition(own, is_default, seconds_of(limit), *sizes)
    return ClusterLimits(max(1, int(size[1])) if size else 1001, partitions)


def refuse(requests: Sequence[TaskRequest], asked: str, limits: ClusterLimits) -> None:
    """Raise MatrixError for a request that Slurm would refuse in these partitions, with their limits."""
    unknown = [name for name in asked.split(",") if name and name not in limits.partitions]
    if unknown:
        raise MatrixError(
            f"{asked_by('LAUNCHER_SLURM_PARTITION')}={asked}: there is no partition {unknown[0]}",
            hint=f"the cluster has {', '.join(limits.partitions)}",
        )
    if not (meant := limits.of(asked)):
        raise MatrixError(
            f"{typed_setting(*OURSELVES)}: the cluster has no default partition",
            hint=f"give {asked_by('LAUNCHER_SLURM_PARTITION')}=, one of {', '.join(limits.partitions)}",
        )
    for request in requests:
        _refuse_too_much(request, meant)
        _refuse_by_slurm(request)


def asked_by(symbol: str) -> str:
    """Return how an option is given: by its symbol, or by the flag of `kharness`."""
    if symbol == "MATRIX_GPUS_PER_CELL":
        return typed_setting(symbol, "--gpus-per-cell")
    return typed_setting(symbol, f"--launcher-option {symbol.removeprefix('LAUNCHER_SLURM_').lower()}")


def check_words(options: SlurmOptions) -> None:
    """Raise MatrixError for options that sbatch does not accept."""
    for name in ("partition", "account", "qos"):
        value: str = getattr(options, name)
        if value and not _NAME.fullmatch(value):
            raise MatrixError(
                f"{asked_by(f'LAUNCHER_SLURM_{name.upper()}')}={value!r} is not a name of Slurm's",
                hint="names are letters, digits and _.@+-",
            )
    if options.time_limit and not _TIME.fullmatch(options.time_limit):
        raise MatrixError(
            f"{asked_by('LAUNCHER_SLURM_TIME_LIMIT')}={options.time_limit!r} is not a time",
            hint="write minutes (30), hours (2:00:00) or days (1-12)",
        )
    of_sbatch = asked_by("LAUNCHER_SLURM_SBATCH")
    try:
        flags = shlex.split(options.sbatch)
    except ValueError as error:
        raise MatrixError(f"{of_sbatch}={options.sbatch!r}: {str(error).lower()}") from error
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if not re.fullmatch(r"--[a-z][a-z0-9-]*(=.*)?", flag, flags=re.S):
            raise MatrixError(
                f"{of_sbatch}: {flag!r} is not --name=value", hint="for example --constraint=a100"
            )
        # sbatch takes any beginning that is that of one option alone.
        taken = [own for own in OURS if own == name or own.startswith(name)]
        if taken:
            raise MatrixError(
                f"{of_sbatch}: --{name} is not yours to set: kharness sets --{taken[0]}",
                hint="leave it out; "
                + typed_setting("LAUNCHER_SLURM_… and JOBS=", "--launcher-option and --jobs")
                + " set what may change",
            )


def _refuse_too_much(request: TaskRequest, meant: Sequence[Partition]) -> None:
    where = "partition " + " or ".join(one.name for one in meant)
    several = request.gpus and request.at_once > 1
    memory, cpus, gpus = (max(amounts) for amounts in zip(*(one.sizes for one in meant), strict=True))
    amounts = [
        ("LAUNCHER_SLURM_GPUS" if several else "MATRIX_GPUS_PER_CELL", request.gpus, gpus, "GPUs"),
        ("LAUNCHER_SLURM_MEMORY_MB", request.options.memory_mb, memory, "MB"),
        ("LAUNCHER_SLURM_CPUS", request.cpus, cpus, "CPUs"),
    ]
    for symbol, wanted, most, unit in amounts:
        if wanted > most:
            raise MatrixError(
                f"{asked_by(symbol)}={wanted} is more than the {most} {unit} per node of {where}",
                hint="ask for less",
            )
    longest = max(one.seconds for one in meant)
    wanted_time = request.options.time_limit
    if wanted_time and seconds_of(wanted_time) > longest:
        raise MatrixError(
            f"{asked_by('LAUNCHER_SLURM_TIME_LIMIT')}={wanted_time} is more than the "
            f"{longest / 60:g} minutes of {where}",
            hint="ask for less: a training that is cut off resumes in another job",
        )


def _refuse_by_slurm(request: TaskRequest) -> None:
    """Refuse what only Slurm knows: accounts, QOS and the site's own rules."""
    try:
        test_only(request)
    except SlurmRefused as error:
        said = str(error)
        if means_full(said):
            return  # what is to be submitted waits until there is room
        if re.search(r"nvalid|not permitted|not available\b(?! now)|violates", said):
            raise MatrixError(
                f"{typed_setting(*OURSELVES)}: sbatch refuses this: {said}", hint=_known(said)
            ) from error


def test_only(request: TaskRequest) -> str:
    """Where and when a job would start, as `sbatch --test-only` says; SlurmRefused where it would not."""
    words = ["sbatch", "--test-only", *request.arguments(), "--output=/dev/null", "--wrap=true"]
    lines = answer(*words, both=True).splitlines()
    return next((line for line in lines if " to start at " in line), " ".join(lines)).removeprefix("sbatch: ")


def _known(said: str) -> str:
    """The accounts and QOS that this user has, where the cluster keeps accounts."""
    lines: list[str] = []
    with contextlib.suppress(SlurmRefused, OSError, KeyError):
        user = pwd.getpwuid(os.getuid()).pw_name  # USER is not set in every shell
        text = answer("sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=account,qos")
        lines = [line for line in text.splitlines() if "|" in line]
    if not lines:
        return "`sbatch --test-only` with the same options shows it; a dry run prints them"
    accounts = dict.fromkeys(line.partition("|")[0] for line in lines)
    qos = dict.fromkeys(one for line in lines for one in line.partition("|")[2].split(",") if one)
    return f"your accounts: {', '.join(accounts)}; QOS: {', '.join(qos) or 'none'}"


def seconds_of(text: str) -> float:
    """Slurm's ways to write a time: minutes, minutes:seconds, hours:minutes:seconds, days-hours…"""
    if not _TIME.fullmatch(text):
        return float("inf")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *parts, 0], 2: [0, *parts], 3: parts}[len(parts)]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str) -> int:
    return int(found[0]) if (found := re.match(r"\d+", text)) else 0


def _gpus(gres: str) -> int:
    """Count the GPUs of `gpu:a100:4(S:0-1),shard:8`."""
    return sum(int(count) for count in re.findall(r"\bgpu:(?:[^,:()]+:)?(\d+)", gres))
