"""Bundles: what is in one, that commands read it, and that a hostile archive is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import kharness
from kharness import cli
from kharness.runs.bundle import opened
from kharness.runs.errors import MatrixError
from monitoring.host.environment import git_state_and_difference
from monitoring.journal.this_process import keep_code_diff

from ...warm_python import WarmPython


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with weights, links and a tracker's data, in `results` of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["none"])  # the git state is that of the program, or of the folder
    directory = tmp_path / "results/one"
    with kharness.Run(directory, config={"lr": 0.1}, agent=False) as writing:
        writing.log(loss=0.5)
        writing.log_text("sample", "text")
    (directory / "environment.json").write_text('{"packages": {"torch": "2.13.0", "numpy": "2.1"}}')
    (directory / ".config").write_text("CONFIG_X=y\n")
    for name in ("checkpoints/step1.pt", "weights.pt", "wandb/log", ".agent.lock", "graphs/loss.png"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"content")
    (directory / "secret").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe")
    return directory


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as opened_archive:
        return {name.partition("/")[2] for name in opened_archive.namelist()}


def test_a_bundle_has_all_but_weights_and_reads_as_the_run(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bundle", "results/one"]) == 0
    archive = tmp_path / "one.kharness.zip"
    size = f"{archive.stat().st_size / 1e6:.1f} MB"
    left_out = "without 2 files of weights (--weights)"
    assert capfd.readouterr().out == f"one.kharness.zip: 7 files, {size}; {left_out}\n"
    [text] = [path.name for path in (run / "artifacts").iterdir()]
    expected = {
        *(".config", "run.json", "metrics.jsonl", "environment.json", "graphs/loss.png"),
        *(f"artifacts/{text}", "requirements.txt", "bundle.json"),
    }
    assert names(archive) == expected
    [found] = kharness.runs("one.kharness.zip")
    [original] = kharness.runs("results")
    assert (found.last, found.config, found.status) == (original.last, original.config, "complete")
    assert found.directory == tmp_path / "one.unpacked/one"
    assert (found.directory / "requirements.txt").read_text() == "numpy==2.1\ntorch==2.13.0\n"
    # once more, and of what was unpacked: the same files
    assert opened(archive) == found.directory
    assert cli.main(["bundle", str(archive), "-o", "again.kharness.zip"]) == 0
    assert names(tmp_path / "again.kharness.zip") == expected
    assert cli.main(["bundle", "results/one", "-o", "full.kharness.zip", "--weights"]) == 0
    assert names(tmp_path / "full.kharness.zip") == expected | {"weights.pt", "checkpoints/step1.pt"}


def test_commands_take_a_bundle(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bundle", "results/one"]) == 0
    compared = kharness.compare("one.kharness.zip", "results/one")
    assert str(compared).splitlines()[:2] == ["A: one.kharness.zip", "B: results/one"]
    capfd.readouterr()
    assert cli.main(["ls", "one.kharness.zip", "loss<1", "--columns", "lr"]) == 0
    assert capfd.readouterr().out.splitlines() == ["run   lr", "---  ---", "one  0.1", "", "1 run"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["results/none"], "does not exist"),
        (["results/one", "-o", "results/one/x.zip"], "lies in what it is to hold"),
        (["results/one", "-o", "none/x.zip"], "cannot be written: no such file or directory"),
    ],
)
def test_what_cannot_be_bundled_is_an_error_and_leaves_nothing(
    run: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Exception, match=message):
        cli.main(["bundle", *words])
    assert sorted(tmp_path.rglob("*")) == before


Change = Callable[[zipfile.ZipFile], object]


def link(archive: zipfile.ZipFile, kind: int = stat.S_IFLNK) -> None:
    info = zipfile.ZipInfo("one/link")
    info.external_attr = (kind | 0o777) << 16
    archive.writestr(info, "/etc/passwd")


def add(name: str, content: str = "x") -> Change:
    return lambda archive: archive.writestr(name, content)


def bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("one/bomb", bytes(2**28), zipfile.ZIP_DEFLATED)


HOSTILE: dict[str, tuple[Change, str]] = {
    "a path above": (add("one/../../evil"), "is not a path inside of it"),
    "an absolute path": (add("/etc/evil"), "is not a path inside of it"),
    "a path of Windows": (add("one/..\\evil"), "is not a path inside of it"),
    "another folder": (add("two/evil"), "it has no bundle.json"),
    "a link": (link, "one/link is not a plain file"),
    "a device": (lambda archive: link(archive, stat.S_IFBLK), "one/link is not a plain file"),
    "a folder": (add("one/folder/", ""), "one/folder/ is not a plain file"),
    "two of one name": (add("one/RUN.json"), "it has one/RUN.json twice"),
    "a file that is not listed": (add("one/evil"), "evil is not what bundle.json says"),
    "a size bomb": (bomb, "bytes and would be"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(run: Path, tmp_path: Path, what: str) -> None:
    change, message = HOSTILE[what]
    assert cli.main(["bundle", "results/one"]) == 0
    archive = tmp_path / "one.kharness.zip"
    with zipfile.ZipFile(archive, "a") as changed:
        change(changed)
    before = sorted(tmp_path.parent.rglob("*"))
    with pytest.raises(MatrixError, match=message) as raised:
        opened(archive)
    assert raised.value.hint
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_damaged_archive_is_refused(run: Path, tmp_path: Path) -> None:
    assert cli.main(["bundle", "results/one"]) == 0
    archive = tmp_path / "one.kharness.zip"
    content = archive.read_bytes()
    for damaged in (content[:-30], b"", content[:200] + bytes(60) + content[260:]):
        archive.write_bytes(damaged)
        with pytest.raises(MatrixError, match=r"is refused|cannot be unpacked"):
            opened(archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.kharness.zip", "results"]


def test_another_bundle_does_not_replace_what_was_unpacked(run: Path, tmp_path: Path) -> None:
    assert cli.main(["bundle", "results/one"]) == 0
    unpacked = opened(tmp_path / "one.kharness.zip")
    (run / "note.md").write_text("later")
    assert cli.main(["bundle", "results/one"]) == 0
    with pytest.raises(MatrixError, match="is of another bundle"):
        opened(tmp_path / "one.kharness.zip")
    assert json.loads((unpacked / "bundle.json").read_text())["name"] == "one"
    assert not (unpacked / "note.md").exists()


def test_a_bundle_is_not_replaced_by_what_was_read_from_it(run: Path, tmp_path: Path) -> None:
    assert cli.main(["bundle", "results/one", "--weights"]) == 0
    archive = tmp_path / "one.kharness.zip"
    sent = archive.read_bytes()
    with pytest.raises(MatrixError, match=r"one\.kharness\.zip is the bundle that this was read from"):
        cli.main(["bundle", "one.kharness.zip"])
    assert archive.read_bytes() == sent
    assert cli.main(["bundle", "one.kharness.zip", "-o", "mine.kharness.zip"]) == 0
    assert cli.main(["bundle", "results/one"]) == 0  # one's own may be written again


def test_the_difference_of_a_dirty_tree_is_kept(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@l", *words], cwd=tmp_path, check=True)

    (tmp_path / "train.py").write_text("lr = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    (tmp_path / "run").mkdir()
    keep_code_diff(tmp_path / "run", *git_state_and_difference(tmp_path))
    (tmp_path / "train.py").write_text("lr = 2\n")
    state, difference = git_state_and_difference(tmp_path)
    keep_code_diff(tmp_path / "run", state, difference)
    assert state is not None
    [kept] = (tmp_path / "run").iterdir()
    assert kept.name == f"code.{str(state['diff_sha256'])[:16]}.diff"
    assert "-lr = 1\n+lr = 2\n" in kept.read_text()


def test_make_sync_takes_a_bundle(run: Path, tmp_path: Path, root: Path, warm_python: WarmPython) -> None:
    """Its trackers are brought up to date where it was unpacked."""
    assert cli.main(["bundle", "results/one"]) == 0
    done = warm_python.run([root / "scripts/sync.py", "RUN=one.kharness.zip"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "one.unpacked/one/metrics.csv").is_file()
    assert not (run / "metrics.csv").exists()
