"""Pictures that records name: in each tracker once, as its own readers find them, and with all points."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from monitoring.agent.delivery import parts_with_pictures
from monitoring.follower import follower_options
from monitoring.journal.records import Record, fields_of, read_records
from monitoring.trackers import _pictures, tensorboard, trackio, wandb
from monitoring.trackers._pictures import pictures_of
from monitoring.trackers._wandb_log import read_log
from monitoring.trackers._wandb_records import row_of

from .conftest import Followed, MakeFollowed, WandbServer, new_run, sync
from .test_trackers import ordered, shown

TRACKERS = {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}

RED, BLUE = (5, 3), (4, 2)


def train(run: Followed) -> list[tuple[int, str, bytes]]:
    """A run with two pictures, one of them in a record without points; step, name and content of each."""
    figures = run.directory / "figures"
    with new_run(run.directory, run.directory.parent.name, run.tracker) as training:
        figures.mkdir()
        Image.new("RGB", RED, "red").save(run.directory / "red.png")
        Image.new("L", BLUE).save(figures / "grey.png")
        training.start(model={"name": "m"}, training={"num_steps": 3})
        training.log_step(2, train_loss=0.5)
        training.log_eval(2, split="inference", pictures={"predictions": "red.png"})
        training.log_step(3, train_loss=0.25)
        training.log_eval(3, split="val", val_loss=0.125, pictures={"attention": Path("figures/grey.png")})
    red, grey = (path.read_bytes() for path in (run.directory / "red.png", figures / "grey.png"))
    return [(2, "predictions", red), (3, "attention", grey)]


def in_tensorboard(run: Followed) -> list[tuple[int, str, bytes]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.directory / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    found = {tag: events.Images(tag) for tag in events.Tags()["images"]}
    sizes = {tag: [(event.width, event.height) for event in images] for tag, images in found.items()}
    assert sizes == {"predictions": [RED], "attention": [BLUE]}
    shown = [
        (event.step, tag, event.encoded_image_string) for tag, images in found.items() for event in images
    ]
    return sorted(shown)


def in_trackio(run: Followed) -> list[tuple[int, str, bytes]]:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    rows = SQLiteStorage.get_logs(run.info.project, run_id=run.info.run_id)
    cells = [(row["step"], name, it) for row in rows for name, it in row.items() if isinstance(it, dict)]
    files = [Path(MEDIA_DIR, it["file_path"]) for _, _, it in cells]
    folder = Path(MEDIA_DIR, trackio.project_name(run.info.project))
    assert sorted(files) == sorted(path for path in folder.rglob("*") if path.is_file())
    return [(step, name, file.read_bytes()) for (step, name, _), file in zip(cells, files, strict=True)]


def in_wandb_log(run: Followed) -> list[tuple[int, str, bytes]]:
    [log] = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    rows = [row for it in read_log(log) if (row := row_of(wandb._record(it.data)))]
    files = log.parent / "files"
    found = pictures_in(rows)
    paths = {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()}
    assert {cell["path"] for _, _, cell in found} == paths
    return [(step, name, (files / cell["path"]).read_bytes()) for step, name, cell in found]


def pictures_in(rows: list[dict[str, Any]]) -> list[tuple[int, str, dict[str, Any]]]:
    return [
        (row["global_step"], name, it) for row in rows for name, it in row.items() if isinstance(it, dict)
    ]


IN = {"tensorboard": in_tensorboard, "trackio": in_trackio, "wandb": in_wandb_log}


@pytest.mark.parametrize("tracker", TRACKERS)
def test_agent_delivers_pictures_with_the_points_of_their_records(
    followed: MakeFollowed, tracker: str
) -> None:
    run = followed(tracker)
    pictures = train(run)
    done = run.follow()
    assert (done.returncode, done.stderr, run.alerts()) == (0, "", [])
    assert IN[tracker](run) == pictures
    assert ordered(run.received()) == shown(tracker, run.sent())


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_file_torn_at_any_byte_gets_each_picture_once(followed: MakeFollowed, tracker: str) -> None:
    """A SIGKILL may tear the file anywhere; W&B's picture file then exists without its row."""
    run = followed(tracker)
    pictures = train(run)
    deliver(run)
    [sink] = [path for path in run.directory.rglob("*") if path.suffix == ".wandb" or "tfevents" in path.name]
    content = sink.read_bytes()
    for end in range(0, len(content), 97):
        for life in sink.parent.glob("*.tfevents.*"):
            life.unlink()
        sink.write_bytes(content[:end])
        deliver(run)
        assert (end, IN[tracker](run)) == (end, pictures)
        assert (end, ordered(run.received())) == (end, shown(tracker, run.sent()))


