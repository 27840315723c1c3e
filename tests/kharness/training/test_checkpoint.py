"""Checkpoints: whole or not there, verified, and enough to go on bit for bit."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from kharness.training.checkpoint import (
    Best,
    Checkpoints,
    Stateful,
    checkpoint_files,
    load,
    restore,
    training_state,
)
from kharness.training.data import Batches
from kharness.training.determinism import Numerics
from kharness.training.device import Compute
from kharness.training.errors import CheckpointError, CheckpointWriteError
from kharness.training.schedules import Schedule, set_learning_rate
from kharness.training.seeds import Generators, seed_everything

from ...warm_python import WarmPython

CPU = torch.device("cpu")


class Session:
    """A training small enough to compare bit for bit, which uses every generator."""

    def __init__(self, *, outputs: int = 2) -> None:
        seed_everything(3)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, outputs))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.schedule = Schedule("onecycle", 0.05, 12, 0.3)
        self.batches = Batches(20, 6, seed=3, device=torch.device("cpu"))
        self.data = torch.randn(20, 4)
        self.step = 0
        self.losses: list[float] = []

    def advance(self, steps: int) -> None:
        until = self.step + steps
        while self.step < until:
            for indices in self.batches.rest_of_epoch():
                set_learning_rate(self.optimizer, self.schedule(self.step))
                batch = self.data[indices] * (random.random() + float(np.random.rand()))
                loss = self.model(batch).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                self.step += 1
                if self.step == until:
                    break

    def parts(self) -> dict[str, Stateful]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "data": self.batches,
            "rng": Generators(),
            "compute": Compute(CPU, Numerics.of(CPU)),
        }

    def state(self) -> dict[str, object]:
        config = {"SEED": 3, "LEARNING_RATE": 0.05, "BETAS": [0.9, 0.999], "NAME": "x"}
        return training_state(self.parts(), journal_seq=41, attempt=2, config=config)


@pytest.mark.parametrize("saved_after", [1, 4, 7])
def test_restored_training_goes_on_bit_for_bit(tmp_path: Path, saved_after: int) -> None:
    whole = Session()
    whole.advance(12)

    begun = Session()
    begun.advance(saved_after)
    path = Checkpoints(tmp_path, attempt=1).save(saved_after, begun.state())

    resumed = Session()
    random.seed(99)
    restore(load(path), resumed.parts())
    resumed.step = saved_after
    resumed.advance(12 - saved_after)

    assert begun.losses + resumed.losses == whole.losses
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    for kept, again in zip(
        whole.optimizer.state_dict()["state"].values(),
        resumed.optimizer.state_dict()["state"].values(),
        strict=True,
    ):
        assert all(torch.equal(kept[key], again[key]) for key in kept)


def test_restored_training_keeps_its_threads_and_says_where_it_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another number of threads would change the bits; another device does."""
    here, session = torch.get_num_threads(), Session()
    state = {**session.state(), "compute": {"cpu_threads": here + 1, "device": "cuda:0"}}
    path = Checkpoints(tmp_path, attempt=1).save(0, state)
    try:
        restore(load(path), session.parts())
        assert torch.get_num_threads() == here + 1
    finally:
        torch.set_num_threads(here)
    assert capsys.readouterr().out.splitlines() == [
        f"resume: with {here + 1} CPU threads as before, not {here}, for the same bits",
        "resume: begun on cuda:0, now on cpu: not bit-identical from here on",
    ]


