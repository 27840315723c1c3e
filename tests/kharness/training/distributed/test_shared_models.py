"""Ranks that share a model (PARALLEL=fsdp): their curves, their checkpoints, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kharness.config.errors import KharnessError
from kharness.config.options import parse
from kharness.training.checkpoint import checkpoint_files, position
from kharness.training.distributed.world import World
from monitoring import read_records

from ....warm_python import StartedPython, WarmPython
from .ranks import StartRanks, curve, ends, steps, weights

FSDP = ("--parallel", "fsdp")
DDP = ("--parallel", "ddp")
EPOCHS = ("--num-epochs", "2")
ADAFACTOR = (*EPOCHS, "--optimizer", "adafactor", "--micro-batch-size", "3")
MUON = (*EPOCHS, "--optimizer", "muon", "--micro-batch-size", "3")
LAYERS = {"MODEL": "gpt2", "NET": "layers"}
TAKEN = (
    "adafactor",
    "adam",
    "adamw",
    "adamwadv",
    "adamwspam",
    "ademamix",
    "lion",
    "muon",
    "nadamw",
    "schedulefree",
    "sgd",
    "spam",
)
# A spike, elements that are clipped, and moments that are forgotten, within a few steps.
SPAM = ("CLIP=y", "THETA=0.5", "THRESHOLD=1.5", "RESET_EVERY=3", "WARMUP_STEPS=2")
REFUSED = ("adamwprune", "soap")


def codes(ranks: list[StartedPython]) -> list[int]:
    """Exit codes; alerts may be printed on standard error while they train."""
    return [code for code, _ in ends(ranks)]


def records(run: Path, event: str) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(run / "metrics.jsonl") if record["event"] == event]


def final_weights(run: Path) -> dict[str, Tensor]:
    found = torch.load(run / "weights.pt", weights_only=True)
    assert found["global_step"] == len(curve(run)) >= 10
    model: dict[str, Tensor] = found["model"]
    return model


def assert_alike(run: Path, one: Path) -> None:
    """Losses, norms, evaluations and weights are those of one process."""
    torch.testing.assert_close(curve(run), curve(one), rtol=1e-12, atol=1e-14)
    losses = [[record["val_loss"] for record in records(each, "eval")] for each in (run, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12, abs=0)
    found, wanted = final_weights(run), weights(one)
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-12, atol=1e-14)


def test_curve_is_that_of_one_process_also_where_another_number_of_ranks_resumes(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    """Two share it; one is killed when a checkpoint has no name yet, and three resume from the one before.

    Gradients of micro-batches are added up, of which a rank with fewer samples has as many. Of Adafactor's
    moments some are shared, and some every rank has all of.
    """
    one, run = tmp_path / "one", tmp_path / "run"
    assert codes(start_ranks(one, 1, *EPOCHS, "--optimizer", "adafactor", **LAYERS)) == [0]
    killed = start_ranks(run, 2, *FSDP, *ADAFACTOR, FAULT="kill-in-name:0:5", **LAYERS)
    assert codes(killed) == [-signal.SIGKILL, 69]
    [saved] = checkpoint_files(run / "checkpoints")
    assert codes(start_ranks(run, 3, **LAYERS)) == [0] * 3
    assert records(run, "start")[-1]["resumed_from"]["checkpoint"] == saved.name
    assert list((run / "checkpoints").glob(".*")) == []
    assert_alike(run, one)


def test_muons_curve_is_that_of_one_process_where_ranks_have_unequal_parts_of_its_matrices(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    """Three ranks hold 6, 6 and 4 of 16 rows; each orthogonalizes one of three matrices."""
    one, run = tmp_path / "one", tmp_path / "run"
    flags = ("--optimizer", "muon", "--max-steps", "3", "--checkpoint-every-steps", "3")
    assert codes(start_ranks(one, 1, *flags, **LAYERS)) == [0]
    assert codes(start_ranks(run, 3, *FSDP, *flags, **LAYERS)) == [0] * 3
    torch.testing.assert_close(curve(run), curve(one), rtol=1e-12, atol=1e-14)


def test_a_damaged_part_is_found_and_ranks_that_each_have_the_model_resume_before_it(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    """A rank is killed while it writes its part of a third; two that share nothing resume, then two that do,
    one process alone, and three.

    AdamWSPAM keeps the norms of the gradients, too, by which it finds a spike.
    """
    one, run = tmp_path / "one", tmp_path / "run"
    spam = ("--optimizer", "adamwspam", "--optimizer-adamwspam-threshold", "1.5")
    parts = (*spam, "--micro-batch-size", "3")
    assert codes(start_ranks(run, 2, *FSDP, *parts, FAULT="kill-in-part:1:8", **LAYERS)) == [
        69,
        -signal.SIGKILL,
    ]
    newest, before = checkpoint_files(run / "checkpoints")
    part = newest / "__1_0.distcp"
    content = part.read_bytes()
    part.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    for size, parallel, stops_after in ((2, DDP, 7), (2, FSDP, 9), (1, DDP, 11), (3, FSDP, 15)):
        (run / ".config").unlink()
        ranks = start_ranks(run, size, *parallel, *parts, FAULT=f"stop:0:{stops_after}", **LAYERS)
        assert codes(ranks) == [0 if stops_after == 15 else 75] * size
    starts = records(run, "start")[1:]
    resumed = [position(Path(start["resumed_from"]["checkpoint"]))[1] for start in starts]
    assert (starts[0]["resumed_from"]["checkpoint"], resumed[1:]) == (before.name, [7, 9, 11])
    [passed_over] = starts[0]["passed_over"]
    assert (passed_over["checkpoint"], "__1_0.distcp is damaged" in passed_over["reason"]) == (
        newest.name,
        True,
    )
    assert codes(start_ranks(one, 1, *spam, **LAYERS)) == [0]
    assert_alike(run, one)


def test_a_rank_without_room_stops_all_with_one_error_and_the_same_ranks_resume_bit_for_bit(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    """Also Muon's momentum, beside the moments of what it leaves to AdamW."""
    straight, run, about = tmp_path / "straight", tmp_path / "run", {**LAYERS, "DROPOUT": "0.5"}
    assert codes(start_ranks(straight, 2, *FSDP, *MUON, **about)) == [0] * 2
    found = ends(start_ranks(run, 2, *FSDP, *MUON, FAULT="full:1:5", **about))
    assert [code for code, _ in found] == [74, 74]
    [said] = [text.split("\nhint: ")[0] for _, text in found if "cannot be written" in text]
    assert said.endswith(
        "/checkpoints: the checkpoint of step 6 cannot be written: on rank 1: file too large"
    )
    assert codes(start_ranks(run, 2, **about)) == [0] * 2
    assert torch.equal(curve(run), curve(straight))
    first, second = final_weights(straight), final_weights(run)
    assert all(torch.equal(second[name], weight) for name, weight in first.items())
    hashes = [
        [each[f"{name}_sha256"] for name in ("model", "optimizer")]
        for each in (records(straight, "checkpoint")[-1], records(run, "checkpoint")[-1])
    ]
    assert hashes[0] == hashes[1]


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_by_all(
    start_ranks: StartRanks, tmp_path: Path
) -> None:
    """And the FLOPs of a step are those of the model as it is in one process."""
    flags = (*FSDP, "--guard-max-skips", "1", "--optimizer", "adamw", "--max-steps", "5")
    timed = "--include-performance-metrics"
    assert codes(start_ranks(tmp_path, 2, *flags, timed, FAULT="nan:1:4", **LAYERS)) == [0] * 2
    assert [step["global_step"] for step in steps(tmp_path / "metrics.jsonl") if step.get("skipped")] == [4]
    found = torch.load(tmp_path / "weights.pt", weights_only=True)["model"]
    assert all(weight.isfinite().all() for weight in found.values())
    products = [8 * 16, 16 * 16, 16 * 16, 16 * 1]  # of the layers, for one sample
    three_times = 2 * (3 * sum(products) - products[0])  # nobody needs the gradient of the inputs
    [end] = records(tmp_path, "end")
    assert end["flops_per_step"] == 7 * three_times


