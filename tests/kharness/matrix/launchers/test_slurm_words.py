"""Slurm's answers and messages are understood without a cluster."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kharness.matrix.launchers import _slurm_limits, _slurm_looking, slurm
from kharness.matrix.launchers._slurm_arrays import (
    JOB_SECONDS,
    Array,
    TaskRequest,
    is_packed,
    name_and_index,
)
from kharness.matrix.launchers._slurm_calls import (
    Answer,
    Row,
    SlurmRefused,
    indices_of,
    joined,
    means_full,
    sacct,
    sbatch,
    squeue,
)
from kharness.matrix.launchers._slurm_ends import end_of, unseen_on, waiting_words
from kharness.matrix.launchers._slurm_limits import (
    ClusterLimits,
    Partition,
    check_words,
    read_limits,
    refuse,
    seconds_of,
)
from kharness.matrix.launchers._slurm_packed import cores_of_job
from kharness.matrix.launchers.slurm import Options
from kharness.matrix.running.pending_cells import settled
from kharness.runs.errors import MatrixError
from kharness.runs.jobs.job_file import STEP_MARK, append, attempts_without_step, note_step, read_starts
from kharness.runs.jobs.job_status import attempts_of
from kharness.runs.launch import Exit, Job, JobStart, Launch, Slot
from kharness.runs.status import Attempt, RunStatus, read_status, write_status

STARTED = JobStart("7_0", 0, "node1", 100.0, 0)


def row(state: str, reason: str = "", expected: float | None = None) -> Row:
    return Row("7", state, reason, expected, "node1")


def started(end: Exit | None, *, requeued: bool = False) -> list[JobStart]:
    return [JobStart("7_0", 0, "node1", 100.0, 0, end=end, requeued=requeued)]


KILLED = Exit(None, 9, 200.0)
SAVED = Exit(75, None, 200.0)
FOUND: list[tuple[Row | None, list[JobStart], int, tuple[str | None, int | None] | None]] = [
    # It waits, runs, or has an end that says all.
    (row("PENDING", "Priority"), [], 0, None),
    (row("RUNNING"), started(None), 0, None),
    (row("RUNNING"), started(Exit(0, None, 200.0)), 0, (None, None)),
    # It will be started again, or may be.
    (row("PENDING", "BeginTime"), started(SAVED, requeued=True), 0, None),
    (row("RUNNING"), started(SAVED), 0, None),
    (row("FAILED"), started(SAVED), 1, (None, None)),
    # What Slurm did to it.
    (row("TIMEOUT"), started(SAVED), 1, ("timeout", None)),
    (row("CANCELLED"), started(SAVED), 1, ("cancelled", None)),
    (row("OUT_OF_MEMORY"), started(KILLED), 1, ("out_of_memory", 9)),
    (row("NODE_FAIL"), started(None), 2, ("node_failed", 9)),
    (row("CANCELLED"), [], 1, ("cancelled", None)),
    (row("PENDING", "PartitionTimeLimit"), [], 0, ("launch_failed", None)),
    (row("FAILED"), [], 2, ("launch_failed", None)),
    # A file system of several machines shows the end a little later, and the queue forgets.
    (row("COMPLETED"), started(None), 1, None),
    (None, started(None), 2, ("node_failed", 9)),
    (None, [], 1, None),
    (None, [], 2, ("launch_failed", None)),
]


@pytest.mark.parametrize(("found", "starts", "over", "expected"), FOUND)
def test_how_a_job_has_ended(
    found: Row | None, starts: list[JobStart], over: int, expected: tuple[str | None, int | None] | None
) -> None:
    end = end_of(found, starts, over=over)
    assert (None if end is None else (end.cause, end.signal)) == expected


def test_nodes_that_cannot_open_logs() -> None:
    """A job on another node may begin yet; one on the same node cannot."""
    failed = replace(row("FAILED", "JobLaunchFailure"), nodes="node2")
    assert unseen_on([row("PENDING"), failed, failed]) == "node2"
    assert unseen_on([replace(row("RUNNING"), nodes="node2"), failed]) == "node2"
    assert unseen_on([row("RUNNING"), failed]) == ""
    assert unseen_on([row("FAILED", "NonZeroExitCode")]) == ""


OPTIONS = Options(
    *("", "", "", ""),
    *(0, 0, 0, 60),
    "",
    jobs=0,
    gpus_per_cell=1,
    cells_per_job=1,
    timeout=0,
    fork_server=False,
    gpu_percent=90,
)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_folder_that_other_nodes_see(
    earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a job has begun before, one node that does not see it costs the cells that it gets."""
    monkeypatch.setattr(_slurm_looking, "squeue", lambda names: {("m", 0): row("FAILED", "JobLaunchFailure")})
    launch, job = Launch("run", tmp_path, tmp_path, "model", {}), Job("slurm", "m.0", "", None, 0.0)
    if earlier:
        append(tmp_path, {"event": "start", "submission": "before.0"})
    launcher = slurm.open_launcher(OPTIONS, print)
    launcher.adopt(launch, job)
    end = launcher.poll(job)
    assert (end and end.cause, launcher.refusal() is None) == (
        (None, True) if earlier else ("refused", False)
    )