def test_row_that_was_not_written_to_trackio_gets_its_picture_once(followed: MakeFollowed) -> None:
    """A SIGKILL may come between writing the picture and the transaction."""
    run = followed("trackio")
    pictures = train(run)
    deliver(run)
    with contextlib.closing(sqlite3.connect(trackio.database(run.info.project))) as database, database:
        assert database.execute("DELETE FROM metrics WHERE log_id LIKE '%:eval'").rowcount == 2
        database.execute("DELETE FROM metrics WHERE log_id LIKE '%:4:step'")
    deliver(run)
    assert in_trackio(run) == pictures
    assert ordered(run.received()) == shown("trackio", run.sent())


def deliver(run: Followed) -> None:
    """Bring the run up to date, as one life of an agent does."""
    follower = TRACKERS[run.tracker].open_follower(run.info, follower_options(run.tracker, {}))
    held = follower.last_seq()
    records = [record for record, _ in read_records(run.directory / "metrics.jsonl")]
    if left := [record for record in records if int(str(record["seq"])) > held]:
        follower.deliver(left)
    follower.flush()
    follower.close("complete")


@pytest.mark.parametrize("is_live", [True, False], ids=["while the agent follows", "by wandb sync"])
def test_wandb_uploads_pictures_with_the_rows_that_name_them(
    followed: MakeFollowed, wandb_server: WandbServer, is_live: bool
) -> None:
    run = followed("wandb", upload_seconds=600.0)
    pictures = train(run)
    environment = wandb_server.environment()
    run.follow(**environment if is_live else {})
    if not is_live:
        sync(run, environment)
    [uploaded] = wandb_server.runs.values()
    found = pictures_in(uploaded.rows())
    files = [(step, name, wandb_server.files[cell["path"]]) for step, name, cell in found]
    assert (files, uploaded.overwritten) == (pictures, [])
    cells = {name: cell for _, name, cell in found}
    assert cells["predictions"] == wandb_image(pictures[0][2], "predictions_3")
    assert {name: uploaded.summary[name] for name in cells} == cells


