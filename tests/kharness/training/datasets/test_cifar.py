"""CIFAR from both of its official formats, small; a pickle that could run code is refused."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import pickle
import random
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kharness.training.datasets._cifar import Cifar, official
from kharness.training.datasets._files import DataFolder, Sources
from kharness.training.datasets.cifar10 import CIFAR10
from kharness.training.datasets.cifar100 import CIFAR100
from kharness.training.errors import DatasetError

from ....waiting import wait_until
from ....warm_python import WarmPython

PICTURES = [random.Random(i).randbytes(3072) for i in range(12)]
LABELS = [3, 9, 0, 1, 2, 4, 5, 6, 7, 8, 3, 3]
TEN = [f"class{i}" for i in range(10)]


def dumped(entries: dict[str, Any]) -> bytes:
    """Bytes like the official files': pickle protocol 2 of Python 2, whose str are bytes to Python 3."""
    content = pickle.dumps({key.encode(): value for key, value in entries.items()}, protocol=2)
    return content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_python(folder: Path, files: Sequence[str], *, label_key: str = "labels") -> None:
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(files):
        array = np.frombuffer(b"".join(PICTURES[2 * i : 2 * i + 2]), dtype=np.uint8).reshape(2, 3072)
        entries = {"data": array, label_key: LABELS[2 * i : 2 * i + 2], "filenames": [b"a.png", b"b.png"]}
        (folder / name).write_bytes(dumped(entries))


def write_binary(folder: Path, files: Sequence[str], *, before: bytes = b"") -> None:
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(files):
        pairs = zip(LABELS[2 * i :], PICTURES[2 * i : 2 * i + 2], strict=False)
        (folder / name).write_bytes(b"".join(before + bytes([label]) + picture for label, picture in pairs))


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """CIFAR-10 for Python, two pictures per file."""
    folder = tmp_path / "cifar-10-batches-py"
    write_python(folder, [*CIFAR10.python_files[0], *CIFAR10.python_files[1]])
    (folder / "batches.meta").write_bytes(dumped({"label_names": [name.encode() for name in TEN]}))
    return folder


def test_both_formats_of_cifar10_hold_the_same(ten: Path, tmp_path: Path) -> None:
    found = CIFAR10.read([tmp_path])
    assert (found.train_images.shape, found.test_images.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert found.train_images.tobytes() == b"".join(PICTURES[:10])
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == (LABELS[:10], LABELS[10:])
    assert found.classes == tuple(TEN)

    other = tmp_path / "cifar10"  # a folder of its own in DATA_DIR will do
    other.mkdir()
    binary = other / "cifar-10-batches-bin"
    write_binary(binary, [*CIFAR10.binary_files[0], *CIFAR10.binary_files[1]])
    (binary / "batches.meta.txt").write_text("\n".join([*TEN, "", ""]))
    same = CIFAR10.read([other])
    assert (same.sha256, same.classes) == (found.sha256, found.classes)


def test_both_formats_of_cifar100_have_the_fine_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    write_python(folder, ("train", "test"), label_key="fine_labels")
    (folder / "meta").write_bytes(dumped({"fine_label_names": [b"apple"] * 100}))
    found = CIFAR100.read([tmp_path])
    assert found.train_labels.tolist() == LABELS[:2]
    assert found.classes == ("apple",) * 100
    other = tmp_path / "binary"
    other.mkdir()
    write_binary(other / "cifar-100-binary", ("train.bin", "test.bin"), before=b"\x07")
    (other / "cifar-100-binary" / "fine_label_names.txt").write_text("apple\n" * 100)
    same = CIFAR100.read([other])
    assert (same.sha256, same.classes) == (found.sha256, found.classes)


class Harmful:
    """Runs a command where a pickle is loaded blindly."""

    def __reduce__(self) -> Any:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"data": Harmful(), "labels": [1]}, "is not a file of CIFAR: it asks for posix.system"),
        ({"data": np.ones((1, 3072), np.float32), "labels": [1]}, "0 bytes and 1 labels are no pictures"),
        ({"data": np.ones((1, 3072), np.uint8), "labels": [10]}, "3,072 bytes and 1 labels are no pictures"),
        ({"data": np.ones((1, 3072), np.uint8), "labels": ["a"]}, "3,072 bytes and 0 labels are no pictures"),
        ({"labels": [1]}, "0 bytes and 0 labels are no pictures"),
    ],
    ids=["code", "type", "label", "text", "missing"],
)
def test_a_file_with_anything_else_is_refused(
    ten: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (ten / "data_batch_3").write_bytes(dumped(entries))
    with pytest.raises(DatasetError) as caught:
        CIFAR10.read([tmp_path])
    assert str(caught.value).startswith(f"{ten / 'data_batch_3'}")
    assert reason in str(caught.value)
    assert caught.value.hint == "unpack the official archive again"
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b"no pickle at all", b"\x80\x02]q\x00."])
def test_a_file_that_is_no_pickle_is_refused(ten: Path, tmp_path: Path, content: bytes) -> None:
    (ten / "test_batch").write_bytes(content)
    with pytest.raises(DatasetError, match="test_batch"):
        CIFAR10.read([tmp_path])


