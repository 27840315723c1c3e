"""Fetching from a real loopback HTTP server and from a folder."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kharness.training.datasets._fetch import fetch_files
from kharness.training.datasets._files import Dataset, DatasetFile, Sources
from kharness.training.errors import DatasetError

# not compressible, so that the compressed file is long enough to break off in
IMAGES = b"".join(hashlib.sha256(bytes([i, j])).digest() for i in range(80) for j in range(80))
LABELS = b"labels" * 10


def file(name: str, content: bytes) -> DatasetFile:
    return DatasetFile(name, hashlib.sha256(content).hexdigest(), len(content))


DATASET = Dataset("letters", (file("images", IMAGES), file("labels", LABELS)))
SERVED = {"/images.gz": gzip.compress(IMAGES, mtime=0), "/labels.gz": gzip.compress(LABELS, mtime=0)}


@dataclass
class Mirror:
    """A server whose answers a test chooses, and what it was asked."""

    content: dict[str, bytes] = field(default_factory=lambda: dict(SERVED))
    break_off_after: int | None = None
    """Bytes of the first answer that are sent before the connection closes."""
    ranges: bool = True
    """Whether it continues a file that was begun."""
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append((handler.path, wanted))
        if handler.path not in self.content:
            handler.send_error(404)
            return
        body, start = self.content[handler.path], 0
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(body)}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
        handler.send_response(206 if wanted and self.ranges else 200)
        handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        end = len(body)
        if self.break_off_after is not None:
            end, self.break_off_after = start + self.break_off_after, None
        handler.wfile.write(body[start:end])


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.answer(self)

        def log_message(self, *_: object) -> None:
            """Silent."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Silent: a client that hangs up is part of a test."""

    server = Server(("127.0.0.1", 0), Handler)
    mirror.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield mirror
    server.shutdown()
    thread.join()
    server.server_close()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: gzip.decompress(path.read_bytes()) for path in folder.iterdir() if path.name != ".lock"
    }


def quiet(line: str) -> None:
    """Where the test reads nothing."""


WHOLE = {"images.gz": IMAGES, "labels.gz": LABELS}


def test_mirror_gives_every_file(mirror: Mirror, tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetch_files(DATASET, tmp_path / "letters", Sources(mirrors=[mirror.url], say=said.append))
    assert contents(tmp_path / "letters") == WHOLE
    assert folder == tmp_path / "letters"
    assert said == [f"{folder / name}: fetched from {mirror.url}{name}" for name in WHOLE]


def test_file_that_is_not_compressed_at_its_mirror(mirror: Mirror, tmp_path: Path) -> None:
    plain = Dataset("text", (replace(file("input.txt", IMAGES), suffix=""),))
    mirror.content["/input.txt"], mirror.break_off_after = IMAGES, 70_000
    fetch_files(plain, tmp_path / "a", Sources(mirrors=[mirror.url], say=quiet))
    fetch_files(plain, tmp_path / "b", Sources(local=tmp_path / "a", say=quiet))
    assert [(tmp_path / name / "input.txt").read_bytes() for name in "ab"] == [IMAGES, IMAGES]
    mirror.content["/input.txt"] = b"false"
    with pytest.raises(DatasetError) as caught:
        fetch_files(plain, tmp_path / "c", Sources(mirrors=[mirror.url], say=quiet))
    assert (
        caught.value.hint == "fetch input.txt by other means, then make data DATA_DIR=the-folder-they-are-in"
    )


def test_whole_files_are_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    mirror.asked.clear()
    said: list[str] = []
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=said.append))
    assert mirror.asked == []
    assert said == [f"{tmp_path / name}: intact" for name in WHOLE]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"not gzip", gzip.compress(b"other"), SERVED["/images.gz"][:-20]],
    ids=["empty", "text", "other", "truncated"],
)
def test_damaged_file_is_fetched_again(mirror: Mirror, tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "images.gz").write_bytes(damaged)
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE


def test_broken_connection_is_continued(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_off_after = 70_000
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE
    assert mirror.asked == [("/images.gz", None), ("/images.gz", "bytes=70000-"), ("/labels.gz", None)]


def test_server_that_cannot_continue_begins_anew(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_off_after, mirror.ranges = 70_000, False
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE


def part_of(mirror: Mirror, folder: Path, content: bytes) -> Path:
    """A download that an earlier, killed fetch left behind."""
    source = hashlib.sha256(f"{mirror.url}images.gz".encode()).hexdigest()[:8]
    part = folder / f".images.{source}.part"
    part.write_bytes(content)
    return part


@pytest.mark.parametrize("have", [1, 1000, len(SERVED["/images.gz"])])
def test_killed_fetch_is_taken_up_again(mirror: Mirror, tmp_path: Path, have: int) -> None:
    part_of(mirror, tmp_path, SERVED["/images.gz"][:have])
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE
    assert mirror.asked[0] == ("/images.gz", f"bytes={have}-")


@pytest.mark.parametrize("junk", [b"x" * 1000, b"x" * 300_000], ids=["shorter", "longer"])
def test_part_that_does_not_fit_is_begun_anew(mirror: Mirror, tmp_path: Path, junk: bytes) -> None:
    part_of(mirror, tmp_path, junk)
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE


def test_next_mirror_is_asked_for_what_the_first_lacks(mirror: Mirror, tmp_path: Path) -> None:
    said: list[str] = []
    del mirror.content["/labels.gz"]
    mirror.content["/second/labels.gz"] = SERVED["/labels.gz"]
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url, f"{mirror.url}second"], say=said.append))
    assert contents(tmp_path) == WHOLE
    assert said[1] == f"{mirror.url}labels.gz: the server answers 404 Not Found"


