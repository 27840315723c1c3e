"""BATCH_SIZE_AUTO and COMPILE_AUTO in a training: chosen by trials, recorded, kept."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpt2.train import main
from kharness.config.errors import ConfigError
from kharness.config.make.provenance import why
from kharness.config.options import Options, parse
from kharness.config.tree import Tree
from kharness.training.autotune.search import BF16_UNITS, _precision, decided
from kharness.training.autotune.trial import TrialStep
from kharness.training.distributed.world import ALONE, World
from kharness.training.errors import DatasetError, TrainingError
from kharness.training.model_check import bytes_in
from kharness.training.needs import may_have_gpu
from monitoring import read_records

from .recorded import Recorded

SMALL = ["--gpt2-layers", "1", "--gpt2-width", "16", "--gpt2-block-size", "64", "--gpt2-sample-tokens", "0"]
FIXED = [
    "--device",
    "cpu",
    "--num-threads",
    "1",
    "--tracker",
    "none",
    "--gpt2-dropout",
    "0.1",
]
STEPS = ["--max-steps", "3", "--eval-samples", "1", "--eval-batch-size", "4"]

Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """A training in this process, in tmp_path / name; its records."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name: str, *flags: str) -> list[dict[str, Any]]:
        assert main(["--run-dir", str(tmp_path / name), *flags]) == 0
        return [record for record, _ in read_records(tmp_path / name / "metrics.jsonl")]

    return run


