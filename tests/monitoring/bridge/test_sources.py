"""Values that real programs report to trackers or print are recorded, to the last one."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from monitoring.bridge.flat import MOST_OPTIONS
from monitoring.bridge.neighbors import Neighbors, folder_name
from monitoring.bridge.recorder import REPORTED
from monitoring.journal.records import read_records
from monitoring.journal.run_json import read_run_json
from monitoring.trackers import _event_file, _wandb_log

from ...waiting import wait_until
from ...warm_python import WarmPython
from .conftest import STEPS, Bridged, ours

LOSSES = [4 / (step + 1) for step in range(STEPS)]


def records(run_dir: Path, event: str) -> list[dict[str, Any]]:
    """The records of a kind without what differs from run to run."""
    beside = {"event", "time", "seq", "attempt", REPORTED}
    return [
        {name: value for name, value in record.items() if name not in beside}
        for record, _ in read_records(run_dir / "metrics.jsonl")
        if record["event"] == event
    ]


def rounded(text: str) -> list[float]:
    return [float(text % loss) for loss in LOSSES]


# What is known of the CONFIG of programs.py; of its labels as many as there is room for.
KEPT = {
    "amp": True,
    "betas": [0.9, 0.99],
    "lr": 0.5,
    "lr2": 3,
    "model.depth": 2,
    "scheduler": None,
    "model.act.name": "relu",
}
LABELS = {f"labels.{number}": f"label {number}" for number in range(600)}


def config(run_dir: Path) -> dict[str, Any]:
    """The configuration, of which run.json and the newest start record have to know the same."""
    kept: dict[str, Any] = read_run_json(run_dir)["config"]
    assert records(run_dir, "start")[-1]["config"] == kept
    return kept


def steps(values: Sequence[float], **others: object) -> list[dict[str, object]]:
    return [{"global_step": n, "train_loss": value, **others} for n, value in enumerate(values)]


def test_output_of_nanogpt(run_dir: Path, bridged: Bridged) -> None:
    ended = bridged(run_dir, *ours("nanogpt"))
    assert ended.returncode == 0, ended.stderr
    assert records(run_dir, "step") == steps(rounded("%.4f"), step_ms=12.5, mfu_percent=1.25)
    assert "recorded from output: loss, step_ms, mfu_percent" in ended.stderr
    assert records(run_dir, "end") == [{"status": "complete", "first_step": 0, "steps_done": STEPS}]


def test_output_of_torchtitan_in_colors(run_dir: Path, bridged: Bridged) -> None:
    assert bridged(run_dir, *ours("torchtitan")).returncode == 0
    others = {"grad_norm": 1.25, "memory_gib": 10.25, "tokens_per_second": 1234, "tflops": 1.5}
    assert records(run_dir, "step") == steps(rounded("%.4f"), **others, mfu_percent=2.5)


def test_dicts_that_hugging_face_prints_are_counted(run_dir: Path, bridged: Bridged) -> None:
    ended = bridged(run_dir, *ours("hugging_face"))
    assert records(run_dir, "step") == [
        {"global_step": n, "train_loss": loss, "lr": 1e-05, "epoch": 0.5}
        for n, loss in enumerate(rounded("%.4g"), 1)
    ]
    assert "Hugging Face prints 4 digits and no step" in ended.stderr


def test_steps_of_hugging_faces_dicts_are_those_of_the_progress_bar_behind_them(
    run_dir: Path, bridged: Bridged
) -> None:
    ended = bridged(run_dir, *ours("hugging_face with a bar"))
    found = [(r["global_step"], r["train_loss"]) for r in records(run_dir, "step")]
    assert found == [(2 * n, float(f"{4 / (n + 1):.4g}")) for n in range(1, STEPS + 1)]
    assert [(r["global_step"], r["val_loss"]) for r in records(run_dir, "eval")] == [(6, 0.5), (24, 0.25)]
    assert "(Hugging Face prints 4 digits; the steps are those of its progress bar)" in ended.stderr


def test_pattern_of_the_users(run_dir: Path, bridged: Bridged) -> None:
    pattern = r"it=(?P<step>\d+) \| error (?P<train__error>\S+)"
    assert bridged(run_dir, *ours("own"), options=["--pattern", pattern]).returncode == 0
    assert [(r["global_step"], r["train/error"]) for r in records(run_dir, "step")] == list(
        enumerate(rounded("%.3e"))
    )


@pytest.mark.parametrize("kind", ["wandb", "trackio"])
def test_rows_of_trackers(run_dir: Path, kind: str, bridged_tracker: Bridged) -> None:
    ended = bridged_tracker(run_dir, *ours(kind), options=["--config", '{"LR2": 4, "lr": 0.1, "words": 1}'])
    assert ended.returncode == 0, ended.stderr
    assert records(run_dir, "step") == [
        {"global_step": n, "train_loss": loss, "nested/a": n} for n, loss in enumerate(LOSSES)
    ]
    assert records(run_dir, "eval") == [
        {"global_step": n, "split": "val", "val_acc": n / 7} for n in range(STEPS)
    ]
    found = config(run_dir)
    labels = {name: value for name, value in found.items() if name.startswith("labels.")}
    # an axis counts before what the program says, and that before the words of its command
    options = {"LR2": 4, "words": 1, **{name: KEPT[name] for name in KEPT if name != "lr2"}}
    assert found == {**options, **labels, **({"lr": 0.25, "batch": 8} if kind == "wandb" else {})}
    assert labels.items() <= LABELS.items()
    assert len(labels) == (0 if kind == "wandb" else MOST_OPTIONS - len(KEPT))
    names = "nested/a, train/loss, val/acc" if kind == "wandb" else "train/loss, nested/a, val/acc"
    assert f"recorded from {kind}: {names}" in ended.stderr
    upload = r"^wandb: this run is on this disk, not uploaded; to upload it: \S*wandb sync (\S+)$"
    kept = re.findall(upload, ended.stderr, flags=re.MULTILINE)
    assert [Path(folder).parent.name for folder in kept] == ["wandb"] * (kind == "wandb")
    assert all(list(run_dir.glob(f"stores/wandb/{Path(folder).name}/*.wandb")) for folder in kept)


def test_event_files(run_dir: Path, bridged_tracker: Bridged) -> None:
    ended = bridged_tracker(run_dir, *ours("scalars"))
    assert ended.returncode == 0, ended.stderr
    found = records(run_dir, "step")
    assert [r for r in found if "lr" in r] == [
        {"global_step": n, "train_loss": pytest.approx(loss, rel=1e-7), "lr": 0.5}
        for n, loss in enumerate(LOSSES)
    ]
    for name, part in (("acc/a", 4), ("acc/b", 8)):  # what add_scalars writes into a folder of its own
        assert [r for r in found if name in r] == [{"global_step": n, name: n / part} for n in range(STEPS)]
    assert config(run_dir) == {"amp": 1, "lr": 0.5, "lr2": 3, "model/act": "relu"}
    assert "recorded from tensorboard: loss, lr, acc/" in ended.stderr
    assert "; single precision, as event files have it)" in ended.stderr


def test_scalars_that_name_their_split_last_are_evaluations(run_dir: Path, bridged_tracker: Bridged) -> None:
    """PyTorch's tutorial of TensorBoard has them, and add_scalars writes its curves so."""
    program = (
        "from torch.utils.tensorboard import SummaryWriter\n"
        "with SummaryWriter() as writer:\n"
        "    writer.add_scalar('Loss/train', 1.5, 1)\n"
        "    writer.add_scalar('Loss/val', 1.75, 1)\n"
        "    writer.add_scalars('f1', {'val': 0.5}, 1)\n"
    )
    assert bridged_tracker(run_dir, sys.executable, "-c", program).returncode == 0
    assert records(run_dir, "step") == [{"global_step": 1, "train_loss": 1.5}]
    evaluations = sorted(records(run_dir, "eval"), key=lambda one: "val_loss" in one)
    assert evaluations == [
        {"global_step": 1, "split": "val", "val_f1": 0.5},
        {"global_step": 1, "split": "val", "val_loss": 1.75},
    ]