def test_restored_training_on_another_gpu_says_what_is_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The last bits are the GPU's and its libraries', although both are cuda:0."""
    device, here = (
        torch.device("cuda", 0),
        dataclasses.replace(Numerics.of(CPU), gpu="NVIDIA H200", cudnn=91300),
    )
    before = dataclasses.replace(here, gpu="NVIDIA A10G", cudnn=91002)
    state = Compute(device, before).state_dict()
    Compute(device, before).load_state_dict(state)
    assert capsys.readouterr().out == ""
    Compute(device, here).load_state_dict(state)
    different = "gpu NVIDIA A10G, now NVIDIA H200; cudnn 91002, now 91300"
    assert capsys.readouterr().out == f"resume: {different}: not bit-identical from here on\n"


def test_file_holds_everything_and_torch_reads_it_as_it_is(tmp_path: Path) -> None:
    session = Session()
    session.advance(5)
    path = Checkpoints(tmp_path, attempt=1).save(5, session.state())
    state = torch.load(path, weights_only=True)
    tensors = {"model", "optimizer", "rng"}
    told = {"format", "global_step", "best", "is_best", "parts", "data", "compute"}
    assert state.keys() == {*tensors, *told, "journal_seq", "attempt", "config"}
    assert {key: state[key] for key in told} == {
        "format": 1,
        "global_step": 5,
        "best": None,
        "parts": ["model", "optimizer", "data", "rng", "compute"],
        "data": {"epoch": 1, "position": 1},
        "is_best": False,
        "compute": {"device": "cpu", "cpu_threads": torch.get_num_threads()},
    }
    assert (state["journal_seq"], state["attempt"]) == (41, 2)
    assert state["config"] == {"SEED": 3, "LEARNING_RATE": 0.05, "BETAS": [0.9, 0.999], "NAME": "x"}


def saved(directory: Path, *steps: int, attempt: int = 1, keep: int = 2) -> list[Path]:
    checkpoints = Checkpoints(directory, attempt=attempt, keep=keep)
    return [checkpoints.save(step, {"weights": torch.arange(1000) + step}) for step in steps]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_one_flipped_bit_is_found(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, 1)
    damage(path)
    with pytest.raises(CheckpointError, match=r"is damaged: its SHA-256 begins with [0-9a-f]{16}$") as caught:
        load(path)
    assert caught.value.hint == "take the checkpoint before it"


def test_truncated_file_is_found(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, 1)
    os.truncate(path, 100)
    with pytest.raises(CheckpointError, match="is damaged"):
        load(path)


def test_file_without_its_hash_is_refused(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, 1)
    renamed = path.rename(tmp_path / "mine.pt")
    with pytest.raises(CheckpointError, match="is not named like a checkpoint"):
        load(renamed)


def test_only_the_newest_are_kept_and_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, attempt=1, keep=2)
    for step, val_loss in enumerate([0.9, 0.4, 0.6, 0.5], start=1):
        best = checkpoints.improves(val_loss, step=step)
        checkpoints.save(step, {"weights": torch.ones(3) * step}, best=best)
    assert [load(path)["global_step"] for path in checkpoint_files(tmp_path)] == [4, 3]
    (best_file,) = checkpoint_files(tmp_path, best=True)
    assert load(best_file)["weights"].tolist() == [2.0, 2.0, 2.0]
    assert load(checkpoint_files(tmp_path)[0])["best"] == {"val_loss": 0.4, "global_step": 2}


def test_later_attempt_is_newer_whatever_its_steps(tmp_path: Path) -> None:
    saved(tmp_path, 80, 90, attempt=1)
    newest = saved(tmp_path, 10, attempt=2)[0]
    assert checkpoint_files(tmp_path)[0] == newest


def test_what_was_saved_before_beginning_anew_is_never_deleted(tmp_path: Path) -> None:
    before = Checkpoints(tmp_path, attempt=1)
    before.improves(0.4, step=80)
    kept = [before.save(step, {"weights": torch.ones(3)}, best=step == 80) for step in (80, 90)]
    anew = Checkpoints(tmp_path, attempt=2, keep=1, first_attempt=2)
    saves = [anew.save(step, {"weights": torch.ones(3)}) for step in (10, 20, 30)]
    resumed = Checkpoints(tmp_path, attempt=3, keep=1, first_attempt=2)
    newest = resumed.save(40, {"weights": torch.ones(3)})
    assert checkpoint_files(tmp_path) == [newest, *reversed(kept)]
    assert [path.name for path in checkpoint_files(tmp_path, best=True)] == [f"best-{kept[0].name}"]
    assert not any(path.exists() for path in saves)


def test_resumed_training_remembers_its_best_and_its_step(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, attempt=1)
    first.improves(0.4, step=7)
    path = first.save(8, {"weights": torch.ones(3)})
    resumed = Checkpoints(tmp_path, attempt=2)
    resumed.go_on_from(path, load(path))
    assert (resumed.best, resumed.last_step) == (Best(0.4, 7), 8)
    assert (resumed.improves(0.45, step=9), resumed.improves(0.39, step=10)) == (False, True)


def test_best_that_a_kill_kept_from_its_second_name_gets_it_when_resumed(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, attempt=1)
    first.improves(0.4, step=7)
    path = first.save(7, {"weights": torch.ones(3)}, best=True)
    (best,) = checkpoint_files(tmp_path, best=True)
    best.unlink()
    Checkpoints(tmp_path, attempt=2).go_on_from(path, load(path))
    assert checkpoint_files(tmp_path, best=True) == [best]
    assert best.samefile(path)


def test_best_that_is_resumed_from_needs_no_further_name(tmp_path: Path) -> None:
    """Whatever was written behind it is broken, and its own first name is gone."""
    first = Checkpoints(tmp_path, attempt=1)
    first.improves(0.4, step=7)
    first.save(7, {"weights": torch.ones(3)}, best=True).unlink()
    (best,) = checkpoint_files(tmp_path, best=True)
    Checkpoints(tmp_path, attempt=2).go_on_from(best, load(best))
    assert list(tmp_path.iterdir()) == [best]


def test_best_is_compared_before_it_is_remembered(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, attempt=1)
    losses = [0.5, 0.5, 0.6, float("nan"), 0.4, float("inf")]
    assert [checkpoints.improves(loss, step=i) for i, loss in enumerate(losses)] == [
        *(True, False, False, False, True, False)
    ]
    assert checkpoints.best == Best(0.4, 4)


def test_state_of_another_model_is_refused(tmp_path: Path) -> None:
    session, other = Session(), Session(outputs=3)
    path = Checkpoints(tmp_path, attempt=1).save(0, session.state())
    with pytest.raises(
        CheckpointError, match=r"^the checkpoint does not fit this training: Error.* Sequential$"
    ):
        restore(load(path), other.parts())


def test_new_part_is_one_more_entry_and_is_never_dropped(tmp_path: Path) -> None:
    """An added part, such as a running mean of the weights, is saved, restored, and refused if missing."""
    session, mean = Session(), nn.Linear(4, 8)
    state = training_state({**session.parts(), "mean": mean}, attempt=1)
    path = Checkpoints(tmp_path, attempt=1).save(3, state)
    again = nn.Linear(4, 8)
    restore(load(path), {**session.parts(), "mean": again})
    assert torch.equal(again.weight, mean.weight)
    with pytest.raises(CheckpointError, match=r"its parts are not model, optimizer, data, rng, compute$"):
        restore(load(path), session.parts())
    with pytest.raises(ValueError, match="no part can be named attempt, format: a checkpoint has an entry"):
        training_state({"format": mean, "attempt": mean}, attempt=1)


def test_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(
        CheckpointWriteError, match="the checkpoint of step 3 cannot be written: file exists"
    ) as caught:
        saved(tmp_path / "checkpoints", 3)
    assert caught.value.hint == "free some space; the checkpoints before it are intact"
    assert (caught.value.exit_code, caught.value.cause) == (74, "error")


FULL_DISK = """
import resource, signal, sys, torch
from pathlib import Path
from kharness.training.checkpoint import Checkpoints
from kharness.training.errors import CheckpointError, CheckpointWriteError