def results(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values that must be equal to the last bit."""
    names = (
        "event",
        "global_step",
        "train_loss",
        "grad_norm",
        "val_loss",
        "model_sha256",
        "optimizer_sha256",
    )
    return [{name: record[name] for name in names if name in record} for record in records]


@contextmanager
def room(num_bytes: int) -> Iterator[None]:
    """This process can have so many bytes more, and no further ones."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    taken = bytes_in(Path("/proc/self/status"), "VmData")
    assert taken is not None
    resource.setrlimit(resource.RLIMIT_DATA, (taken + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_what_was_chosen_is_recorded_and_trains_as_if_set_by_hand(
    train: Train, tmp_path: Path, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = (*FIXED, *SMALL, *STEPS, "--batch-size", "12")
    by_hand = train("by_hand", *flags, "--micro-batch-size", "12", "--no-compile")
    capfd.readouterr()
    automatic = ("--batch-size-auto", "--compile-auto")
    found = train("auto", *flags, *automatic)
    assert results(found) == results(by_hand)
    output = capfd.readouterr()
    lines = [line.split(": ", 2) for line in output.out.splitlines() if line.startswith("auto: ")]
    reasons = [reason for *_, reason in lines]
    assert [value for _, value, _ in lines] == ["COMPILE=n", "MICRO_BATCH_SIZE=12"]
    assert reasons[1].startswith("the largest part of 12 that fits: ")
    assert (output.err, output.out.count("plan: ")) == ("", 1), "trials print nothing of their own"
    named = zip(("COMPILE", "MICRO_BATCH_SIZE"), ("n", "12"), reasons, strict=True)
    chosen = {name: {"value": value, "provenance": "auto", "reason": why} for name, value, why in named}
    assert found[0]["automatic"] == chosen
    assert json.loads((tmp_path / "auto/run.json").read_text())["attempts"][0]["automatic"] == chosen
    assert "automatic" not in by_hand[0]
    symbols = ("BATCH_SIZE_AUTO", "MICRO_BATCH_SIZE", "COMPILE_AUTO", "COMPILE")
    assert [found[0]["config"][name] for name in symbols] == [False, 12, False, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auto", "by_hand"], "trials leave nothing"
    tree = Tree.load(root)
    resolved = tree.resolve(tree.base(tmp_path / "auto"))
    told = list(why(tree, resolved, "MICRO_BATCH_SIZE"))
    assert told[:2] == ["MICRO_BATCH_SIZE=12", f"  from       auto {reasons[1]}"]
    # A resumed run keeps it, also with the same command, as after a kill before the end record.
    journal = tmp_path / "auto/metrics.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    again = train("auto", *flags, *automatic)
    assert "auto: " not in capfd.readouterr().out
    assert [record["automatic"] for record in again if record["event"] == "start"] == [chosen, chosen]


def test_less_memory_gives_a_smaller_part(train: Train) -> None:
    """All of the batch at once needs more than twice as much."""
    with room(128 * 10**6):
        flags = ("--max-steps", "1", "--no-eval-first", "--eval-samples", "1", "--eval-batch-size", "4")
        records = train("run", *FIXED, *SMALL, *flags, "--batch-size", "512", "--batch-size-auto")
    start = records[0]
    size = start["config"]["MICRO_BATCH_SIZE"]
    assert size in [2**exponent for exponent in range(9)]
    assert start["automatic"]["MICRO_BATCH_SIZE"]["reason"].startswith("the largest part of 512 that fits: ")


def begun(root: Path, *flags: str) -> Options:
    return parse([*FIXED, *SMALL, *flags], root=root, model="gpt2", prog="", description="")[0]


def test_a_batch_that_does_not_divide_among_the_processes_is_refused(root: Path) -> None:
    options = begun(root, "--batch-size", "15", "--batch-size-auto")
    with pytest.raises(TrainingError) as caught:
        next(decided(options, World(size=4), run_directory=None))
    assert str(caught.value) == ("BATCH_SIZE_AUTO: BATCH_SIZE=15 is not 4 equal parts, one for each process")
    assert caught.value.hint == "choose BATCH_SIZE=12, or set MICRO_BATCH_SIZE"


def test_both_by_hand_and_automatic_is_refused(root: Path) -> None:
    muon = ("--optimizer", "muon", "--optimizer-muon-bf16", "--optimizer-muon-bf16-auto")
    for given in (("--micro-batch-size", "4", "--batch-size-auto"), ("--compile", "--compile-auto"), muon):
        with pytest.raises(ConfigError, match="_AUTO"):
            begun(root, *given)


MUON = ("--optimizer", "muon", "--optimizer-muon-bf16-auto")


def test_instructions_for_bfloat16_are_those_that_the_kernel_lists() -> None:
    flags = set(re.findall(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), flags=re.M)[0].split())
    listed = {"AMX": "amx_tile" in flags, "AVX512_BF16": "avx512_bf16" in flags}
    assert {name: has() for name, has in BF16_UNITS.items()} == listed


@pytest.mark.parametrize(
    ("has", "value", "reason"),
    [
        ({}, "n", "this CPU has neither AMX nor AVX512_BF16"),
        ({"AMX": True}, "y", "this CPU has AMX"),
        ({"AVX512_BF16": True}, "y", "this CPU has AVX512_BF16"),
    ],
)
def test_muon_takes_bfloat16_where_the_cpu_has_instructions_for_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, has: dict[str, bool], value: str, reason: str
) -> None:
    for name in BF16_UNITS:
        monkeypatch.setitem(BF16_UNITS, name, partial(bool, has.get(name)))
    with pytest.raises(StopIteration) as end:
        next(decided(begun(root, *MUON), ALONE, run_directory=None))
    options: Options = end.value.value
    assert options.own_choices() == {"OPTIMIZER_MUON_BF16": (value, reason)}
    assert options.OPTIMIZER_MUON_BF16 is (value == "y")


def test_what_muon_computes_in_is_recorded_and_kept(train: Train, capfd: pytest.CaptureFixture[str]) -> None:
    records = train("run", *FIXED, *SMALL, *STEPS, *MUON)
    [start] = [record for record in records if record["event"] == "start"]
    chosen = start["automatic"]["OPTIMIZER_MUON_BF16"]
    assert start["optimizer"]["bf16"] is start["config"]["OPTIMIZER_MUON_BF16"] is (chosen["value"] == "y")
    assert f"auto: OPTIMIZER_MUON_BF16={chosen['value']}: this CPU has " in capfd.readouterr().out


def test_the_precision_of_a_gpu_is_timed_with_everything_else_chosen(root: Path) -> None:
    """On a CPU float32 is not left to a trial."""
    options = begun(root, "--batch-size-auto", "--compile-auto", "--batch-size", "12")
    assert not may_have_gpu("cpu")
    search = _precision(options, ALONE)
    step = TrialStep(samples=6, part_seconds=1.0, update_seconds=0.0, memory=0, free=None, num_steps=9)
    tried = [next(search)]
    tried.append(search.send(Recorded([step] * 7)))
    names = ("AMP", "COMPILE", "COMPILE_AUTO", "BATCH_SIZE_AUTO", "MICRO_BATCH_SIZE")
    assert [[one.values.get(name) for name in names] for one in tried] == [
        ["bf16", False, False, False, 6],
        ["none", False, False, False, 6],
    ]
    with pytest.raises(StopIteration) as end:
        search.send(Recorded([replace(step, part_seconds=0.5)] * 7))
    assert end.value.value.own_choices() == {
        "AMP": ("none", "bf16 2 s per step, none 1 s; all 9 steps with the first 18 s and 9 s")
    }
    assert end.value.value.undecided() == ["COMPILE", "MICRO_BATCH_SIZE"]


def test_a_failed_trial_is_the_error_of_the_training(train: Train) -> None:
    flags = ("--batch-size", "60000", "--batch-size-auto")
    with pytest.raises(DatasetError) as by_itself:
        train("by_itself", *FIXED, *SMALL, *flags[:2])
    with pytest.raises(TrainingError) as caught:
        train("auto", *FIXED, *SMALL, *flags)
    assert (str(caught.value), caught.value.hint) == (str(by_itself.value), by_itself.value.hint)
    assert caught.value.exit_code == by_itself.value.exit_code == 2