def test_mlflow(run_dir: Path, bridged_tracker: Bridged) -> None:
    assert bridged_tracker(run_dir, *ours("mlflow")).returncode == 0
    assert records(run_dir, "step") == steps(LOSSES)
    assert records(run_dir, "eval") == [
        {"global_step": n, "split": "val", "val_acc": n / 7} for n in range(STEPS)
    ]
    assert config(run_dir) == {**KEPT, "name": "007"}


@pytest.mark.parametrize(("kind", "others"), [("csv", {"note": "a, b"}), ("jsonl", {})])
def test_files_that_the_user_names(
    run_dir: Path, kind: str, others: dict[str, object], bridged: Bridged
) -> None:
    assert bridged(run_dir, *ours(kind), options=["--follow", f"own.{kind}"]).returncode == 0
    assert records(run_dir, "step") == steps(LOSSES, **others)


ADDS = """
import json, sqlite3
open('own.jsonl', 'a').write('{"step": 2, "loss": 0.5}\\n')
open('own.csv', 'w').write('step,acc\\n1,0.75\\n')  # as long as before
with sqlite3.connect('shared/p.db') as rows:
    rows.execute("INSERT INTO metrics VALUES (NULL, '2026-01-01', 3, '{\\"f1\\": 0.5}')")
"""


