"""Callbacks of all frameworks keep one contract, by framework, case and number of processes.

Nothing that the framework logs is lost; a training is a new run unless it resumes a checkpoint; an evaluation
alone is a run; ranks are known; an error that the program catches is how the training ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from monitoring import read_records
from monitoring.journal.journal import Journal
from monitoring.journal.lineage import counting
from monitoring.journal.records import ENVELOPE
from tests.warm_python import WarmPython

from ...conftest import OFFLINE
from .conftest import launch
from .trainings import PROGRAMS

Record = dict[str, Any]
Run = Callable[[str, int], Path]

FRAMEWORKS = ("hugging_face", "lightning", "accelerate")
ERROR = "failed (RuntimeError: the disk of somebody else)"

# Case -> its runs, each as the records that count: steps, evaluations and how each attempt ended.
STORIES: Mapping[str, Mapping[str, str]] = {
    "one": {"one": "1 2 complete"},
    "twice": {"twice": "1 2 complete", "twice-2": "1 2 complete"},
    "trainers": {"trainers": "1 2 complete", "trainers-2": "1 2 complete"},
    "shared": {"shared": "1 2 complete", "shared-2": "1 2 complete"},
    "resumed": {"resumed": "1 2 3 4 complete"},
    "alone": {"alone": "val@0 complete"},
    "before": {"before": "val@0 1 2 complete"},
    "after": {"after": "1 2 val@2 complete"},
}
OWN_STORIES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "hugging_face": {
        "caught": {"caught": f"1 val@2 {ERROR}"},
        "stopped": {"stopped": "1 interrupted"},
        "search": {"search": "1 2 val@2 complete", "search-2": "1 2 val@2 complete"},
        "pruned": {"pruned": "1 val@1 2 val@2 complete", "pruned-2": "1 val@1 interrupted"},
        "smaller": {"smaller": "1 2 complete"},
    },
    "lightning": {
        "caught": {"caught": f"1 2 val@2 {ERROR}"},
        "longer": {"longer": "1 2 3 4 complete"},
    },
    # the script's own loop has caught it, and goes to its end
    "accelerate": {
        "caught": {"caught": "1 2 val@2 complete"},
        "loaded_before": {"loaded_before": "0 1 2 complete"},
        "text": {"text": "1 val@2 2 3 complete"},
    },
}
# Where the framework leaves the other processes waiting; what is recorded of two has a test of its own.
ONE_PROCESS = {("hugging_face", "pruned")}


def cases(framework: str, processes: int) -> list[str]:
    found = [*STORIES, *OWN_STORIES[framework], "everything"]
    return [case for case in found if processes == 1 or (framework, case) not in ONE_PROCESS]


@pytest.fixture(scope="module")
def trained(warm_frameworks: WarmPython, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The folder of a program that has run all cases of a framework, once for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def run(framework: str, processes: int) -> Path:
        folder = shared / f"{framework}-{processes}"
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "logged.json").exists():  # which the program writes at its end
                program = folder / "program.py"
                program.write_text(PROGRAMS[framework])
                launch(warm_frameworks, [program, *cases(framework, processes)], folder, framework, processes)
        return folder

    return run


def runs_of(folder: Path, case: str, name: str = "metrics.jsonl") -> dict[str, list[Record]]:
    """The journals of a case, by the name of the run directory."""
    found = sorted(folder.glob(f"{case}/{name}")) + sorted(folder.glob(f"{case}-[0-9]*/{name}"))
    return {path.parent.name: [dict(record) for record, _ in read_records(path)] for path in found}


def story(records: list[Record]) -> str:
    words = []
    for record in counting(records):
        if record["event"] == "step":
            words.append(str(record["global_step"]))
        elif record["event"] == "eval":
            words.append(f"{record['split']}@{record['global_step']}")
        elif record["event"] == "end":
            error = f" ({record['error']})" if "error" in record else ""
            words.append(f"{record['status']}{error}")
    return " ".join(words)


MATRIX = [
    (framework, processes, case)
    for framework in FRAMEWORKS
    for processes in (1, 2)
    for case in cases(framework, processes)
    if case != "everything"  # whose values are compared, below
]


@pytest.mark.parametrize(("framework", "processes", "case"), MATRIX)
def test_every_training_is_a_run_of_its_own(trained: Run, framework: str, processes: int, case: str) -> None:
    expected = {**STORIES, **OWN_STORIES[framework]}[case]
    folder = trained(framework, processes)
    assert {name: story(records) for name, records in runs_of(folder, case).items()} == expected
    of_rank_1 = runs_of(folder, case, "metrics.rank0001.jsonl")
    # accelerate calls trackers on its main process only
    told = processes > 1 and framework != "accelerate"
    assert {name: story(records) for name, records in of_rank_1.items()} == (expected if told else {})


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_that_is_logged_is_lost(trained: Run, framework: str, processes: int) -> None:
    """Every value that another logger of the same training was given is in the journal, as often."""
    folder = trained(framework, processes)
    logged = json.loads((folder / "logged.json").read_text())
    assert {entry["case"] for entry in logged} == set(cases(framework, processes))
    for case in cases(framework, processes):
        given = [entry["values"] for entry in logged if entry["case"] == case]
        records = [record for found in runs_of(folder, case).values() for record in found]
        assert Counter(values(given)) - Counter(values(records)) == Counter(), case


def values(found: list[Record]) -> list[str]:
    """Measured values as text; the epoch is left out, which frameworks add to many records."""
    left_out = ENVELOPE | {"epoch", "step"}
    return [json.dumps(value) for one in found for name, value in one.items() if name not in left_out]


@pytest.mark.parametrize("processes", [1, 2])
def test_names_that_collide_are_all_kept(trained: Run, processes: int) -> None:
    runs = runs_of(trained("accelerate", processes), "everything")
    step, val, test = runs["everything"][1:4]
    names = ("loss", "train_loss", "learning_rate", "lr", "grad_norm", "split", "step")
    assert {name: step[name] for name in names} == dict(
        zip(names, (0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 8.0), strict=True)
    )
    assert {val[name] for name in ("val_loss", "eval_loss", "valid/loss")} == {5.0, 6.0, 21.0}
    assert (val["split"], test["split"], test["test_bleu"]) == ("val", "test", 22.0)
    assert (step["event"], step["event_"], step["global_step"], step["global_step_"]) == (
        "step",
        24.0,
        1,
        23.0,
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_predictions_and_evaluations_of_any_prefix_are_splits(trained: Run, processes: int) -> None:
    [records] = runs_of(trained("hugging_face", processes), "everything").values()
    whole = [
        record
        for record in records
        if record["event"] == "eval" and any("_runtime" in name for name in record)
    ]
    assert [record["split"] for record in whole] == ["extra", "val", "val", "test", "holdout"]
    losses = [name for record in whole for name in record if name.endswith("_loss")]
    assert losses == ["extra_loss", "val_first_loss", "val_second_loss", "test_loss", "holdout_loss"]


@pytest.mark.parametrize("processes", [1, 2])
def test_tokens_that_the_trainer_counts_are_recorded_with_its_steps(trained: Run, processes: int) -> None:
    [records] = runs_of(trained("hugging_face", processes), "everything").values()
    steps = [record for record in records if record["event"] == "step" and "lr" in record]
    assert [record["num_input_tokens_seen"] for record in steps] == [16 * processes, 32 * processes]
    assert all(record["train_loss"] > 0 and record["train_tokens_per_second"] > 0 for record in steps)


@pytest.mark.parametrize("framework", ["hugging_face", "lightning", "accelerate"])
def test_the_device_is_said_so_that_its_gpu_is_the_runs(trained: Run, framework: str) -> None:
    start, *_ = runs_of(trained(framework, 1), "one")["one"]
    assert start["device"] == "cpu"


@pytest.mark.parametrize("processes", [1, 2])
def test_pace_and_configuration_are_recorded(trained: Run, processes: int) -> None:
    """Eight tokens a sample; no peak is known of a CPU."""
    start, *records = runs_of(trained("hugging_face", processes), "one")["one"]
    assert start["config"]["model_config"]["n_embd"] == 8
    steps = [record for record in records if record["event"] == "step"]
    assert [record["tokens_per_second"] / record["samples_per_sec"] for record in steps] == pytest.approx(
        [8, 8]
    )
    assert [(record["step_mfu"], record["overall_mfu"]) for record in steps] == [(None, None)] * 2
    own_loop = runs_of(trained("accelerate", processes), "text")["text"]
    steps = [record for record in own_loop if record["event"] == "step"]
    assert [record["tokens_per_second"] / record["samples_per_sec"] for record in steps] == pytest.approx(
        [5, 5, 5]
    )
    rates = [record["samples_per_sec"] * record["sec_per_step"] for record in steps]
    assert rates == pytest.approx([6 * processes] * 3)  # two parts of three samples
    of_module, *_ = runs_of(trained("lightning", processes), "one")["one"]
    assert of_module["config"] == {"width": 8}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_resumed_training_says_what_it_does_again(trained: Run, framework: str, processes: int) -> None:
    [records] = runs_of(trained(framework, processes), "resumed").values()
    first, second = (record for record in records if record["event"] == "start")
    assert (first["attempt"], first["resumed_from"], first["supersedes"]) == (1, None, None)
    assert (second["attempt"], second["resumed_from"]["global_step"]) == (2, 2)
    third = next(record["seq"] for record in records if record.get("global_step") == 3)
    assert second["supersedes"] == {"first_seq": third, "last_seq": second["seq"] - 1}


def test_a_trial_that_is_pruned_is_interrupted_also_where_others_wait_for_it(
    warm_frameworks: WarmPython, tmp_path: Path
) -> None:
    """The Trainer tells its first process alone of it; the others fail once that one is gone."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS["hugging_face"])
    launch(warm_frameworks, [program, "pruned"], tmp_path, "hugging_face", 2, codes=[0, 1])
    runs = runs_of(tmp_path, "pruned")
    assert {name: story(records) for name, records in runs.items()} == OWN_STORIES["hugging_face"]["pruned"]
    of_rank_1 = runs_of(tmp_path, "pruned", "metrics.rank0001.jsonl")
    assert story(of_rank_1["pruned"]) == "1 val@1 2 val@2 complete"
    assert story(of_rank_1["pruned-2"]).startswith("1 val@1 failed (")


