"""`make reproduce`, on runs of a checkout with a history of its own."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kharness.runs.bundle.archive import write_bundle
from kharness.runs.files import BUNDLE
from monitoring import Run, read_records
from monitoring.host.environment import git_state_and_difference
from monitoring.journal.this_process import keep_code_diff

from ....few_digits import copy, environment_of
from ....warm_python import WarmPython

FLAGS = ("--dataset", "few-digits", "--device", "cpu", "--num-threads", "1", "--tracker", "none")
SHORT = ("--batch-size", "18", "--num-epochs", "2", "--optimizer", "adamw", "--seed", "11")


def git(checkout: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(few_digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout under test as a repository of one commit."""
    folder = copy(few_digits, tmp_path_factory.mktemp("reproduce") / "checkout")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture(scope="module")
def run(root: Path, checkout: Path, warm_torch: WarmPython) -> Path:
    """A run that was killed once, and stopped once, before it was complete."""
    for seed in itertools.count(3):
        results = checkout / f"results-{seed}"
        results.mkdir()
        crashes = [root / "tests/lenet5/crashes.py", checkout / "lenet5/train.py", results, seed, "kill TERM"]
        done = warm_torch.run([*crashes, *FLAGS, *SHORT], cwd=checkout, env=environment_of(checkout))
        logs = "".join(log.read_text() for log in results.glob("*.log"))
        assert done.returncode == 0, done.stderr + logs
        if not (results / "run-2").exists():  # else it was complete before its moment came
            break
    return results / "run-1"


def records(run: Path, event: str) -> list[dict[str, Any]]:
    return [record for record, _ in read_records(run / "metrics.jsonl") if record["event"] == event]


@pytest.fixture
def reproduce(checkout: Path, warm_torch: WarmPython) -> Callable[..., SimpleNamespace]:
    """Run scripts/reproduce.py; `lines` is what it says beside the training's own output."""

    def call(run: Path, *variables: str) -> SimpleNamespace:
        before = set(run.parent.iterdir())
        command = [checkout / "scripts/reproduce.py", f"RUN={run}", *variables]
        done = warm_torch.run(command, cwd=checkout, env=environment_of(checkout))
        said = re.compile("code|differs|not compared|bit-equal|first difference")
        made = sorted(path.name for path in set(run.parent.iterdir()) - before)
        lines = [line for line in done.stdout.splitlines() if said.match(line)]
        return SimpleNamespace(code=done.returncode, lines=lines, err=done.stderr, made=made, out=done.stdout)

    return call