def test_rows_that_stood_in_a_store_before_are_not_recorded(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, bridged: Bridged
) -> None:
    """Files that are appended to or begun anew, and a database that several programs share."""
    here = run_dir.parent
    (here / "own.jsonl").write_text('{"step": 1, "loss": 9}\n')
    (here / "own.csv").write_text("step,acc\n9,0.25\n")
    (here / "shared").mkdir()
    with contextlib.closing(sqlite3.connect(here / "shared" / "p.db")) as rows, rows:
        rows.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, step, metrics)")
        rows.execute("INSERT INTO metrics VALUES (1, '2026-01-01', 9, '{\"f1\": 0.9}')")
    monkeypatch.setenv("TRACKIO_DIR", str(here / "shared"))
    follow = ["--follow", "own.jsonl", "--follow", "own.csv"]
    expected = [
        {"global_step": 3, "f1": 0.5},
        {"global_step": 2, "train_loss": 0.5},
        {"global_step": 1, "acc": 0.75},
    ]
    for attempt in (1, 2):  # nor are, for the second, those of the first
        ended = bridged(run_dir, sys.executable, "-c", ADDS, options=follow)
        assert ended.returncode == 0, ended.stderr
        assert records(run_dir, "step") == expected * attempt


TORN = r"""
open('m.jsonl', 'w').write('{"step":1,"loss":NaN}\n\n{"step":2,"lo\noops\n{"step":3,"loss":0.5}')
open('n.jsonl', 'w').write('{"step":1,"acc":0.5}\n{"step":2,"ac')
open('c.csv', 'w').write('step,f1\n1,0.5\n2,0.2')
"""


def test_lines_that_are_no_record_are_left_out_and_said_once(run_dir: Path, bridged: Bridged) -> None:
    """A last line that is whole JSON needs no end; the last number of a CSV may lack digits."""
    follow = [word for name in ("m.jsonl", "n.jsonl", "c.csv") for word in ("--follow", name)]
    ended = bridged(run_dir, sys.executable, "-c", TORN, options=follow)
    assert ended.returncode == 0, ended.stderr
    found = [
        (record["global_step"], name, record[name])
        for record in records(run_dir, "step")
        for name in ("train_loss", "acc", "f1")
        if name in record
    ]
    assert sorted(found, key=str) == [
        (1, "acc", 0.5),
        (1, "f1", 0.5),
        (1, "train_loss", None),
        (3, "train_loss", 0.5),
    ]
    assert [line for line in ended.stderr.splitlines() if line.startswith("note: ")] == [
        'note: m.jsonl has a line that is no JSON, which is left out: \'{"step":2,"lo\'',
        "note: n.jsonl ends in the middle of a line, which is left out",
        "note: c.csv ends in the middle of a line, which is left out",
    ]


# Has the store that a tracker has written, with half a record at its end.
LEAVES_HALF = """
import os, pathlib, sys
made, place, half = sys.argv[1:]
(path,) = pathlib.Path(made).glob(place)
to = pathlib.Path(os.environ["WANDB_DIR"] if "wandb" in place else ".", path.relative_to(made))
to.parent.mkdir(parents=True)
to.write_bytes(path.read_bytes() + bytes.fromhex(half))
"""


@pytest.mark.parametrize(
    ("kind", "place", "half"),
    [
        ("scalars", "runs/a/*tfevents*", _event_file.framed(b"an event")[:-5]),
        ("wandb", "wandb/offline*/*.wandb", _wandb_log.CHUNK.pack(0, 9, _wandb_log.WHOLE) + b"record"),
    ],
)
def test_store_that_ends_in_the_middle_of_a_record_is_told(
    kind: str, place: str, half: bytes, run_dir: Path, bridged: Bridged, stored_by: Callable[[str], Path]
) -> None:
    program = [sys.executable, "-c", LEAVES_HALF, stored_by(kind), place, half.hex()]
    ended = bridged(run_dir, *program)
    notes = [line.partition(" is ")[2] for line in ended.stderr.splitlines() if line.startswith("note: ")]
    assert (ended.returncode, notes) == (0, [f"cut off: its last {len(half)} bytes hold no whole record"])
    assert [record["train_loss"] for record in records(run_dir, "step")] == pytest.approx(LOSSES)