def test_a_node_that_has_written_a_log_sees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job over its memory may end as one that could not be launched; its log says what it was."""
    monkeypatch.setattr(_slurm_looking, "squeue", lambda names: {("m", 0): row("FAILED", "JobLaunchFailure")})
    monkeypatch.setattr(_slurm_looking, "ASK_EVERY", 0.0)
    launch, job = Launch("run", tmp_path, tmp_path, "model", {}), Job("slurm", "m.0", "", None, 0.0)
    line = "slurmstepd: error: StepId=7.batch exceeded memory limit (2168 > 1024), being killed"
    (tmp_path / ".slurm").mkdir()
    (tmp_path / ".slurm" / "m_0.log").write_text(f"{line}\n")
    launcher = slurm.open_launcher(OPTIONS, print)
    launcher.adopt(launch, job)
    ends = [launcher.poll(job) for _ in range(2)]
    assert [end and (end.cause, end.reason) for end in ends] == [None, ("out_of_memory", line)]
    assert launcher.refusal() is None


def test_tasks_are_named_together() -> None:
    assert joined(["7_0", "7_1", "9_4", "7_2", "7_5"]) == ["7_[0-2,5]", "9_[4]"]
    assert indices_of("0-2,5%4") == [0, 1, 2, 5]
    assert (indices_of("7"), indices_of("N/A")) == ([7], [])


def test_why_a_job_waits() -> None:
    words = [waiting_words(one) for one in (None, row("PENDING", "Priority"), row("CONFIGURING"))]
    assert words == ["", "Priority", "starting"]
    assert waiting_words(row("PENDING", "Resources", 0.0)).startswith("Resources, expected to start at 19")


def test_starts_become_attempts(tmp_path: Path) -> None:
    """One for each start of this submission; a line that a full disk has cut off is none."""
    for restart, node in enumerate(("node1", "node2")):
        known = {"submission": "a.0", "job": "7_0", "restart": restart}
        slot = {"node": node}
        begun = {"event": "start", **known, "node": node, "time": 10.0 * restart, "journal_offset": restart}
        append(tmp_path, {**begun, "slot": slot})
    append(tmp_path, {"event": "end", "submission": "b.0"})
    with (tmp_path / "job.jsonl").open("a") as file:
        file.write('{"event": "end", "subm')
    found = attempts_of(Attempt(1.0, arguments=("--from-scratch",)), read_starts(tmp_path, "a.0"))
    assert [(one.started, one.cause, one.arguments, one.journal_offset) for one in found] == [
        (0.0, "node_failed", ("--from-scratch",), 0),
        (10.0, None, (), 1),
    ]
    assert read_starts(tmp_path, "c.0") == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-0:30", 88200),
        ("infinite", float("inf")),
    ],
)
def test_times_as_slurm_writes_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("partition", "gpu;reboot", "LAUNCHER_SLURM_PARTITION='gpu;reboot' is not a name of Slurm's"),
        ("account", "a b", "LAUNCHER_SLURM_ACCOUNT='a b' is not a name of Slurm's"),
        ("time_limit", "soon", "LAUNCHER_SLURM_TIME_LIMIT='soon' is not a time"),
        ("sbatch", "--arr=1", "LAUNCHER_SLURM_SBATCH: --arr is not yours to set: kharness sets --array"),
        (
            "sbatch",
            "--output=x",
            "LAUNCHER_SLURM_SBATCH: --output is not yours to set: kharness sets --output",
        ),
        ("sbatch", "--wrap=id", "LAUNCHER_SLURM_SBATCH: --wrap is not yours to set: kharness sets --wrap"),
        ("sbatch", "--comment hi", "LAUNCHER_SLURM_SBATCH: 'hi' is not --name=value"),
    ],
)
def test_options_that_break_the_contract(option: str, value: str, error: str) -> None:
    changes: dict[str, Any] = {option: value}
    with pytest.raises(MatrixError) as refused:
        check_words(replace(OPTIONS, **changes))
    assert str(refused.value) == error
    check_words(replace(OPTIONS, sbatch="--constraint=a100 '--comment=a b'", time_limit="1-12"))


def test_an_unknown_account_is_refused_with_those_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a shell without USER, as jobs and containers have it."""
    said = "allocation failure: Invalid account or account/partition combination specified"
    user = pwd.getpwuid(os.getuid()).pw_name
    programs = {
        "sbatch": f"echo {said} >&2; exit 1",
        "sacctmgr": f'case "$*" in *user={user}\\ *) printf "lab|normal,few\\nold|few\\n";; esac',
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("USER", raising=False)
    main = Partition("main", True, 3600.0, 8000, 2, 0)
    with pytest.raises(MatrixError) as refused:
        refuse([TaskRequest(replace(OPTIONS, account="nobodys"), 1)], "", ClusterLimits(1001, {"main": main}))
    assert str(refused.value) == f"LAUNCHER=slurm: sbatch refuses this: {said}"
    assert refused.value.hint == "your accounts: lab, old; QOS: normal, few"


def test_an_array_has_no_name_of_a_user_in_a_script(tmp_path: Path) -> None:
    hostile = tmp_path / "$(touch harm)%j" / "test_matrix; rm"
    cell = Launch("a'b", hostile / "a'b", tmp_path, "m", {})
    (hostile / "a'b").mkdir(parents=True)
    (hostile / "matrix.json").touch()
    options = replace(OPTIONS, partition="gpu", sbatch="--constraint=a100")
    array = Array.begin(cell, TaskRequest(options, cpus=2, gpus=1))
    assert name_and_index(array.add(cell, Slot())) == (array.name, 0)
    array.write()
    assert (hostile / ".slurm/job.sh").read_text() == '#!/bin/sh\nexec "$@"\n'
    arguments = array.arguments(0, 0, at_once=3, after="41")
    assert arguments[:2] == ["--array=0-0%3", f"--job-name={array.name}"]
    assert set(array.name) <= set("abcdefghijklmnopqrstuvwxyz_-0123456789")
    assert {"--gres=gpu:1", "--cpus-per-task=2", "--dependency=afterany:41"} <= set(arguments)
    assert f"{tmp_path}/$(touch harm)%%j/test_matrix; rm/.slurm/{array.name}_%a.log" in arguments[3]


def test_cells_are_put_into_jobs_by_number_or_by_duration(tmp_path: Path) -> None:
    half = JOB_SECONDS / 2

    def tasks(most: int, *seconds: float | None, at_once: int = 1) -> list[list[str]]:
        request = TaskRequest(replace(OPTIONS, cells_per_job=most), cpus=1, at_once=at_once)
        array = Array(tmp_path, tmp_path, request, "a")
        for expected in seconds:
            array.add(Launch("c", tmp_path, tmp_path, "m", {}, expected=expected), Slot())
        return [array.ids(index) for index in range(len(array.tasks))]

    assert tasks(1, 1.0, 1.0) == [["a.0"], ["a.1"]]
    assert tasks(2, None, 1.0, 1.0) == [["a.0-0", "a.0-1"], ["a.1-0"]]
    assert tasks(0, None, 3 * half, half, half, 1.0) == [["a.0-0"], ["a.1-0"], ["a.2-0", "a.2-1"], ["a.3-0"]]
    assert tasks(0, half, half, half, half, 1.0, at_once=2) == [[f"a.0-{k}" for k in range(4)], ["a.1-0"]]
    assert tasks(0, 3 * half, 1.0, at_once=2) == [["a.0-0"], ["a.1-0"]]
    assert (name_and_index("a.b.2-1"), is_packed("a-b.2-1"), is_packed("a-b.2")) == (("a.b", 2), True, False)


def test_a_job_of_several_cells_asks_for_what_they_share(tmp_path: Path) -> None:
    limits = ClusterLimits(1001, {"gpu": Partition("gpu", True, 60.0, 1000, 16, 8)})

    def request(device: str, threads: int = 2, **changes: Any) -> tuple[int, int, int]:
        launch = Launch("c", tmp_path, tmp_path, "m", {"DEVICE": device}, threads=threads)
        found = replace(OPTIONS, **changes).request(launch, limits)
        return found.cpus, found.gpus, found.at_once

    assert request("cpu") == (2, 0, 1)
    assert request("cpu", cpus=8) == (8, 0, 1)
    assert request("cpu", cells_per_job=4) == (2, 0, 1)
    assert request("cpu", cells_per_job=4, cpus=8) == (8, 0, 4)
    assert request("cpu", threads=0, cells_per_job=4, cpus=8) == (8, 0, 1)
    assert request("cuda", gpus_per_cell=2) == (2, 2, 1)
    assert request("auto", cells_per_job=0, gpus=4) == (8, 4, 4)
    assert request("cuda", cells_per_job=2, gpus=4) == (4, 4, 4)
    assert request("cuda", cells_per_job=0, gpus=4, gpus_per_cell=2, cpus=16) == (16, 4, 2)
    assert request("cuda", gpus=4) == (2, 1, 1)  # a job of one cell
    with pytest.raises(
        MatrixError, match="LAUNCHER_SLURM_GPUS=3 is not a multiple of MATRIX_GPUS_PER_CELL=2"
    ):
        slurm.check(replace(OPTIONS, cells_per_job=0, gpus=3, gpus_per_cell=2), [])


def test_cores_are_those_of_the_job(tmp_path: Path) -> None:
    """Where Slurm binds it to them, a cell can be bound too; else the job only knows how many it has."""
    here = sorted(os.sched_getaffinity(0))
    bound = [(processor,) for processor in here]  # a root without /sys knows no siblings
    assert cores_of_job({}, tmp_path) == (bound, True)
    assert cores_of_job({"SLURM_CPUS_ON_NODE": str(len(here))}, tmp_path) == (bound, True)
    assert cores_of_job({"SLURM_CPUS_ON_NODE": "1"}, tmp_path) == (bound[:1], len(here) == 1)


def test_a_cell_whose_job_dies_before_its_turn() -> None:
    """It is nothing that did not start, but where somebody cancelled it."""
    dead = [end_of(found, [], over=2, has_begun=True) for found in (row("NODE_FAIL"), None, row("CANCELLED"))]
    assert [(end.cause, end.reason) for end in dead if end] == [
        ("node_failed", "its node failed before its turn"),
        ("node_failed", "its job ended before its turn"),
        ("cancelled", "its job was cancelled while it waited"),
    ]
    assert waiting_words(row("RUNNING"), is_packed=True) == "its job runs other cells first"


def test_a_job_killed_for_its_memory_before_it_noted_a_start() -> None:
    """Where the machine is busy, its limit is sooner than its first line."""
    end = end_of(row("OUT_OF_MEMORY"), [], over=2)
    assert end is not None
    assert (end.cause, end.reason) == (
        "out_of_memory",
        "over the memory limit of its job on node1 before it began",
    )


SACCT = """\
a|7_0|OUT_OF_MEMORY|node1|300
a|7_1|CANCELLED by 0|None assigned|300
a|7_2|RUNNING|node1|Unknown
a|7_[3-4]|TIMEOUT|node2|300
b|c|8_0|NODE_FAIL|node1|300
"""


def test_what_a_site_says_beside_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plugins print on standard error, its wrappers on the other as well."""
    starts = "Job 7 to start at 2026-11-27T14:10:00 using 1 processors on nodes node1 in partition main"
    greeting = "echo Welcome to the cluster"
    lua = "echo 'sbatch: lua: your job goes to lab' >&2"
    programs = {
        "sbatch": f"{lua}; {greeting}; [ $1 = --test-only ] && echo 'sbatch: {starts}' >&2 || echo '7;test'",
        "squeue": f"{greeting}; echo 'm|0|7|RUNNING|100|node1|None'; echo Hinweis >&2",
        "sacct": f"{greeting}; echo 'm|7_0|TIMEOUT|node1|300'",
        "scontrol": f"{greeting}; echo 'MaxArraySize            = 11'",
        "sinfo": f"{greeting}; echo 'main*|1:00:00|8000|2|gpu:2'",
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert sbatch([]) == (Answer.TAKEN, "7")
    assert squeue(["m"]) == {("m", 0): Row("7", "RUNNING", "", 100.0, "node1")}
    assert sacct(["m"], 200.0) == {("m", 0): Row("7", "TIMEOUT", "", None, "node1", "", 300.0)}
    assert read_limits() == ClusterLimits(11, {"main": Partition("main", True, 3600.0, 8000, 2, 2)})
    assert _slurm_limits.test_only(TaskRequest(OPTIONS, cpus=1)) == starts


def test_a_queue_without_room_and_a_limit_that_stays() -> None:
    """Slurm ends both with the same words, after the name of the limit."""
    same = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    assert [
        means_full(f"{limit}; {same}") for limit in ("AssocMaxSubmitJobLimit", "QOSMaxCpuPerJobLimit")
    ] == [
        True,
        False,
    ]
    assert means_full(same)
    assert not means_full("Invalid qos specification")


def test_a_job_that_ends_after_the_question_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that end between the question to Slurm and the reading of their files count as ended."""
    runs = [tmp_path / name for name in ("seed-1", "seed-2")]
    for index, run in enumerate(runs):
        run.mkdir()
        job = asdict(Job("slurm", f"m.{index}", "", None, 100.0))
        write_status(run, RunStatus("queued", [Attempt(100.0, job=job)]))
        begun = {"event": "start", "submission": f"m.{index}", "job": f"7_{index}", "restart": 0}
        append(run, {**begun, "node": "node1", "time": 100.0, "journal_offset": 0, "slot": {}})
    end: dict[str, object] = {"event": "end", "submission": "m.0", "time": 200.0, "exit_code": 1}
    end |= {"signal": None, "cause": None, "reason": None, "requeued": False}
    programs = {
        "squeue": "echo 'm|0|7|RUNNING|100|node1|None'",
        "sacct": f"echo '{json.dumps(end)}' >> {runs[0]}/job.jsonl",  # between the two
    }
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    launches = [Launch(run.name, run, tmp_path, "m", {}) for run in runs]
    found = settled(launches, {"LAUNCHER": "slurm"})
    assert [status.status for status in found] == ["failed", "killed"]
    assert [read_status(run) for run in runs] == found


def test_what_the_accounts_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a job that runs by it says nothing: the accounts have not caught up."""
    program = tmp_path / "sacct"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SACCT}END\n")
    program.chmod(0o755)
    found = sacct(["a", "b|c"], 200.0) or {}
    assert {key: (row.state, row.nodes, row.by, row.ended) for key, row in found.items()} == {
        ("a", 0): ("OUT_OF_MEMORY", "node1", "", 300.0),
        ("a", 1): ("CANCELLED", "", "root", 300.0),
        ("a", 3): ("TIMEOUT", "node2", "", 300.0),
        ("a", 4): ("TIMEOUT", "node2", "", 300.0),
        ("b|c", 0): ("NODE_FAIL", "node1", "", 300.0),
    }
    program.write_text("#!/bin/sh\necho Slurm accounting storage is disabled >&2; exit 1\n")
    assert sacct(["a"], 200.0) is None
    program.write_text("#!/bin/sh\necho sacct: error: Problem talking to the database >&2; exit 1\n")
    with pytest.raises(SlurmRefused):
        sacct(["a"], 200.0)


@pytest.mark.parametrize(
    ("state", "cause", "reason"),
    [
        ("OUT_OF_MEMORY", "out_of_memory", "over the memory of its job on node1"),
        ("TIMEOUT", "timeout", "over the time limit of its job on node1"),
        ("PREEMPTED", "preempted", "preempted on node1"),
        ("NODE_FAIL", "node_failed", "its node failed on node1"),
        ("CANCELLED", "cancelled", "its job was cancelled by ann on node1"),
    ],
)
def test_the_accounts_say_why_a_job_is_gone(state: str, cause: str, reason: str) -> None:
    """But not with a line of a start before the last one."""
    by = "ann" if state == "CANCELLED" else ""
    end = end_of(Row("7", state, "", None, "node1", by, 300.0), started(None), over=2)
    assert end is not None
    assert (end.cause, end.reason, end.ended) == (cause, reason, 300.0)
    stale = end_of(Row("7", state, "", None, "node1", by, 30.0), started(None), over=2)
    assert stale is not None
    assert (stale.cause, stale.signal) == ("node_failed", 9)
    assert "has noted no end" in str(stale.reason)


def test_attempts_at_one_step_are_counted_over_jobs(tmp_path: Path) -> None:
    """Jobs and the runner share the count; after three attempts without a new step none is submitted."""
    assert attempts_without_step(tmp_path) == 0
    assert [note_step(tmp_path, step) for step in (0, 0, 5, 5, 5)] == [1, 2, 1, 2, 3]
    assert attempts_without_step(tmp_path) == 3
    (tmp_path / STEP_MARK).write_text("cut o")
    assert attempts_without_step(tmp_path) == 0