def copied(run: Path, name: str, *, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a run with changed records."""
    copy = run.with_name(name)
    shutil.copytree(run, copy)
    written = [record for record, _ in read_records(run / "metrics.jsonl")]
    for record in written:
        change(record)
    (copy / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in written))
    return copy


def test_run_that_was_killed_and_stopped_is_bit_equal(
    checkout: Path, run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    revision = git(checkout, "rev-parse", "HEAD")[:12]
    done = reproduce(run)
    # 12 steps, 2 epochs, 3 evaluations, 2 checkpoints, 1 end
    assert done.lines[-1] == "bit-equal: 20 records", done.out + done.err
    assert (done.lines[0], done.code) == (f"code: revision {revision}, as it is here", 0)
    assert done.made == ["run-1_reproduced"]
    again = run.with_name("run-1_reproduced")
    (start,) = records(again, "start")
    assert (start["seed"], start["run_name"]) == (11, "run-1_reproduced")
    assert start["data_sha256"] == records(run, "start")[0]["data_sha256"]
    assert [one["status"] for one in records(run, "end")] == ["interrupted", "complete"]
    assert len(records(run, "start")) == 3, "killed once, stopped once"


def test_other_data_are_refused_before_a_step(run: Path, reproduce: Callable[..., SimpleNamespace]) -> None:
    def other_data(record: dict[str, Any]) -> None:
        if record["event"] == "start":
            record["data_sha256"] = "0" * 64

    past = copied(run, "other-data", change=other_data)
    here = records(run, "start")[0]["data_sha256"]
    done = reproduce(past)
    assert (done.code, done.made) == (2, [])
    said = f"error: the data are not those of the past run: SHA-256 {'0' * 64}, here {here}\n"
    assert said in done.out + done.err
    assert done.err.endswith("other-data_reproduced is removed: nothing was trained\n")


def test_run_of_an_earlier_revision_is_run_in_a_worktree_of_it(
    checkout: Path, run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    """The earlier revision is checked out: the current code would train something else."""
    revision = git(checkout, "rev-parse", "HEAD")
    train = checkout / "lenet5" / "train.py"
    text = train.read_text()
    train.write_text(text.replace("training.update(loss)", "training.update(loss * 2)"))
    git(checkout, "commit", "--quiet", "-a", "-m", "second")
    try:
        done = reproduce(run)
        assert done.lines[-1] == "bit-equal: 20 records", done.out + done.err
        assert done.lines[0] == f"code: revision {revision[:12]}, in a worktree of its own"
        (again,) = done.made
        (start,) = records(run.with_name(again), "start")
        assert start["git"] == {"revision": revision, "dirty": False, "diff_sha256": None}
        assert git(checkout, "worktree", "list").count("\n") == 0
    finally:
        git(checkout, "reset", "--quiet", "--hard", revision)


def test_a_bundle_of_a_run_with_changed_code_is_reproduced_with_the_changes(
    checkout: Path, run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    """The uncommitted changes are taken from the bundle, the only place that still has them."""
    model, revision = checkout / "lenet5/model.py", git(checkout, "rev-parse", "HEAD")
    committed = model.read_text()
    model.write_text(committed + "CHANGED = 1\n")
    state: Any
    state, difference = git_state_and_difference(checkout)
    changed = copied(run, "changed", change=lambda record: record.update(git=state) if "git" in record else 0)
    keep_code_diff(changed, state, difference)
    model.write_text(committed)
    bundle = write_bundle(changed, checkout.parent / f"sent{BUNDLE}").path
    shutil.rmtree(changed)
    done = reproduce(bundle)
    assert done.lines[-1:] == ["bit-equal: 20 records"], done.out + done.err
    changes = f"with changes of SHA-256 {state['diff_sha256'][:12]}…"
    assert done.lines[0] == f"code: revision {revision[:12]} {changes}, in a worktree of its own"
    assert done.made == ["sent.unpacked"]
    assert {path.name for path in (bundle.parent / "sent.unpacked").iterdir()} == {
        "changed",
        "changed_reproduced",
    }


def test_first_difference_is_named(
    checkout: Path, run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    """A run that claims another revision and one other loss."""

    def change(record: dict[str, Any]) -> None:
        if record["event"] == "start":
            record["git"]["revision"] = "0" * 40
            record["versions"]["torch"] = "1.0"
        if record["event"] == "step" and record["global_step"] == 5:
            record["train_loss"] = 0.25

    other = copied(run, "other", change=change)
    refused = reproduce(other)
    assert (refused.code, refused.made) == (2, [])
    assert refused.err == (
        f"error: the code is not available: the run's revision {'0' * 40} is not in this repository "
        "(git fetch may bring it)\n"
        "hint: ANYWAY=y trains with the code that is here, and compares all the same\n"
    )

    done = reproduce(other, "ANYWAY=y")
    loss = next(step["train_loss"] for step in records(run, "step") if step["global_step"] == 5)
    assert done.code == 3
    assert done.lines[0].startswith(
        f"code: revision {git(checkout, 'rev-parse', 'HEAD')[:12]}, as it is here; "
    )
    assert done.lines.pop(1).startswith("differs: torch: 1.0, here "), "before it trains"
    assert done.lines[1].startswith("differs: torch: 1.0, now ")
    assert done.lines[-2:] == [
        "bit-equal up to there: 4 records",
        "first difference: the step record of step 5: train_loss: 0.25 in other, "
        f"{loss!r} in other_reproduced",
    ]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "the run was made outside a git checkout, so nobody knows its revision"),
        (
            {"revision": "ab" * 20, "dirty": True, "diff_sha256": "cd" * 32},
            f"the run's code was revision {'ab' * 6} with changes of SHA-256 {'cd' * 6}…, and those changes "
            "are not kept anywhere",
        ),
    ],
    ids=["no git", "dirty"],
)
def test_code_that_is_not_kept_is_an_error(
    run: Path, reproduce: Callable[..., SimpleNamespace], state: object, why: str
) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["event"] == "start":
            record["git"] = state

    done = reproduce(copied(run, f"lost-{state is None}", change=change))
    assert (done.code, done.made) == (2, [])
    assert done.err == (
        f"error: the code is not available: {why}\n"
        "hint: ANYWAY=y trains with the code that is here, and compares all the same\n"
    )


def test_configuration_that_was_edited_since_is_an_error(
    run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    edited = copied(run, "edited", change=lambda record: None)
    config = edited / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=11\n", "CONFIG_SEED=12\n"))
    done = reproduce(edited)
    assert (done.code, done.made) == (2, [])
    assert done.err == (
        f"error: {edited}/.config is not what the run was made with: SEED=11, requested 12\n"
        "hint: put those values back, or move the file away: the start record holds them too\n"
    )


def test_configuration_that_is_gone_is_that_of_the_start_record(
    run: Path, reproduce: Callable[..., SimpleNamespace]
) -> None:
    bare = copied(run, "bare", change=lambda record: None)
    for name in (".config", ".config.origins.json", "config.py"):
        (bare / name).unlink()
    done = reproduce(bare)
    assert "config: that of the start record, for .config is gone" in done.out.splitlines()
    assert done.lines[-1] == "bit-equal: 20 records", done.out + done.err
    before, now = (records(one, "start")[-1]["config"] for one in (run, bare.with_name("bare_reproduced")))
    assert now == {**before, "TRACKER_RUN_NAME": "bare_reproduced"}


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ([], "results/latest does not exist"),
        (["RUN={results}"], "{results} is not a run that has begun: "),
        (
            ["RUN={own}"],
            "{own} is not a training of this tree, and has no command that it was run by\nhint: ",
        ),
    ],
    ids=["none", "no run", "of a program itself"],
)
def test_what_is_no_run_is_refused(
    checkout: Path, run: Path, tmp_path: Path, warm_torch: WarmPython, variables: list[str], error: str
) -> None:
    with Run(tmp_path / "own", agent=False) as own:
        own.log_step(1, train_loss=1.0)
    results = str(run.parent)
    given = [variable.format(results=results, own=tmp_path / "own") for variable in variables]
    command = [checkout / "scripts/reproduce.py", *given]
    done = warm_torch.run(command, cwd=checkout, env=environment_of(checkout))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error.format(results=results, own=tmp_path / 'own')}")