def test_run_of_ours_in_a_program_spools(run_dir: Path, bridged: Bridged) -> None:
    assert bridged(run_dir, *ours("run")).returncode == 0
    assert not list(run_dir.parent.glob("results/own/*.json*"))
    assert [(r["global_step"], r["train_loss"]) for r in records(run_dir, "step")] == list(enumerate(LOSSES))
    assert records(run_dir, "eval") == [{"global_step": STEPS, "split": "val", "val_loss": 0.5}]
    assert records(run_dir, "start")[-1]["model"] == {"name": "m", "parameters": 3, "architecture": "a"}
    assert len(records(run_dir, "end")) == 1


def test_richer_source_counts_and_the_other_is_named(run_dir: Path, bridged_tracker: Bridged) -> None:
    ended = bridged_tracker(run_dir, *ours("trackio and output"))
    assert ended.returncode == 0, ended.stderr
    found = records(run_dir, "step")
    assert [r["train_loss"] for r in found if "train_loss" in r] == LOSSES
    assert [r["step_ms"] for r in found if "step_ms" in r] == [9] * STEPS
    assert "loss of output is left out, for trackio reports it too" in ended.stderr


def test_calls_of_trackers_are_recorded_in_the_program(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, bridged_tracker: Bridged
) -> None:
    """After a `sitecustomize` of the user's own."""
    own = run_dir.parent / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('of the user')")
    monkeypatch.setenv("PYTHONPATH", str(own))
    ended = bridged_tracker(run_dir, *ours("trackio"), options=["--hook"])
    assert ended.returncode == 0, ended.stderr
    assert records(run_dir, "step") == [
        {"global_step": n, "train_loss": loss, "nested/a": n} for n, loss in enumerate(LOSSES)
    ]
    assert len(records(run_dir, "eval")) == STEPS
    assert "recorded from hook: train/loss, nested/a, val/acc" in ended.stderr
    assert (run_dir / "output.log").read_text().startswith("of the user\n")


def test_scalars_of_a_writer_and_logs_of_a_trainer_are_recorded_in_the_program(
    run_dir: Path, bridged: Bridged
) -> None:
    """But for the Trainer's last log, whose loss is the mean of the whole training."""
    for name, text in (
        ("tensorboardX/writer.py", "class SummaryWriter:\n add_scalar = add_scalars = lambda *_: None"),
        ("transformers/trainer.py", "class Trainer:\n log = lambda *_: None"),
    ):
        file = run_dir.parent / name
        file.parent.mkdir()
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    program = """
import sys; sys.path.insert(0, '')
from types import SimpleNamespace
from tensorboardX.writer import SummaryWriter
from transformers.trainer import Trainer
SummaryWriter().add_scalars('acc', {'a': 0.25, 'b': 0.5}, 7)
trainer = Trainer()
trainer.state = SimpleNamespace(global_step=8, epoch=None, is_world_process_zero=True)
trainer.log({'loss': 2.5})
trainer.log({'train_runtime': 9.0, 'train_loss': 3.5})
"""
    assert bridged(run_dir, sys.executable, "-c", program, options=["--hook"]).returncode == 0
    assert records(run_dir, "step") == [
        {"global_step": 7, "acc/a": 0.25, "acc/b": 0.5},
        {"global_step": 8, "train_loss": 2.5},
    ]


# A value whose reading is interrupted, and one that cannot be read.
INTERRUPTED = """
import os, signal, sys; sys.path.insert(0, '')
from tensorboardX.writer import SummaryWriter
class Preempted(Exception): ...
class Value:
    def numel(self): return 1
    def item(self): {reading}
{handler}
signal.signal(signal.SIGUSR1, handler)
for step, value in enumerate((1.0, Value(), 3.0)):
    try:
        SummaryWriter().add_scalar('a', value, step)
    except BaseException as error:
        print(type(error).__name__)
"""
KILLS = "os.kill(os.getpid(), signal.SIGUSR1); return 2.0"


