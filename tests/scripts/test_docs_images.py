"""The moving picture of README.md: a small session is recorded; the one in docs/ is what it claims."""

from __future__ import annotations

import hashlib
import io
import re
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image, ImageChops

from kharness.config.errors import KharnessError
from scripts import docs_images
from scripts.docs_images import BLOCK, IMAGES, LARGEST, QUICKSTART, Frame, Rows, Session


def test_session_is_recorded_as_it_was_typed_killed_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path, rows=(6, 2))
    try:
        above, below = session.panes
        session.type(above, "sleep 600")
        session.until(lambda: len(psutil.Process(above.pid).children()) == 1)
        [sleeper] = psutil.Process(above.pid).children()
        session.type(below, f"kill -9 {sleeper.pid}")
        session.until(lambda: above.waits)
        session.type(above, "echo better")
        session.until(lambda: above.lines[-2:] == ["better", "$"])
        assert above.lines == ["$ sleep 600", "Killed", "$ echo better", "better", "$"]
        assert below.lines == [f"$ kill -9 {sleeper.pid}", "$"]
    finally:
        session.close()

    monkeypatch.setattr(docs_images, "PLAYED", 1.0)
    docs_images.save(session.frames, tmp_path / "session.gif", comment="of a test")
    with Image.open(tmp_path / "session.gif") as image:
        keys = sum(map(len, ("sleep 600", f"kill -9 {sleeper.pid}", "echo better")))
        assert image.n_frames >= keys  # type: ignore[attr-defined]  # of GIFs
        assert (image.info["loop"], image.info["comment"]) == (0, b"of a test")
        image.seek(image.n_frames - 1)  # type: ignore[attr-defined]
        assert image.info["duration"] == 1000 * docs_images.LAST
        drawn = docs_images.picture(session.frames[-1])
        difference = ImageChops.difference(image.convert("RGB"), drawn).convert("L")
        assert max(difference.tobytes()) < 32, "64 colors are nearly those that were drawn"
    ends = ["".join(text for text, _, _ in row).rstrip() for row in session.frames[-1].panes[0]]
    assert ends[:5] == ["$ sleep 600", "Killed", "$ echo better", "better", "$ █"]


def test_recording_ends_with_what_is_seen_where_nothing_more_comes(tmp_path: Path) -> None:
    session = Session(tmp_path, rows=(6, 2))
    try:
        above, _ = session.panes
        session.type(above, "echo no luck; false")
        with pytest.raises(KharnessError, match="the command ended too early") as early:
            session.until(lambda: False, of=above)
        session.type(above, "sleep 600")
        with pytest.raises(KharnessError, match=r"the terminal waits for 0 s") as late:
            session.until(lambda: False, seconds=0.3, of=above)
    finally:
        session.close()
    assert early.value.hint == "the terminal shows\n  $ echo no luck; false\n  no luck\n  $"
    assert late.value.hint == "the terminal shows\n  $ echo no luck; false\n  no luck\n  $ sleep 600"


def test_copy_of_the_checkout_uses_its_environment_as_it_is(tmp_path: Path) -> None:
    if not Path(sys.prefix, ".ready").exists():
        pytest.skip("this environment was not made by make")
    folder = tmp_path / "copy"
    folder.mkdir()
    docs_images.copy_of_checkout(folder)
    session = Session(folder)
    try:
        session.type(session.panes[0], "clear; make -n graphs | sed 's/.*bin//'")
        session.until(lambda: session.panes[0].waits)
        assert session.panes[0].lines == ["/python -m kharness.quiet scripts/graphs.py", "$"]
    finally:
        session.close()


def test_lines_of_few_pixels_keep_their_colors(tmp_path: Path) -> None:
    """Those of sixteen runs, on a page of one bright color with many grays, and the page its own."""
    colors = [(red, green, blue) for red in (30, 200) for green in (20, 110, 150, 240) for blue in (60, 220)]
    rows: Rows = ((("better", "#7ee787", True),),) * 20
    terminal = Frame(0, 1, (rows,))
    page = Image.new("RGB", docs_images.picture(terminal).size, "#f5f6f9")
    page.paste(Image.linear_gradient("L").convert("RGB"), (700, 0))
    for place, color in enumerate(colors):
        page.paste(color, (40 * place, 100, 40 * place + 6, 106))
    written = io.BytesIO()
    page.save(written, "PNG")
    shown = Frame(1, 1, (rows,), written.getvalue())
    docs_images.save([terminal, shown], tmp_path / "two.gif", comment="of a test")
    with Image.open(tmp_path / "two.gif") as image:
        image.seek(1)
        moving = image.convert("RGB")
    small = Image.open(io.BytesIO(docs_images.smaller(written.getvalue()))).convert("RGB")
    for drawn in (moving, small):
        assert drawn.getpixel((20, 300)) == (0xF5, 0xF6, 0xF9)
        for place, color in enumerate(colors):
            spot = drawn.crop((40 * place + 3, 103, 40 * place + 4, 104))
            difference = ImageChops.difference(spot, Image.new("RGB", (1, 1), color))
            assert max(difference.tobytes()) < 8, color


def test_picture_of_the_readme_is_small_and_of_the_matrix_in_the_quickstart() -> None:
    picture = IMAGES / "first_run.gif"
    assert picture.stat().st_size < LARGEST
    found = BLOCK.search(QUICKSTART.read_text())
    assert found is not None
    printed = found[0].removeprefix(found[1]).removesuffix(found[2])
    assert re.search(
        r"^  \w+ +[+-]\d+\.\d\d \([+-].* points  (better|worse|no difference shown)", printed, re.M
    )
    with Image.open(picture) as image:
        assert image.n_frames > 100  # type: ignore[attr-defined]  # of GIFs
        assert image.info["comment"].decode() == hashlib.sha256(printed.encode()).hexdigest()
