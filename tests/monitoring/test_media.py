"""Texts, pictures, histograms, tables and files of a run: what is kept, and what its records say."""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from monitoring import Run, read_records
from monitoring.media.kept_files import damaged_files
from monitoring.media.run_media import bars, png_of


def media(directory: Path) -> list[dict[str, Any]]:
    records = [record for record, _ in read_records(directory / "metrics.jsonl")]
    envelope = ("time", "seq", "attempt", "event", "split")
    return [
        {name: value for name, value in record.items() if name not in envelope}
        for record in records
        if record.get("split") == "media"
    ]


def kept(file: str, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {"file": f"artifacts/{digest[:16]}.{file}", "sha256": digest, "bytes": len(content)}


def pixels(png: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4)])
def test_a_picture_has_the_pixels_of_its_array(shape: tuple[int, ...]) -> None:
    """Pillow is the oracle."""
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = array[:, :, 0] if shape[2:] == (1,) else array
    assert (pixels(png_of(array)) == expected).all()
    assert (pixels(png_of(array / 255.0)) == expected).all()
    tensor = torch.from_numpy(array if array.ndim == 2 else array.transpose(2, 0, 1).copy())
    assert (pixels(png_of(tensor)) == expected).all()
    assert (pixels(png_of(Image.fromarray(expected))) == expected).all()


@pytest.mark.parametrize("what", [b"GIF", 3, np.zeros(3), np.zeros((2, 2, 5)), np.zeros((0, 2))])
def test_what_shows_no_picture_is_refused(what: object) -> None:
    with pytest.raises(ValueError, match=r"not a PNG|no picture"):
        png_of(what)


def test_everything_is_kept_by_its_content_and_named_by_a_record(tmp_path: Path) -> None:
    red, table = png_of(np.full((2, 2, 3), (255, 0, 0), np.uint8)), b'a,b\n1,x\n2,"y,z"\n'
    (tmp_path / "data.bin").write_bytes(b"data")
    with Run(tmp_path / "run", agent=False) as run:
        run.log(loss=1.0, step=7)
        run.log_text("sample/1", "één")
        run.log_image("red", red)
        run.log_table("t", ["a", "b"], [[1, "x"], [2, "y,z"]], step=9)
        run.log_file("../data", tmp_path / "data.bin")
        run.log_text("again", "één")
    assert media(tmp_path / "run") == [
        {"global_step": 7, "artifacts": {"sample/1": kept("1.txt", "één".encode())}},
        {"global_step": 7, "artifacts": {"red": kept("red.png", red)},
         "pictures": {"red": kept("red.png", red)["file"]}},
        {"global_step": 9, "artifacts": {"t": kept("t.csv", table)}},
        {"global_step": 7, "artifacts": {"../data": kept("data", b"data")}},
        {"global_step": 7, "artifacts": {"again": kept("again.txt", "één".encode())}},
    ]  # fmt: skip
    names = [record["artifacts"] for record in media(tmp_path / "run")]
    files = [tmp_path / "run" / about["file"] for one in names for about in one.values()]
    assert [path.read_bytes() for path in files] == ["één".encode(), red, table, b"data", "één".encode()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o444}


def test_files_are_shared_by_runs_and_verified(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"data")
    for name in ("one", "two"):
        with Run(tmp_path / "runs" / name, agent=False) as run:
            run.log_file("data", tmp_path / "data.bin")
    file = str(kept("data", b"data")["file"])
    one, two = (tmp_path / "runs" / name / file for name in ("one", "two"))
    assert one.samefile(two)
    assert [*damaged_files(tmp_path / "runs/two")] == []
    two.unlink()
    two.write_bytes(b"dato")
    one.unlink()
    assert [*damaged_files(tmp_path / "runs/two")] == [f"data: {two} is not what was logged"]
    assert [*damaged_files(tmp_path / "runs/one")] == [
        f"data: {one} cannot be read: no such file or directory"
    ]


@pytest.mark.parametrize("of", [list, np.array, torch.tensor], ids=["numbers", "array", "tensor"])
def test_a_histogram_is_numpys(tmp_path: Path, of: Any) -> None:
    values = [*np.random.default_rng(0).normal(size=500).astype(np.float32).tolist(), float("nan")]
    with Run(tmp_path, agent=False) as run:
        run.log_histogram("w", of(values), bins=10)
    [record] = media(tmp_path)
    found = json.loads((tmp_path / record["artifacts"]["w"]["file"]).read_text())
    counts, edges = np.histogram(values[:-1], 10)
    assert found["counts"] == counts.tolist()
    assert found["edges"] == pytest.approx(edges.tolist())
    assert (record["w/count"], record["w/nonfinite"]) == (500, 1)
    sums = [np.min(values[:-1]), np.max(values[:-1]), np.mean(values[:-1]), np.std(values[:-1])]
    assert [record[f"w/{name}"] for name in ("min", "max", "mean", "std")] == pytest.approx(sums)
    picture = pixels((tmp_path / record["pictures"]["w"]).read_bytes())
    assert (picture == pixels(bars(counts.tolist()))).all()
    assert [int((picture[:, 7 * bar] == 0x30).sum()) for bar in range(10)] == [
        round(count / max(counts) * 96) for count in counts
    ]


def test_what_cannot_be_kept_is_said_and_nothing_raises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run(tmp_path / "run", agent=False) as run:
        run.log_image("bad", object())
        run.log_file("gone", tmp_path / "gone")
        run.log_file("device", "/dev/null")
        run.log_histogram("none", [float("inf")])
    run.log_text("late", "after the end")
    assert [next(iter(record["refused"].values())) for record in media(tmp_path / "run")] == [
        "ValueError: a object shows no picture",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'gone'}'",
        "ValueError: /dev/null is not a regular file",
        "ValueError: no value is finite",
    ]
    assert capsys.readouterr().err.count("is not kept") == 4
    assert not (tmp_path / "run/artifacts").exists()


def test_the_program_of_the_page_runs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = re.findall(r"```python\n# media.py\n(.*?)```", (root / "docs/artifacts.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(program, {"__file__": __file__})
    assert [name for record in media(tmp_path / "results/media") for name in record["artifacts"]] == [
        "sample", "filters", "weights", "errors", "train script",
    ]  # fmt: skip