@pytest.mark.parametrize(
    ("reading", "handler", "said", "steps", "notes"),
    [
        (KILLS, "def handler(number, frame): raise Preempted", ["Preempted"], [0, 2], 0),
        (KILLS, "def handler(*_): sys.exit(3)", ["SystemExit"], [0, 2], 0),
        (KILLS, "handler = signal.default_int_handler", ["KeyboardInterrupt"], [0, 2], 0),
        (KILLS, "def handler(*_): pass", [], [0, 1, 2], 0),
        ("raise Preempted", "handler = signal.SIG_IGN", [], [0], 1),
    ],
)
def test_what_a_signal_handler_raises_while_a_call_is_recorded_is_the_programs(
    run_dir: Path, bridged: Bridged, reading: str, handler: str, said: list[str], steps: list[int], notes: int
) -> None:
    file = run_dir.parent / "tensorboardX/writer.py"
    file.parent.mkdir()
    (file.parent / "__init__.py").touch()
    file.write_text("class SummaryWriter:\n add_scalar = add_scalars = lambda *_: None")
    program = INTERRUPTED.format(reading=reading, handler=handler)
    assert bridged(run_dir, sys.executable, "-c", program, options=["--hook"]).returncode == 0
    output = (run_dir / "output.log").read_text().splitlines()
    found = [record["global_step"] for record in records(run_dir, "step")]
    note = "note: --hook: nothing more is recorded in the process: Preempted: "
    assert (output, found) == ([*said, *[note] * notes], steps)


def test_a_tracker_that_the_hook_does_not_know_is_used_without_it(run_dir: Path, bridged: Bridged) -> None:
    other = run_dir.parent / "tensorboardX"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "writer.py").write_text("class EventWriter: pass")
    program = (
        "import sys; sys.path.insert(0, ''); import tensorboardX.writer; print('iter 1: loss 2, time 1ms')"
    )
    assert bridged(run_dir, sys.executable, "-c", program, options=["--hook"]).returncode == 0
    first, second = (run_dir / "output.log").read_text().splitlines()
    assert first == (
        "note: --hook: tensorboardX.writer is not recorded in the process: KeyError: 'SummaryWriter'"
    )
    assert second == "iter 1: loss 2, time 1ms"
    assert bridged(run_dir, sys.executable, "-I", "-c", "print(2)", options=["--hook"]).returncode == 0
    assert (run_dir / "output.log").read_text().splitlines()[2:] == ["2"]


def test_two_programs_that_write_event_files_into_one_folder_stay_apart(
    results: Path, warm_bridge: WarmPython
) -> None:
    """Both still run when the last has been found by both bridges: each looks every other second."""
    ends = results / "end"
    program = (
        "import pathlib, sys, time\n"
        "from torch.utils.tensorboard import SummaryWriter\n"
        "with SummaryWriter('runs', flush_secs=1) as writer:\n"
        "    for step in range(3):\n"
        "        writer.add_scalar('loss', float(sys.argv[1]), step)\n"
        "    writer.flush()\n"
        f"    while not pathlib.Path({str(ends)!r}).exists():\n"
        "        time.sleep(0.05)\n"
    )
    directories = [results / name for name in ("one", "two")]
    bridges = [
        warm_bridge.start(
            ["-m", "monitoring.bridge", directory, "--", sys.executable, "-c", program, number],
            cwd=results,
            stderr=subprocess.DEVNULL,
        )
        for number, directory in enumerate(directories, 1)
    ]
    try:
        wait_until(lambda: all(len(records(directory, "step")) == 3 for directory in directories))
    finally:
        ends.touch()
    assert [bridge.wait() for bridge in bridges] == [0, 0]
    losses = [[r["train_loss"] for r in records(directory, "step")] for directory in directories]
    assert losses == [[1.0] * 3, [2.0] * 3]


def test_nothing_found_shows_what_was_printed(run_dir: Path, bridged: Bridged) -> None:
    ended = bridged(run_dir, *ours("quiet", 1))
    assert ended.stderr.startswith(
        "no metrics were found; its last line is 'done'; --pattern REGEX or --follow FILE"
    )
    assert records(run_dir, "end") == [{"status": "complete"}]


def test_a_named_file_that_is_not_there_is_told(run_dir: Path, bridged: Bridged) -> None:
    ended = bridged(run_dir, "true", options=["--follow", "metrics.csv"])
    assert ended.stderr == "recorded from nothing; metrics.csv is not there, which --follow names\n"


def test_what_another_program_has_just_written_is_its_own(results: Path, bridged_tracker: Bridged) -> None:
    """The next run of a matrix begins when the last has ended, and reads none of its files."""
    assert bridged_tracker(results / "one", *ours("tensorboard", 3)).returncode == 0
    for file in (results / "runs").rglob("events.*"):
        os.utime(file)
    assert bridged_tracker(results / "two", *ours("tensorboard", 2)).returncode == 0
    assert [record["global_step"] for record in records(results / "two", "step")] == [0, 1]