def test_a_program_that_is_run_again_is_a_new_run(warm_frameworks: WarmPython, tmp_path: Path) -> None:
    """Also where another process trains in the directory right now."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS["hugging_face"])
    (tmp_path / "one").mkdir()
    held = Journal(tmp_path / "one/metrics.jsonl")  # of a process that has not written run.json yet
    for _ in range(2):
        launch(warm_frameworks, [program, "one"], tmp_path, "hugging_face", 1)
    held.close()
    names = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("one*/run.json")}
    assert {name: run["tracking"]["name"] for name, run in names.items()} == {
        "one-2": "one-2",
        "one-3": "one-3",
    }
    assert [story(runs_of(tmp_path, "one")[name]) for name in ("one-2", "one-3")] == ["1 2 complete"] * 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_training_that_was_killed_goes_on_in_its_run(
    warm_frameworks: WarmPython, tmp_path: Path, framework: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[framework])
    codes = [
        warm_frameworks.run(["program.py", case], cwd=tmp_path, env={**os.environ, **OFFLINE}).returncode
        for case in ("killed", "continued")
    ]
    assert codes == [-signal.SIGKILL, 0]
    runs = runs_of(tmp_path, "killed")
    assert {name: story(records) for name, records in runs.items()} == {"killed": "1 2 3 4 complete"}
    third = [record["attempt"] for record in runs["killed"] if record.get("global_step") == 3]
    assert third == [1, 2]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_error_that_ends_the_program_is_how_the_training_ended(
    warm_frameworks: WarmPython, tmp_path: Path, framework: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[framework])
    done = warm_frameworks.run(["program.py", "failed"], cwd=tmp_path, env={**os.environ, **OFFLINE})
    assert done.returncode == 1
    assert story(runs_of(tmp_path, "failed")["failed"]).endswith(ERROR)