def test_a_binary_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    small: Cifar = dataclasses.replace(CIFAR10, binary_files=(("one.bin",), ("two.bin",)))
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder, ("one.bin", "two.bin"))
    (folder / "batches.meta.txt").write_text("\n".join(TEN))
    content = (folder / "two.bin").read_bytes()
    (folder / "two.bin").write_bytes(content[:-1])
    with pytest.raises(DatasetError, match=r"two\.bin: 6,144 bytes and 1 labels are no pictures of CIFAR-10"):
        small.read([tmp_path])


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"^{tmp_path}/cifar-10-batches-py or .*-bin does not exist"):
        CIFAR10.find([tmp_path])


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a server of tests."""


@pytest.fixture
def mirror(ten: Path, tmp_path: Path) -> Iterator[tuple[Cifar, str]]:
    """A server with an archive in the official form, with a file outside of its folder; and the set."""
    served = tmp_path / "served"
    served.mkdir()
    archive = served / "cifar-10-python.tar.gz"
    (ten / "readme.html").write_text("not needed")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(ten, "cifar-10-batches-py")
        tar.add(ten / "readme.html", "../outside")
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    made = official("cifar10", archive.name, sha256=digest, size=len(content))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield dataclasses.replace(CIFAR10, archive=made), f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_official_archive_is_fetched_verified_and_unpacked(
    mirror: tuple[Cifar, str], ten: Path, tmp_path: Path
) -> None:
    cifar, url = mirror
    said: list[str] = []
    sources = Sources(None, [url], said.append)
    folder = cifar.fetch(DataFolder(str(tmp_path / "data")), tmp_path, sources)
    assert folder == tmp_path / "data/cifar10/cifar-10-batches-py"
    archive = tmp_path / "data/cifar10/cifar-10-python.tar.gz"
    assert said == [f"{archive}: fetched from {url}/{archive.name}"]
    left = sorted(path.name for path in folder.parent.iterdir() if path.name != ".lock")
    assert (left, (tmp_path / "data/outside").exists()) == (["cifar-10-batches-py"], False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in ten.iterdir() if path.name != "readme.html"
    }
    cifar.fetch(DataFolder(str(tmp_path / "data")), tmp_path, sources)
    assert len(said) == 1, "what is there is not fetched again"
    (folder / "test_batch").unlink()
    assert cifar.fetch(DataFolder(str(tmp_path / "data")), tmp_path, sources) == folder
    assert len(said) == 2, "a folder without one of its files is completed"


def test_an_archive_of_other_content_is_refused_and_leaves_nothing(
    mirror: tuple[Cifar, str], tmp_path: Path
) -> None:
    _, url = mirror
    said: list[str] = []
    with pytest.raises(DatasetError):
        CIFAR10.fetch(DataFolder(str(tmp_path / "data")), tmp_path, Sources(None, [url], said.append))
    assert said[0].startswith(f"{url}/cifar-10-python.tar.gz: its content is not that file")
    assert [path.name for path in (tmp_path / "data/cifar10").iterdir() if path.name != ".lock"] == []


def test_an_archive_of_the_users_own_is_taken(mirror: tuple[Cifar, str], tmp_path: Path) -> None:
    cifar, _ = mirror
    sources = Sources(tmp_path / "served", [], lambda line: None)
    folder = cifar.fetch(DataFolder(str(tmp_path / "data")), tmp_path, sources)
    assert folder == tmp_path / "data/cifar10/cifar-10-batches-py"


FETCHES = """
import dataclasses, sys
from pathlib import Path
from kharness.training.datasets._cifar import official
from kharness.training.datasets._files import DataFolder, Sources
from kharness.training.datasets.cifar10 import CIFAR10

place, digest, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
archive = official("cifar10", "cifar-10-python.tar.gz", sha256=digest, size=size)
own = dataclasses.replace(CIFAR10, archive=archive)
own.fetch(DataFolder(str(place / "data")), place, Sources(place / "served", [], print))
"""


def test_two_processes_at_once_unpack_one_archive(
    mirror: tuple[Cifar, str], tmp_path: Path, warm_python: WarmPython
) -> None:
    """The second has waited for the first, and finds all of it."""
    (file,) = mirror[0].archive.files
    lock = tmp_path / "data/cifar10/.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        words = ["-c", FETCHES, tmp_path, file.sha256, file.size]
        started = [warm_python.start(words, stdout=subprocess.PIPE) for _ in range(2)]
        waiting = re.compile(rf"-> FLOCK .*:{lock.stat().st_ino} ")
        wait_until(lambda: len(waiting.findall(Path("/proc/locks").read_text())) == 2, "both to wait")
    said = [process.communicate()[0] for process in started]
    assert [process.wait() for process in started] == [0, 0]
    archive = "cifar-10-python.tar.gz"
    copied = f"{lock.parent / archive}: copied from {tmp_path / 'served' / archive}\n"
    assert sorted(said) == ["", copied]
    left = sorted(path.name for path in lock.parent.iterdir())
    assert left == [".lock", "cifar-10-batches-py"]
