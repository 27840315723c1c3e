"""`make data` as a process: where files come from and go to, and what it says when they do not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

FILES = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"

Data = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(root: Path, tmp_path: Path) -> Data:
    """scripts/data.py with make variables, an output folder of its own."""

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        variables = {"O": str(tmp_path), "CONFIG_DATA_DIR": str(tmp_path / "data"), **variables}
        environment = {**os.environ, **variables, "KHARNESS_MAKE_VARS": " ".join(variables)}
        return subprocess.run(
            [sys.executable, root / "scripts" / "data.py"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def empty_mirror() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mnist"
    server.shutdown()
    thread.join()
    server.server_close()


def test_mirror_without_the_files_is_told(data: Data, empty_mirror: str, tmp_path: Path) -> None:
    done = data(MIRROR=empty_mirror)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: mnist: no mirror has {FILES}"
    assert done.stdout.splitlines() == [
        f"{empty_mirror}/{name}.gz: the server answers 404 Not Found" for name in FILES.split(", ")
    ]
    assert [path.name for path in (tmp_path / "data" / "mnist").iterdir()] == [".lock"]


def test_local_folder_that_is_none_is_refused(data: Data, tmp_path: Path) -> None:
    done = data(DATA_DIR=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: DATA_DIR={tmp_path}/nowhere is not a folder\n"
        "hint: name the folder that has the files; CONFIG_DATA_DIR=folder says where they are put\n"
    )


def test_local_folder_with_other_digits_is_refused(data: Data, root: Path, tmp_path: Path) -> None:
    subset = root / "lenet5" / "mnist-subset"
    done = data(DATA_DIR=str(subset))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"error: {subset}/train-images-idx3-ubyte.gz: "
        "its content is not that of mnist's train-images-idx3-ubyte"
    )
    assert not list((tmp_path / "data" / "mnist").glob("*.gz"))


def test_full_set_in_a_local_folder_is_taken(data: Data, root: Path, tmp_path: Path) -> None:
    full = root / "data" / "mnist"
    if not (full / "train-images-idx3-ubyte.gz").exists():
        pytest.skip("the full MNIST is not there (make data)")
    done = data(DATA_DIR=str(full))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == [
        f"{tmp_path}/data/mnist: verified",
        "lenet5/mnist-subset: verified",
    ]
    assert len(list((tmp_path / "data" / "mnist").glob("*.gz"))) == 4


def test_datasets_of_the_model_are_taken(data: Data, tmp_path: Path) -> None:
    """A text of the user's only where it is the DATASET, and then alone."""
    (tmp_path / "mine.txt").write_text("some words of mine " * 10)
    text = {"CONFIG_DATASET_TEXT": "y", "CONFIG_DATASET_TEXT_PATH": str(tmp_path / "mine.txt")}
    done = data(CONFIG_MODEL_GPT2="y", CONFIG_TOKENIZER_BYTES="y", **text)
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = (tmp_path / "data" / "tokens").glob("text-*")
    assert done.stdout.splitlines() == [
        f"{folder}: 171 train, 19 validation tokens (bytes)",
        f"{folder}: verified",
    ]


def test_misspelled_variable_is_refused(data: Data) -> None:
    done = data(NUM_EPOCHS="3")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: NUM_EPOCHS=3 means nothing to make data"
