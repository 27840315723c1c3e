"""Which rank a process is, by its environment, and which part of a batch is its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kharness.config.errors import RENDEZVOUS_FILE, is_launched
from kharness.config.options import parse
from kharness.training.distributed.world import World, joined_world
from kharness.training.errors import TrainingError

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_a_rank_is_what_torchrun_says() -> None:
    assert World.of({**TORCHRUN, **MEETING}) == World(rank=5, size=8, local_rank=1, local_size=4)
    assert World.of({**MEETING, "RANK": "0", "WORLD_SIZE": "1"}) == World()


def test_variables_of_a_scheduler_alone_start_no_ranks() -> None:
    """A shell inside a job may have them, and no other process is there."""
    assert not is_launched(TORCHRUN)
    assert World.of(TORCHRUN) == World()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"RANK": "x"}, "a rank's variables are not numbers: RANK='x'"),
        ({"RANK": "8"}, "a rank's variables contradict each other: RANK='8'"),
        ({"LOCAL_RANK": "4"}, "a rank's variables contradict each other: RANK='5'"),
    ],
)
def test_variables_that_cannot_be_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(TrainingError) as caught:
        World.of({**TORCHRUN, **MEETING, **given})
    assert str(caught.value).startswith(message)
    assert caught.value.hint == "start the training with torchrun, or with NUM_GPUS"


def test_parts_of_a_batch_are_all_of_it_and_weigh_what_they_hold() -> None:
    batch = torch.arange(7)
    parts = [World(rank, 3).part(batch) for rank in range(3)]
    assert [part.tolist() for part, _ in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [factor for _, factor in parts] == [9 / 7, 6 / 7, 6 / 7]
    # nothing is left for the last one, which takes part with a sample that does not count
    assert [
        (part.tolist(), factor) for part, factor in (World(rank, 3).part(batch[:2]) for rank in range(3))
    ] == [
        ([0], 1.5),
        ([1], 1.5),
        ([0], 0.0),
    ]
    alone, factor = World().part(batch)
    assert alone is batch
    assert factor == 1.0


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ((), 1),
        (("--device", "cuda", "--matrix-gpus-per-cell", "2"), 2),
        (("--device", "cpu", "--matrix-gpus-per-cell", "2"), 1),
        (("--device", "cuda", "--matrix-gpus-per-cell", "2", "--num-gpus", "1"), 1),
    ],
)
def test_a_cell_trains_on_all_gpus_that_it_gets(root: Path, flags: tuple[str, ...], count: int) -> None:
    options, _ = parse(flags, root=root, model="lenet5", prog="train.py", description=None)
    assert count == options.NUM_GPUS


@pytest.mark.parametrize("deterministic", [False, True])
def test_each_rank_takes_its_own_gpu_before_it_joins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deterministic: bool
) -> None:
    """Calls to torch are compared in order, on two GPUs that exist in name only."""
    called: list[object] = []
    named = {"is_available": True, "device_count": 2, "get_device_name": "NVIDIA A10G"}
    for name, value in named.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.cuda, "set_device", called.append)
    monkeypatch.setattr(
        torch,
        "use_deterministic_algorithms",
        lambda mode: called.append(("deterministic", mode, torch.cuda.is_initialized())),
    )
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **named: called.append((backend, named["device_id"]))
    )
    monkeypatch.setattr(dist, "destroy_process_group", lambda: called.append("destroyed"))
    for name, value in (("benchmark", True), ("deterministic", False)):
        monkeypatch.setattr(torch.backends.cudnn, name, value)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv(RENDEZVOUS_FILE, str(tmp_path / "meeting"))
    for name, text in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, text)
    with joined_world(device="cuda", minutes=1, deterministic=deterministic) as world:
        assert (world.rank, world.local_rank) == (1, 1)
    own = torch.device("cuda", 1)
    expected = [own, ("cpu:gloo,cuda:nccl", own), "destroyed"]
    assert called == [*([("deterministic", True, False)] if deterministic else []), *expected]