WITHOUT_A_NAME = """
import pathlib, sys, time
folder = pathlib.Path('lightning_logs', sys.argv[1])
folder.mkdir()
while len(list(pathlib.Path('lightning_logs').iterdir())) < 2:
    time.sleep(0.05)
(folder / 'metrics.csv').write_text('step,loss\\n0,1.5\\n')
"""


def test_files_of_programs_that_run_beside_each_other_are_left_to_nobody(results: Path) -> None:
    """Lightning's have no writer's name; where they could be either's, a line says so."""
    (results / "lightning_logs").mkdir()
    bridges = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "monitoring.bridge", str(results / name), "--"),
                *(sys.executable, "-c", WITHOUT_A_NAME, name),
            ],
            cwd=results,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for bridge in bridges:
        errors = bridge.communicate()[1]
        assert bridge.returncode == 0, errors
        assert "metrics.csv is not read, for another run is in this folder" in errors
    assert [records(results / name, "step") for name in ("one", "two")] == [[], []]


COMES = (
    "from pathlib import Path; from monitoring.bridge.neighbors import Neighbors; "
    "one = Neighbors(Path({!r}), Path({!r}), was_killed={!r})"
)


def test_neighbors_see_each_other_also_when_one_was_there_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("shared", "x", "y")]
    for place in places:
        place.mkdir()
    shared, here, elsewhere = places
    monkeypatch.setenv("TMPDIR", str(shared))

    def comes(then: str, run_dir: str = "run") -> None:
        come = COMES.format(str(here), str(here / run_dir), False)
        subprocess.run([sys.executable, "-c", f"{come}; {then}"], check=True)

    comes("assert not one.seen()")  # and is gone without a word: its entry is nobody's
    one, other = (Neighbors(place, place / "run", was_killed=False) for place in (here, elsewhere))
    assert not one.seen()
    comes("assert one.seen(); one.leave()")
    assert one.seen()
    assert not other.seen()
    one.leave()
    other.leave()
    assert list(shared.rglob("*")) == [shared / f"monitoring-bridges-{os.getuid()}"]


def test_a_folder_that_is_removed_keeps_its_number_while_a_bridge_of_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the runs of a new one would have that bridge for a neighbor."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (removed := tmp_path / "here").mkdir()
    neighbors = Neighbors(removed, removed / "run", was_killed=False)
    name = folder_name(removed)
    removed.rmdir()
    new = [tmp_path / str(number) for number in range(8)]
    for folder in new:
        folder.mkdir()
    assert name not in list(map(folder_name, new))
    neighbors.leave()


def test_a_killed_bridge_tells_the_next_one_of_its_run_whether_another_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    attempted = set()

    def killed(name: str) -> None:
        """An attempt of a run."""
        come = COMES.format(str(tmp_path), str(tmp_path / name), name in attempted)
        subprocess.run([sys.executable, "-c", come], check=True)
        attempted.add(name)

    def seen(name: str) -> bool:
        neighbors = Neighbors(tmp_path, tmp_path / name, was_killed=name in attempted)
        found = neighbors.earlier().seen()
        neighbors.leave()
        return found

    assert not seen("first attempt")
    killed("alone")
    killed("alone")
    assert not seen("alone")
    killed("one")
    killed("two")  # which takes the entry of the first out
    killed("two")
    assert [seen(name) for name in ("two", "one")] == [False, True]


def test_stores_in_the_run_directory_are_found_but_for_what_its_trackers_write(
    results: Path, bridged_tracker: Bridged
) -> None:
    program = (
        "import sys\n"
        "from torch.utils.tensorboard import SummaryWriter\n"
        "with SummaryWriter(sys.argv[1] + '/logs/a') as writer:\n"
        "    writer.add_scalar('loss', 1.5, 1)\n"
    )
    options = ["--trackers", '{"tensorboard": {}}']
    run_dir = results / "run"
    for attempt in (1, 2):
        ended = bridged_tracker(run_dir, sys.executable, "-c", program, run_dir, options=options)
        assert ended.returncode == 0, ended.stderr
        wait_until(lambda: bool(list(run_dir.glob("tensorboard/events*"))))
        assert records(run_dir, "step") == [{"global_step": 1, "train_loss": 1.5}] * attempt