checkpoints = Checkpoints(Path(sys.argv[1]), attempt=1)
checkpoints.save(1, {"weights": torch.zeros(1000)})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoints.save(2, {"weights": torch.zeros(1_000_000)})
except CheckpointError as error:
    print(error)
"""


def test_file_that_finds_no_room_leaves_the_earlier_ones(tmp_path: Path, warm_torch: WarmPython) -> None:
    """A limit on the file size stands for a disk that fills in the middle of a checkpoint."""
    done = warm_torch.run(["-c", FULL_DISK, tmp_path])
    done.check_returncode()
    assert done.stdout == f"{tmp_path}: the checkpoint of step 2 cannot be written: file too large\n"
    assert [path.name[:22] for path in tmp_path.iterdir()] == ["attempt01-step00000001"]
    (whole,) = checkpoint_files(tmp_path)
    assert load(whole)["global_step"] == 1


SAVED_AND_KILLED = """
import itertools, os, random, signal, sys, time, torch
from pathlib import Path
from kharness.training.checkpoint import Checkpoints

def save_for_ever(directory, out):
    checkpoints = Checkpoints(directory, attempt=1)
    for step in itertools.count():
        checkpoints.improves(1 / (step + 1), step=step)
        checkpoints.save(step, {"weights": torch.full((50_000,), float(step))}, best=True)
        os.write(out, b"%d\\n" % step)

chance = random.Random(1998)
for moment in range(20):
    # forked, to import torch once; this process runs no tensor operation, which a child would not survive
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        save_for_ever(Path(sys.argv[1], str(moment)), writer)
    os.close(writer)
    first = os.read(reader, 100)
    time.sleep(chance.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    completed = first
    while more := os.read(reader, 65536):
        completed += more
    print(completed.split()[-1].decode())
"""


def test_sigkill_at_any_moment_leaves_whole_checkpoints_only(tmp_path: Path, warm_torch: WarmPython) -> None:
    """Twenty kills: every final name verifies, no completed save is lost, and the next save cleans up."""
    done = warm_torch.run(["-c", SAVED_AND_KILLED, tmp_path])
    done.check_returncode()
    completed = [int(line) for line in done.stdout.split()]
    assert len(completed) == 20
    for moment, last in enumerate(completed):
        directory = tmp_path / str(moment)
        steps, bests = checkpoint_files(directory), checkpoint_files(directory, best=True)
        states = [load(path) for path in (*steps, *bests)]
        assert all(state["weights"].eq(state["global_step"]).all() for state in states)
        assert states[0]["global_step"] >= last
        assert load(bests[0])["global_step"] >= last
        saved(directory, states[0]["global_step"] + 1)
        assert list(directory.glob(".*")) == []
