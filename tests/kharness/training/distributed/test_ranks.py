"""Trainings of several ranks on the CPU, joined by gloo: their curves, how they end, and what they leave."""

from __future__ import annotations

import math
import platform
import signal
from pathlib import Path

import pytest
import torch

from kharness.training.seeds import derived_seed
from monitoring import read_records

from ....warm_python import WarmPython
from .ranks import StartRanks, curve, ends, steps, weights

HOST = platform.node()


def test_curve_is_that_of_one_process(start_ranks: StartRanks, tmp_path: Path) -> None:
    """Parts of a batch of 7 have unequal sizes; of the last in an epoch ranks 2 and 3 have no sample."""
    for size in (1, 2, 4):
        assert ends(start_ranks(tmp_path / str(size), size)) == [(0, "")] * size
    one = curve(tmp_path / "1")
    assert one.shape == (15, 2)
    for several in ("2", "4"):
        torch.testing.assert_close(curve(tmp_path / several), one, rtol=1e-12, atol=1e-14)
        for name, weight in weights(tmp_path / "1").items():
            torch.testing.assert_close(weights(tmp_path / several)[name], weight, rtol=1e-12, atol=1e-14)
    journals = [steps(tmp_path / "4" / f"metrics{rank}.jsonl") for rank in ("", ".rank0001", ".rank0003")]
    assert [[step["train_loss"] for step in journal] for journal in journals] == [
        [step["train_loss"] for step in journals[0]]
    ] * 3
    assert all(step["collective_seconds"] > 0 for step in journals[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_curve_with_micro_batches_is_that_of_one_process_without(
    start_ranks: StartRanks, tmp_path: Path, dtype: str, tolerance: float
) -> None:
    """A rank's four samples go through the model three at a time; the other rank's three all at once."""
    about = {"MODEL": "gpt2", "DTYPE": dtype}
    assert ends(start_ranks(tmp_path / "one", 1, **about)) == [(0, "")]
    assert ends(start_ranks(tmp_path / "two", 2, "--micro-batch-size", "3", **about)) == [(0, "")] * 2
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert one.shape == (15, 2)
    torch.testing.assert_close(two, one, rtol=tolerance, atol=tolerance / 100)


def test_request_to_one_rank_stops_all_and_another_number_of_ranks_resumes(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    ranks = start_ranks(tmp_path / "run", 2, FAULT="stop:1:4")
    assert ends(ranks) == [(75, ""), (75, "\nSIGTERM: stopping after this step\n")]
    assert [len(curve(tmp_path / "run")), len(steps(tmp_path / "run/metrics.rank0001.jsonl"))] == [4, 4]
    assert ends(start_ranks(tmp_path / "run", 3)) == [(0, "")] * 3
    assert ends(start_ranks(tmp_path / "one", 1)) == [(0, "")]
    torch.testing.assert_close(curve(tmp_path / "run"), curve(tmp_path / "one"), rtol=1e-12, atol=1e-14)


def test_same_ranks_resume_bit_for_bit(start_ranks: StartRanks, tmp_path: Path) -> None:
    """Each rank draws its own dropout, and goes on drawing where it was."""
    dropout = {"DROPOUT": "0.5"}
    assert ends(start_ranks(tmp_path / "whole", 2, **dropout)) == [(0, "")] * 2
    ends(start_ranks(tmp_path / "resumed", 2, FAULT="stop:0:5", **dropout))
    assert ends(start_ranks(tmp_path / "resumed", 2, **dropout)) == [(0, "")] * 2
    assert torch.equal(curve(tmp_path / "resumed"), curve(tmp_path / "whole"))
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "resumed")
    assert all(torch.equal(resumed[name], weight) for name, weight in whole.items())


def test_masks_are_those_of_rank_0_though_each_rank_draws_its_own(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    pruning = ("--pruning", "random", "--pruning-sparsity", "0.5", "--pruning-every", "1")
    assert ends(start_ranks(tmp_path / "run", 2, *pruning, DROPOUT="0.5")) == [(0, "")] * 2
    sparsity = [
        [step["sparsity"] for step in steps(tmp_path / "run" / f"metrics{rank}.jsonl")]
        for rank in ("", ".rank0001")
    ]
    norms = [step["grad_norm"] for step in steps(tmp_path / "run/metrics.rank0001.jsonl")]
    assert (sparsity[0][-1], sparsity[0]) == (0.5, sparsity[1])
    assert norms == curve(tmp_path / "run")[:, 1].tolist()  # other masks would be other weights


def test_nan_on_one_rank_stops_all_at_the_same_step(start_ranks: StartRanks, tmp_path: Path) -> None:
    found = ends(start_ranks(tmp_path / "run", 4, FAULT="nan:3:4"))
    assert [code for code, _ in found] == [65] * 4
    assert "".join(text for _, text in found) == (
        "error: step 4: loss nan, gradient norm nan, on rank 3\n"
        "hint: lower LEARNING_RATE or raise SCHEDULE_WARMUP_FRACTION; earlier checkpoints are intact\n"
    )
    *_, last = steps(tmp_path / "run/metrics.jsonl")
    assert (last["global_step"], last["nonfinite_ranks"], len(last["sample_indices"])) == (4, [3], 1)
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "run").values())


@pytest.mark.parametrize("size", [1, 2])
def test_a_spike_of_the_loss_names_the_samples_of_its_batch_on_every_rank(
    start_ranks: StartRanks, tmp_path: Path, size: int
) -> None:
    """The agent's rule finds it: of 30 samples in batches of 7, those of the 4th step of the 7th epoch."""
    flags = ("--num-epochs", "8", "--learning-rate", "0.0001")
    found_ends = ends(start_ranks(tmp_path / "run", size, *flags, FAULT="spike:0:34"))
    assert [code for code, _ in found_ends] == [0] * size
    [found] = [
        dict(record)
        for record, _ in read_records(tmp_path / "run/metrics.jsonl")
        if record["event"] == "alert_samples" and record["rule"] == "loss_spike"
    ]
    [alert] = [
        one for one, _ in read_records(tmp_path / "run/alerts.jsonl") if one["seq"] == found["alert_seq"]
    ]
    assert (alert["rule"], alert["global_step"], alert["state"]) == ("loss_spike", 34, "firing")
    order = torch.randperm(30, generator=torch.Generator().manual_seed(derived_seed(1, "order", 6)))
    about = ("global_step", "rule", "sample_indices", "samples_per_rank")
    parts = {1: [7], 2: [4, 3]}[size]
    assert [found[name] for name in about] == [34, "loss_spike", order[21:28].tolist(), parts]
    assert (
        not (tmp_path / "run/metrics.rank0001.jsonl").exists()
        or b"alert_samples" not in (tmp_path / "run/metrics.rank0001.jsonl").read_bytes()
    )


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_by_all(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    found = ends(start_ranks(tmp_path / "run", 2, "--guard-max-skips", "1", FAULT="nan:1:4"))
    assert [code for code, _ in found] == [0] * 2
    records = steps(tmp_path / "run/metrics.jsonl")
    assert [step["global_step"] for step in records if step.get("skipped")] == [4]
    assert [math.isfinite(step["train_loss"] or math.nan) for step in records] == [
        step != 4 for step in range(1, 16)
    ]
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "run").values())