def test_false_content_is_refused_and_leaves_nothing(mirror: Mirror, tmp_path: Path) -> None:
    said: list[str] = []
    mirror.content["/labels.gz"] = gzip.compress(b"<html>sign in</html>")
    with pytest.raises(DatasetError) as caught:
        fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=said.append))
    assert str(caught.value) == "letters: no mirror has labels"
    assert caught.value.hint == (
        "fetch labels.gz by other means, then make data DATA_DIR=the-folder-they-are-in"
    )
    assert said[-1] == f"{mirror.url}labels.gz: its content is not that file (SHA-256 differs)"
    assert contents(tmp_path) == {"images.gz": IMAGES}


def test_endless_answer_is_cut(mirror: Mirror, tmp_path: Path) -> None:
    said: list[str] = []
    mirror.content["/labels.gz"] = bytes(10_000_000)
    with pytest.raises(DatasetError):
        fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=said.append))
    assert said[-1] == f"{mirror.url}labels.gz: it sends more than the file can have"


def test_dead_mirror_is_asked_once(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(DatasetError, match="letters: no mirror is reachable from here"):
        fetch_files(DATASET, tmp_path, Sources(mirrors=["http://127.0.0.1:9/"], say=said.append))
    assert len(said) == 1
    assert said[0].startswith("http://127.0.0.1:9/images.gz: not reachable: ")


def test_next_mirror_is_asked_where_the_first_is_down(mirror: Mirror, tmp_path: Path) -> None:
    said: list[str] = []
    fetch_files(DATASET, tmp_path, Sources(mirrors=["http://127.0.0.1:9/", mirror.url], say=said.append))
    assert contents(tmp_path) == WHOLE
    assert said[1:] == [f"{tmp_path / name}: fetched from {mirror.url}{name}" for name in WHOLE]


def test_all_mirrors_down_is_one_error(tmp_path: Path) -> None:
    said: list[str] = []
    mirrors = ["http://127.0.0.1:9/", "http://127.0.0.1:7/"]
    with pytest.raises(DatasetError) as caught:
        fetch_files(DATASET, tmp_path, Sources(mirrors=mirrors, say=said.append))
    assert str(caught.value) == "letters: no mirror is reachable from here"
    assert caught.value.hint == (
        "fetch images.gz, labels.gz by other means, then make data DATA_DIR=the-folder-they-are-in"
    )
    assert [line.partition(": ")[0] for line in said] == [f"{url}images.gz" for url in mirrors]


def test_address_that_is_none_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(DatasetError):
        fetch_files(DATASET, tmp_path, Sources(mirrors=["nowhere"], say=said.append))
    assert said == ["nowhere/images.gz: unknown url type: 'nowhere/images.gz'"]


@pytest.mark.parametrize("layout", ["", "letters", "LETTERS/raw"])
@pytest.mark.parametrize("compressed", [True, False])
def test_local_folder_is_copied(tmp_path: Path, layout: str, compressed: bool) -> None:
    source = tmp_path / "mine" / layout
    source.mkdir(parents=True)
    for name, content in (("images", IMAGES), ("labels", LABELS)):
        path = source / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    fetch_files(DATASET, tmp_path / "letters", Sources(local=tmp_path / "mine", say=quiet))
    assert contents(tmp_path / "letters") == WHOLE


def test_local_folder_with_false_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(b"false")
    with pytest.raises(DatasetError) as caught:
        fetch_files(DATASET, tmp_path / "letters", Sources(local=tmp_path, say=quiet))
    assert str(caught.value) == f"{tmp_path}/images: its content is not that of letters's images"
    assert contents(tmp_path / "letters") == {}


def test_local_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch_files(DATASET, tmp_path / "letters", Sources(local=tmp_path, say=quiet))
    assert str(caught.value) == f"{tmp_path} holds neither images.gz nor images"
    assert caught.value.hint == "the folder must hold images[.gz], labels[.gz]"


def test_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("in the way")
    with pytest.raises(DatasetError, match="letters cannot be written: file exists"):
        fetch_files(DATASET, tmp_path / "letters", Sources(say=quiet))


def test_leftovers_of_a_killed_fetch_are_removed(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / ".labels.01234567.part").write_bytes(b"of another mirror")
    fetch_files(DATASET, tmp_path, Sources(mirrors=[mirror.url], say=quiet))
    assert contents(tmp_path) == WHOLE
