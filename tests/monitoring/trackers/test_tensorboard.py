"""TensorBoard: what its own readers find in our event files, also behind a torn tail."""

from __future__ import annotations

from pathlib import Path

from monitoring.follower import RunInfo
from monitoring.journal.records import read_records
from monitoring.trackers import tensorboard

from .conftest import MakeFollowed


def scalars(directory: Path, tag: str) -> list[tuple[int, float]]:
    """Step and value of each scalar, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def deliver(run: RunInfo) -> None:
    """Bring the run up to date, as one life of an agent does."""
    follower = tensorboard.open_follower(run, tensorboard.Options())
    held = follower.last_seq()
    records = [record for record, _ in read_records(run.directory / "metrics.jsonl")]
    left = [record for record in records if int(str(record["seq"])) > held]
    if left:
        follower.deliver(left)
    follower.close("complete")


def test_tensorboard_reads_the_run(followed: MakeFollowed) -> None:
    run = followed("tensorboard")
    run.train(4)
    run.follow()

    assert scalars(run.directory / "tensorboard", "train_loss") == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.3333333432674408),  # 1/3 in 32 bits
        (4, 0.25),
    ]
    assert scalars(run.directory / "tensorboard", "epoch/val_loss") == [(4, 0.10000000149011612)]
    assert scalars(run.directory / "tensorboard", "best_val_loss") == [(4, 0.10000000149011612)]


def test_files_torn_at_any_byte_go_on_where_they_are_whole(followed: MakeFollowed) -> None:
    run = followed("tensorboard")
    run.train(3)
    deliver(run.info)
    folder = run.directory / "tensorboard"
    [whole] = folder.iterdir()
    content, points = whole.read_bytes(), run.received()
    for end in range(len(content)):
        for file in folder.iterdir():
            file.unlink()
        whole.write_bytes(content[:end])
        deliver(run.info)
        assert (end, run.received()) == (end, points)
        assert (end, scalars(folder, "train_loss")[:2]) == (end, [(1, 1.0), (2, 0.5)])