def wandb_image(content: bytes, stem: str) -> dict[str, object]:
    """Image a server got of `run.log({"predictions": wandb.Image("red.png")})` from wandb 0.31.0's `sync`."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"media/images/{stem}_{sha256[:20]}.png"
    about = {"_type": "image-file", "sha256": sha256, "size": len(content), "path": path}
    return {**about, "format": "png", "width": 5, "height": 3}


def test_trackio_gets_what_trackio_itself_makes_of_a_picture(followed: MakeFollowed) -> None:
    from trackio.media import TrackioImage
    from trackio.sqlite_storage import SQLiteStorage

    run = followed("trackio")
    train(run)
    deliver(run)
    rows = SQLiteStorage.get_logs(run.info.project, run_id=run.info.run_id)
    [ours] = [row["predictions"] for row in rows if "predictions" in row]
    image = TrackioImage(run.directory / "red.png")
    image._save(trackio.project_name(run.info.project), run.info.name, step=2)
    theirs = image._to_dict()
    assert {**ours, "file_path": Path(ours["file_path"]).parent} == {
        **theirs,
        "file_path": Path(theirs["file_path"]).parent,
    }


def a_picture(path: Path) -> bytes:
    Image.new("RGB", RED).save(path)
    return path.read_bytes()


def pictures_from(directory: Path, named: object) -> list[str]:
    record: Record = {"event": "eval", "time": 1.0, "seq": 7, "attempt": 1, "loss": 0.5, "pictures": named}
    return [it.name for it in pictures_of(record, fields_of(record), directory, taken={"seq"})]


BAD = {
    "/etc/hostname": "/etc/hostname is not in the run directory",
    "../red.png": "../red.png is not in the run directory",
    "link.png": "link.png is not in the run directory",
    "gone.png": "No such file or directory: {}/gone.png",
    "folder": "Is a directory: {}/folder",
    "pipe.png": "pipe.png is not a regular file",
    "torn.png": "it is not a complete PNG",
    "other.png": "it is not a PNG",
    "empty.png": "it is not a complete PNG",
    "": "'' names no file",
    7: "7 names no file",
    "a\0b": r"'a\x00b' names no file",
}


@pytest.mark.parametrize(("file", "reason"), BAD.items(), ids=map(repr, BAD))
def test_picture_that_cannot_be_shown_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: object, reason: str
) -> None:
    directory = tmp_path / "run"
    (directory / "folder").mkdir(parents=True)
    whole = a_picture(directory / "red.png")
    a_picture(tmp_path / "red.png")
    (directory / "link.png").symlink_to(tmp_path / "red.png")
    os.mkfifo(directory / "pipe.png")
    (directory / "torn.png").write_bytes(whole[:-1])
    (directory / "other.png").write_bytes(b"GIF89a" + whole[6:])
    (directory / "empty.png").touch()
    assert pictures_from(directory, {"bad": file, "good": "red.png"}) == ["good"]
    expected = f"picture 'bad' of record 7 is not shown: {reason.format(directory)}"
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_pictures_of_a_record_have_a_size_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(a_picture(tmp_path / "red.png"))
    monkeypatch.setattr(_pictures, "MOST_BYTES", 2 * size)
    assert pictures_from(tmp_path, dict.fromkeys("abc", "red.png")) == ["a", "b"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "picture 'c' of record 7 is not shown"
    ]


def test_no_picture_takes_the_place_of_a_point(tmp_path: Path) -> None:
    a_picture(tmp_path / "red.png")
    assert pictures_from(tmp_path, dict.fromkeys(("loss", "seq", "", "a/b"), "red.png")) == [
        *("loss_picture", "seq_picture", "_picture", "a/b")
    ]
    assert pictures_from(tmp_path, 5) == pictures_from(tmp_path, ["red.png"]) == []


def test_agent_reports_a_missing_picture_and_delivers_the_points(followed: MakeFollowed) -> None:
    run = followed("tensorboard")
    with new_run(run.directory, "digits", "tensorboard") as training:
        training.log_eval(1, split="val", val_loss=0.5, pictures={"a": "gone.png"})
    done = run.follow()
    assert (done.returncode, run.alerts()) == (0, [])
    assert json.loads(done.stderr)["message"] == (
        f"picture 'a' of record 1 is not shown: No such file or directory: {run.directory}/gone.png"
    )
    assert ordered(run.received()) == shown("tensorboard", run.sent())


def test_a_follower_has_the_pictures_of_one_record_at_a_time() -> None:
    batch: list[Record] = [{"seq": seq} | ({"pictures": {}} if seq in (2, 3, 6) else {}) for seq in range(8)]
    parts = [[record["seq"] for record in part] for part in parts_with_pictures(batch)]
    assert parts == [[0, 1, 2], [3], [4, 5, 6], [7]]
    assert list(parts_with_pictures([])) == [[]]
    assert list(parts_with_pictures(batch[:3])) == [batch[:3]]