@pytest.mark.parametrize(
    ("fault", "codes", "said"),
    [
        (
            "refuse:1:4",
            [69, 2, 69],
            f"error: rank 1 on {HOST}: the sample cannot be decoded\nhint: look at it\n",
        ),
        (
            "kill:1:4",
            [69, -signal.SIGKILL, 69],
            f"error: rank 1 on {HOST}: killed, hanging or cut off from the others\n"
            "hint: start the training again: it resumes from the newest checkpoint\n",
        ),
    ],
)
def test_one_message_names_the_rank_that_was_lost(
    start_ranks: StartRanks, tmp_path: Path, fault: str, codes: list[int], said: str
) -> None:
    found = ends(start_ranks(tmp_path / "run", 3, FAULT=fault))
    assert [code for code, _ in found] == codes
    assert "".join(text for _, text in found) == said
    *_, end = [record for record, _ in read_records(tmp_path / "run/metrics.jsonl")]
    assert (end["event"], end["status"], end["cause"]) == ("end", "failed", "lost_rank")
    assert ends(start_ranks(tmp_path / "run", 3)) == [(0, "")] * 3
    assert len(curve(tmp_path / "run")) == 15


def test_a_rank_that_hangs_ends_all_within_the_time(start_ranks: StartRanks, tmp_path: Path) -> None:
    """RANK_TIMEOUT is 7.5 minutes until the step in which a rank hangs, and a second from then on."""
    ranks = start_ranks(tmp_path / "run", 2, "--rank-timeout", "7.5", FAULT="hang:1:4", TIMEOUT="7.5")
    [(code, text)] = ends(ranks[:1])
    ranks[1].kill()
    ends(ranks[1:])
    assert (code, text.splitlines()[0]) == (
        69,
        f"error: rank 1 on {HOST}: killed, hanging or cut off from the others",
    )


def test_num_gpus_starts_the_ranks_and_passes_a_stop_on(
    warm_torch: WarmPython, root: Path, tmp_path: Path
) -> None:
    flags = [
        "--device",
        "cpu",
        "--tracker",
        "none",
        "--num-gpus",
        "2",
        "--max-steps",
        "2",
        "--num-epochs",
        "1",
    ]
    done = warm_torch.run([root / "lenet5/train.py", "--run-dir", tmp_path / "run", *flags], timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    said = [line.partition(":")[0] for line in others]
    assert (first.partition(":")[0], said.count("configuration"), said.count("device")) == (
        "configuration",
        0,
        1,
    )
    assert "device: cpu (requested), 2 processes, each with 1 CPU thread" in others
    start, *_ = [record for record, _ in read_records(tmp_path / "run/metrics.jsonl")]
    assert (start["world_size"], start["num_steps"]) == (2, 2)
    assert [step["global_step"] for step in steps(tmp_path / "run/metrics.rank0001.jsonl")] == [1, 2]
    alone = [*flags[:4], *flags[6:]]
    assert warm_torch.run([root / "lenet5/train.py", "--run-dir", tmp_path / "one", *alone]).returncode == 0
    torch.testing.assert_close(curve(tmp_path / "run"), curve(tmp_path / "one"), rtol=1e-5, atol=0)
