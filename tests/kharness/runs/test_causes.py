"""The verdict on a run that has ended: its status, the kind of the cause, and the reason in words."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kharness.runs.causes import Stop, judge, judge_unseen, other_values
from kharness.runs.launch import Exit

from ..matrix.conftest import tail

START = {"event": "start", "config": {"SEED": 1, "TRACKER_PROJECT": "p-12345"}}
STEP = {"event": "step", "global_step": 4, "train_loss": 0.5}
COMPLETE = {"event": "end", "status": "complete"}
INTERRUPTED = {"event": "end", "status": "interrupted"}
FAILED = {"event": "end", "status": "failed", "error": "ValueError: x"}
ASKED = {"SEED": 1, "TRACKER_PROJECT": "{model}-{checksum}"}
BY_HAND = Stop("stopped")
TIMEOUT = Stop("timeout", "over the limit of 9 s")
LOSING = Stop("stopped_early", "rank 3 of 3")


@pytest.mark.parametrize(
    ("exit_code", "number", "stop", "records", "verdict"),
    [
        (0, None, None, [START, COMPLETE], ("complete", None, None)),
        (0, None, BY_HAND, [START, COMPLETE], ("complete", None, None)),
        (0, None, TIMEOUT, [START, COMPLETE], ("complete", None, None)),
        (0, None, None, [], ("failed", "error", "exit code 0, but the journal's end record is missing")),
        (
            *(0, None, None, [START, INTERRUPTED]),
            ("failed", "error", "exit code 0, but the journal's end record says interrupted"),
        ),
        (
            *(0, None, None, [{"event": "start", "config": {"SEED": 2}}, COMPLETE]),
            ("failed", "other_values", "ran with other values than requested: SEED=2, requested 1"),
        ),
        (
            *(75, None, BY_HAND, [START, STEP, INTERRUPTED]),
            ("interrupted", "stopped", "stopped on request after step 4"),
        ),
        (  # LOG_EVERY=4
            *(75, None, BY_HAND, [START, STEP, {**INTERRUPTED, "steps_done": 7}]),
            ("interrupted", "stopped", "stopped on request after step 7"),
        ),
        (  # a program that counts from 0
            *(143, None, TIMEOUT, [START, STEP, {**INTERRUPTED, "first_step": 0, "steps_done": 5}]),
            ("timeout", "timeout", "over the limit of 9 s; stopped on request after step 4"),
        ),
        (
            *(75, None, None, [START, STEP, INTERRUPTED]),
            ("interrupted", "stopped", "stopped on request after step 4"),
        ),
        (
            *(130, None, BY_HAND, []),
            ("interrupted", "stopped", "stopped on request before its first step"),
        ),
        (
            *(None, 15, BY_HAND, []),
            ("interrupted", "stopped", "stopped on request before its first step"),
        ),
        (
            *(None, 9, BY_HAND, [START, STEP]),
            ("killed", "stopped", "killed after step 4, before it had stopped"),
        ),
        (
            *(75, None, TIMEOUT, [START, STEP, INTERRUPTED]),
            ("timeout", "timeout", "over the limit of 9 s; stopped on request after step 4"),
        ),
        (
            *(None, 9, TIMEOUT, [START, STEP]),
            ("timeout", "timeout", "over the limit of 9 s; killed after step 4, before it had stopped"),
        ),
        (
            *(75, None, LOSING, [START, STEP, INTERRUPTED]),
            ("interrupted", "stopped_early", "rank 3 of 3; stopped on request after step 4"),
        ),
        # A failure of its own is told, even where it was asked to stop.
        (74, None, BY_HAND, [START], ("failed", "disk_full", "exit code 74")),
        (1, None, BY_HAND, [START, FAILED], ("failed", "error", "exit code 1: ValueError: x")),
        (None, 9, None, [START, STEP], ("killed", "signal", "signal 9 (SIGKILL)")),
        (137, None, None, [START, STEP], ("killed", "signal", "signal 9 (SIGKILL)")),
        (None, int(signal.SIGSEGV), None, [], ("killed", "signal", "signal 11 (SIGSEGV)")),
        (None, None, None, [], ("failed", "error", "its end is unknown")),
        (1, None, None, [START, FAILED], ("failed", "error", "exit code 1: ValueError: x")),
        (2, None, None, [], ("failed", "refused", "exit code 2")),
        (65, None, None, [START], ("failed", "non_finite", "exit code 65")),
        (71, None, None, [START], ("failed", "out_of_memory", "exit code 71")),
        (74, None, None, [START], ("failed", "disk_full", "exit code 74")),
        (
            *(1, None, None, [START, {**FAILED, "cause": "device"}]),
            ("failed", "device", "exit code 1: ValueError: x"),
        ),
    ],
)
def test_verdict(
    tmp_path: Path,
    exit_code: int | None,
    number: int | None,
    stop: Stop | None,
    records: list[dict[str, Any]],
    verdict: tuple[str, str | None, str | None],
) -> None:
    found = judge(Exit(exit_code, number, ended=2.0), tail(tmp_path, *records), ASKED, stop=stop)
    assert (found.status, found.cause, found.reason) == verdict


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            ["error: first", "hint: a", "error: DEVICE=cuda: no GPU", "hint: b"],
            "exit code 2: DEVICE=cuda: no GPU",
        ),
        (
            ["note: x", "Traceback (most recent call last):", "  File y", "KeyError: 'z'", "cleaning up"],
            "exit code 2: KeyError: 'z'",
        ),
        (["Warning: before", "Traceback (most recent call last):", "  File y"], "exit code 2"),
        (["RuntimeError: without a traceback"], "exit code 2"),
    ],
)
def test_what_it_said_is_the_reason(tmp_path: Path, output: list[str], reason: str) -> None:
    found = judge(Exit(2, None, ended=2.0), tail(tmp_path), ASKED, output=output)
    assert (found.status, found.cause, found.reason) == ("failed", "refused", reason)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "out_of_memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "out_of_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        ("RuntimeError: HIP out of memory", "out_of_memory"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("OSError: [Errno 122] Disk quota exceeded: 'x.pt'", "disk_full"),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", "device"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "device"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "device"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1", "device"),
        ("kharness.training.errors.NonFiniteError: step 3: loss nan", "non_finite"),
        ("ValueError: the memory of the CUDA course is out", "error"),
    ],
)
def test_what_a_training_could_not_say_is_read_from_its_last_words(
    tmp_path: Path, line: str, cause: str
) -> None:
    output = ["Traceback (most recent call last):", line, "and a line of something else"]
    assert judge(Exit(1, None, ended=2.0), tail(tmp_path), {}, output=output).cause == cause
    died = judge(Exit(None, int(signal.SIGABRT), ended=2.0), tail(tmp_path), {}, output=output)
    assert (died.status, died.cause) == ("killed", "signal" if cause == "error" else cause)


def test_what_the_launcher_knows_goes_first(tmp_path: Path) -> None:
    killed = Exit(None, 9, ended=2.0, cause="out_of_memory", reason="the kernel's OOM killer took it")
    found = judge(killed, tail(tmp_path), {}, output=["CUDA error: x"])
    assert (found.status, found.cause, found.reason) == (
        *("killed", "out_of_memory"),
        "the kernel's OOM killer took it",
    )


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        ([], ("killed", "runner_died", "its runner died before a step was recorded")),
        ([START, STEP], ("killed", "runner_died", "its runner died after step 4")),
        ([START, STEP, COMPLETE], ("complete", None, None)),
        ([START, STEP, INTERRUPTED], ("interrupted", "stopped", "stopped on request after step 4")),
        (
            [START, STEP, {**INTERRUPTED, "steps_done": 7}],
            ("interrupted", "stopped", "stopped on request after step 7"),
        ),
        (
            [START, {**FAILED, "cause": "non_finite"}],
            ("failed", "non_finite", "its runner died; the journal says ValueError: x"),
        ),
    ],
)
def test_a_run_that_outlived_its_runner_is_judged_by_its_journal(
    tmp_path: Path, records: list[dict[str, Any]], verdict: tuple[str, str | None, str | None]
) -> None:
    found = judge_unseen(tail(tmp_path, *records), ASKED)
    assert (found.status, found.cause, found.reason) == verdict


def test_what_it_printed_says_why_it_ended_with_its_runner(tmp_path: Path) -> None:
    state = tail(tmp_path, START, STEP)
    full = "OSError: [Errno 28] No space left on device"
    found = judge_unseen(state, ASKED, ["step 4", full, "cleaning up"])
    assert (found.status, found.cause) == ("killed", "disk_full")
    assert found.reason == f"its runner died after step 4; the output says: {full}"
    found = judge_unseen(state, ASKED, ["NonFiniteError: step 9", "step 4"])
    assert (found.cause, found.reason) == ("runner_died", "its runner died after step 4")


def test_values_are_compared_as_json_holds_them() -> None:
    asked = {"RATE": 1000.0, "BETAS": [0.9, 1.0], "NAME": "a", "FLAG": True}
    assert other_values(json.loads(json.dumps(asked)), asked) == ""
    assert other_values({**asked, "FLAG": 1}, asked) == "FLAG=1, requested True"
    assert other_values({}, {"A": 1}) == "A is not recorded"


def test_what_was_left_to_trials_is_the_trainings_to_choose() -> None:
    asked = {"BATCH_SIZE_AUTO": True, "BATCH_SIZE": 8, "AMP": "auto", "AMP_AUTO": True, "AMP_NONE": False}
    chosen = {"BATCH_SIZE_AUTO": False, "MICRO_BATCH_SIZE": 4, "BATCH_SIZE": 8}
    precision = {"AMP": "none", "AMP_AUTO": False, "AMP_NONE": True}
    assert other_values({**chosen, **precision}, asked) == ""
    assert other_values({**chosen, **precision, "BATCH_SIZE": 6}, asked) == "BATCH_SIZE=6, requested 8"
    by_hand = {"AMP": "none", "AMP_AUTO": False, "AMP_NONE": True, "COMPILE": True, "COMPILE_AUTO": False}
    assert other_values({**by_hand, "COMPILE": False}, by_hand) == "COMPILE=False, requested True"
    assert other_values(None, {"A": 1}) == "the start record holds no configuration"
    assert other_values(dict.fromkeys("ABCDE", 0), dict.fromkeys("ABCDE", 2)) == (
        "A=0, requested 2; B=0, requested 2; C=0, requested 2 and 2 more"
    )