def test_optimizers_step_as_in_one_process(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    """And between micro-batches a rank keeps parts of the gradients only.

    A compiled GPT-2, too: of its layers one graph for steps and one for evaluations, each without a break.
    """
    decay = "WEIGHT_DECAY=0.1"
    given = [["OPTIMIZER=" + name, decay] for name in TAKEN]
    given += [[f"OPTIMIZER={name}", decay, "WEIGHT_DECAY_CAUTIOUS=y"] for name in ("adamw", "muon")]
    given += [["OPTIMIZER=muon", "OPTIMIZER_MUON_MATCH_ADAMW=y"]]
    given += [["OPTIMIZER=adamwspam", *(f"OPTIMIZER_ADAMWSPAM_{word}" for word in SPAM)]]
    words = [word for one in given for word in ("--", *one)]
    about = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "KHARNESS_RENDEZVOUS_FILE": str(tmp_path / "meeting"),
    }
    done = warm_torch.run(
        ["-m", "tests.data.ddp.optimizers", *words[1:]], cwd=root, env={**os.environ, **about}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["apart"]) == len(TAKEN) + 4
    assert max(found["apart"]) < 1e-12
    assert found["are_parts"] == [True] * 4
    assert found["compiled"].pop("apart") < 1e-12
    assert found["compiled"] == {"names_are_equal": True, "num_graphs": 2, "breaks": {}}


@pytest.mark.parametrize("name", REFUSED)
def test_optimizers_that_do_not_go_by_elements_are_refused(root: Path, name: str) -> None:
    with pytest.raises(
        KharnessError, match=f"PARALLEL_FSDP=y has no effect: needs .*OPTIMIZER_{name.upper()}=n"
    ):
        parse((*FSDP, "--optimizer", name), root=root, model="gpt2", prog="train.py", description=None)


def test_rounds_are_equally_many_on_each_rank_and_count_each_sample_once() -> None:
    chunks = torch.arange(7).split(2)
    found = [list(World(rank, 3).rounds(chunks)) for rank in range(3)]
    assert [[(chunk.tolist(), counted) for chunk, counted in of_rank] for of_rank in found] == [
        [([0, 1], 2), ([6], 1)],
        [([2, 3], 2), ([6], 0)],
        [([4, 5], 2), ([6], 0)],
    ]


def test_layers_are_gathered_in_bfloat16_and_kept_in_float32(
    root: Path, warm_torch: WarmPython, tmp_path: Path
) -> None:
    """Autocast on the CPU stands for the precision of a step on a GPU."""
    ranks = [
        warm_torch.start(
            [root / "tests/data/ddp/shared_bf16.py"],
            env={
                **os.environ,
                "KHARNESS_RENDEZVOUS_FILE": str(tmp_path / "meeting"),
                **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2"),
                **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
            },
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=600)[0] for rank in ranks]
    (losses, types), (wanted, types_before) = json.loads(said[0])
    assert types == ["torch.bfloat16", "torch.float32", "torch.float32", "torch.float32"]
    assert types_before == ["torch.float32"] * 4
    assert losses == pytest.approx(wanted, rel=0.01)
    assert losses[-1] < losses[0]
