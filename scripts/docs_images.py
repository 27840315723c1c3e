"""Record the first run for the README: train, kill, continue, verdict, page (make docs-images).

The first matrix of a copy of this checkout, in a real terminal: what is typed, killed and printed is real,
and the header has the true time. At its end `make dashboard` is typed there, and Chromium opens the address
that it prints. The same matrix gives the graphs and the screenshots in docs/images, and the table between
`<!-- first run -->` and `<!-- end of first run -->` of docs/quickstart.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.config.generate import write_file
from kharness.runs.files import GRAPHS, LATEST, STATUS_JSON
from kharness.runs.status import read_status
from monitoring.journal.end_status import COMPLETE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyte
    from PIL import Image, ImageFont

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
QUICKSTART = ROOT / "docs" / "quickstart.md"
BLOCK = re.compile(r"(<!-- first run -->\n\n```text\n).*?(```\n\n<!-- end of first run -->)", re.DOTALL)
SHOWN = ("differences", "validation_accuracy")

COLUMNS, ROWS, ROWS_BELOW = 124, 28, 2
FONT_SIZE = 15
LARGEST = 3_000_000
"""Bytes of the moving picture."""

PERIOD = 0.4
"""Seconds between two looks at what runs; each key is a look of its own."""
PLAYED = 15.0
"""Seconds in which the picture shows all that is not typed."""
KEY, PAUSE, LAST = 0.06, 1.2, 6.0
"""Seconds that the picture shows a key, a command before its Enter, and the end."""
LONGEST = 900.0
"""Seconds that one command may take, before what it shows is an error."""
LAST_LINES = 20
"""Lines of it that the error has."""
READ = 4.0
"""Seconds that it shows the verdict, and the page of all runs."""

LOSSES = (
    "kharness.shown.board?.isBusy === false && kharness.shown.board.charts.get('train_loss')?.lines.length"
)
ALL_RUNS = f"{LOSSES} >= 8 && document.querySelector('.matrix-card .line') !== null"
MATRIX = "document.querySelectorAll('.cells .cell').length && document.querySelectorAll('.verdict').length"
WIDE = (1440, 900)
"""Size of the screenshots in docs/dashboard.md."""

PAPER, INK, DIM = "#16181d", "#d6d9e0", "#7d8590"
COLORS = {
    "black": "#5c6370",
    "red": "#f47067",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#f0f3f6",
}

# Text, color and boldness of neighbors that look alike.
Run = tuple[str, str, bool]
Rows = tuple[tuple[Run, ...], ...]


@dataclass(frozen=True)
class Frame:
    """The terminal at a moment (s since the first), and the seconds that it is shown (0: as it ran)."""

    at: float
    shown: float
    panes: tuple[Rows, ...]
    page: bytes = b""
    """PNG of the browser, which is seen in place of the terminal."""


class Pane:
    """A shell in a terminal, in a folder."""

    def __init__(self, folder: Path, rows: int) -> None:
        import pyte

        self.screen = pyte.Screen(COLUMNS, rows)
        self._stream = pyte.ByteStream(self.screen)
        # Where packages come from and by which certificates is this machine's, the rest a new user's.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "UV_", "SSL_")) or name.lower().endswith("_proxy")
        } | {
            "PATH": os.environ["PATH"],
            "VENV": sys.prefix,
            "HOME": str(folder.parent),
            "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config")),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PS1": "$ ",
            "HISTFILE": "",
            "PWD": str(folder),
        }
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))

    def read(self) -> None:
        """Take what the terminal has."""
        with contextlib.suppress(OSError):  # the shell has ended
            self._stream.feed(os.read(self.master, 65536))

    @property
    def lines(self) -> list[str]:
        """The text in its window, without empty lines."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    @property
    def waits(self) -> bool:
        """Whether the shell asks for a command."""
        return bool(self.lines) and self.lines[-1] == "$"

    def look(self) -> Rows:
        """The window as it is to be drawn."""
        buffer = self.screen.buffer
        return tuple(
            runs((buffer[y][x] for x in range(COLUMNS)), self.cursor_in(y)) for y in range(self.screen.lines)
        )

    def cursor_in(self, row: int) -> int:
        """The column of the cursor where a command is typed, else -1."""
        typed = row == self.screen.cursor.y and self.screen.display[row].startswith("$")
        return self.screen.cursor.x if typed else -1

    def close(self) -> None:
        """End the shell and all that it has started."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def runs(cells: Iterator[pyte.screens.Char], cursor: int) -> tuple[Run, ...]:
    """Neighbors of one look together."""
    found: list[Run] = []
    for x, cell in enumerate(cells):
        color = COLORS.get(cell.fg, f"#{cell.fg}" if re.fullmatch("[0-9a-f]{6}", cell.fg) else INK)
        text = "█" if x == cursor else cell.data or " "
        if found and found[-1][1:] == (color, cell.bold):
            found[-1] = (found[-1][0] + text, color, cell.bold)
        else:
            found.append((text, color, cell.bold))
    return tuple(found)


class Session:
    """Shells below each other, and what was seen of them."""

    def __init__(self, folder: Path, rows: Sequence[int] = (ROWS, ROWS_BELOW)) -> None:
        self.panes = [Pane(folder, count) for count in rows]
        self.frames: list[Frame] = []
        self._start = time.monotonic()

    def until(
        self,
        condition: Callable[[], bool],
        *,
        seconds: float = LONGEST,
        of: Pane | None = None,
        looks: bool = True,
    ) -> None:
        """Watch until it holds; KharnessError after so many seconds, or once what runs in `of` has ended."""
        end, next_look = time.monotonic() + seconds, 0.0
        while not condition():
            self._read(0.05)
            if of and of.waits and not condition():
                raise KharnessError("the command ended too early", hint=self._last_lines())
            if time.monotonic() > end:
                raise KharnessError(f"the terminal waits for {seconds:.0f} s", hint=self._last_lines())
            if looks and time.monotonic() >= next_look:
                self.look()
                next_look = time.monotonic() + PERIOD
        if looks:
            self.look()

    def type(self, pane: Pane, command: str) -> None:
        """Type it and press Enter, once the shell asks for a command."""
        self.until(lambda: pane.waits)
        for count, key in enumerate(command, start=1):
            os.write(pane.master, key.encode())
            typed = command[:count].rstrip()
            self.until(lambda typed=typed: pane.lines[-1].endswith(typed), seconds=60, looks=False)  # type: ignore[misc]
            self._read(0.05)
            self.look(KEY)
        self.look(PAUSE, again=True)
        os.write(pane.master, b"\n")
        self.until(lambda: not pane.waits or pane.lines[-2:-1] == [f"$ {command}"], seconds=10)

    def _last_lines(self) -> str:
        return "\n  ".join(["the terminal shows", *self.panes[0].lines[-LAST_LINES:]])

    def look(self, shown: float = 0.0, *, again: bool = False) -> None:
        """Keep what the panes show, where it is new."""
        panes = tuple(pane.look() for pane in self.panes)
        if again or not self.frames or self.frames[-1].panes != panes:
            self.frames.append(Frame(time.monotonic() - self._start, shown, panes))

    def show(self, page: bytes, shown: float) -> None:
        """Show the browser for so many seconds."""
        self.frames.append(Frame(time.monotonic() - self._start, shown, self.frames[-1].panes, page))

    def close(self) -> None:
        for pane in self.panes:
            pane.close()

    def _read(self, seconds: float) -> None:
        by_descriptor = {pane.master: pane for pane in self.panes}
        for descriptor in select.select(list(by_descriptor), [], [], seconds)[0]:
            by_descriptor[descriptor].read()


def first_run(session: Session, folder: Path) -> None:
    """Train a third of the first matrix, kill its runner, and continue to the verdict."""
    main, beside = session.panes
    results = folder / "results" / LATEST
    session.type(main, "make test_matrix")
    session.until(lambda: 3 * len(complete(results)) >= len(list(results.glob("*/.config"))) > 0, of=main)
    session.type(beside, f"kill -9 {runner_of(main)}")
    session.until(lambda: main.waits)
    session.type(main, "make continue")
    session.until(lambda: not main.waits)
    session.until(lambda: main.waits)
    missing = {path.parent.name for path in results.glob("*/.config")} - complete(results)
    if missing:
        raise KharnessError(f"not complete: {', '.join(sorted(missing))}", hint="\n".join(main.lines))


def dashboard(session: Session, folder: Path) -> dict[str, bytes]:
    """Open the page by the address that `make dashboard` prints; return screenshots by name."""
    main, _ = session.panes
    session.look(READ, again=True)
    session.type(main, "make dashboard")
    session.until(lambda: any("dashboard: http" in line for line in main.lines), seconds=60, of=main)
    session.look(PAUSE, again=True)
    url = next(line for line in main.lines if "dashboard: http" in line).split()[-1]
    matrix = (folder / "results" / LATEST).resolve().name
    run = f"results/{matrix}/optimizer-muon_seed-1"
    found = screenshots(
        url,
        {
            "all": ("", ALL_RUNS, picture(session.frames[-1]).size),
            "one": (f"matrix=results/{matrix}", MATRIX, picture(session.frames[-1]).size),
            "dashboard": ("", ALL_RUNS, WIDE),
            "dashboard_matrix": (f"matrix=results/{matrix}", MATRIX, WIDE),
            "dashboard_run": (f"run={run}", LOSSES, WIDE),
        },
        folder.parent,
    )
    session.show(found["all"], READ)
    session.show(found["one"], LAST)
    return {name: png for name, png in found.items() if name.startswith("dashboard")}


def screenshots(
    url: str, wanted: Mapping[str, tuple[str, str, tuple[int, int]]], folder: Path
) -> dict[str, bytes]:
    """Return PNGs of views of a page: what follows `#`, when it is ready, width and height."""
    asked = [
        {
            "path": str(folder / f"{name}.png"),
            "address": f"{url}#{view}",
            "ready": ready,
            "width": size[0],
            "height": size[1],
        }
        for name, (view, ready, size) in wanted.items()
    ]
    command = [sys.executable, "-m", "tests.screenshots"]
    subprocess.run(command, cwd=ROOT, input=json.dumps(asked), text=True, check=True)
    return {name: (folder / f"{name}.png").read_bytes() for name in wanted}


def complete(results: Path) -> set[str]:
    """Names of the runs that are complete so far."""
    started = {path.parent for path in results.glob(f"*/{STATUS_JSON}")}
    return {directory.name for directory in started if read_status(directory).status == COMPLETE}


def runner_of(pane: Pane) -> int:
    """The process that runs the matrix: make's child."""
    import psutil

    [make] = psutil.Process(pane.pid).children()
    [runner] = make.children()
    return runner.pid


def save(frames: Sequence[Frame], path: Path, *, comment: str) -> None:
    """Draw them into a GIF, each for its time, and what ran as fast as PLAYED asks for."""
    from PIL import Image

    pictures = [picture(frame) for frame in frames]
    following = [*(frame.at for frame in frames[1:]), frames[-1].at]
    ran = [
        0 if frame.shown else max(0.0, then - frame.at) for frame, then in zip(frames, following, strict=True)
    ]
    pace = max(1.0, sum(ran) / PLAYED)
    shown = [frame.shown or seconds / pace for frame, seconds in zip(frames, ran, strict=True)]
    shown[-1] = LAST
    # Hundredths of a second are GIF's unit, and most viewers slow down what is shown for less than two.
    durations = [max(20, round(100 * seconds) * 10) for seconds in shown]
    palette = palette_of(frames, pictures)
    first, *rest = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    first.save(
        path,
        save_all=True,
        append_images=rest,
        duration=durations,
        loop=0,
        optimize=True,
        disposal=1,
        comment=comment.encode(),
    )


def palette_of(frames: Sequence[Frame], pictures: Sequence[Image.Image]) -> Image.Image:
    """The colors of the last terminal, and of the pages after it where there are some."""
    from PIL import Image

    last = max(place for place, frame in enumerate(frames) if not frame.page)
    shown = [pictures[last], *pictures[last + 1 :]]
    if len(shown) == 1:
        return shown[0].quantize(64)
    width, height = shown[0].size
    together = Image.new("RGB", (width, height * len(shown)))
    for place, one in enumerate(shown):
        together.paste(one, (0, place * height))
    return palette_with(together, 160)


def palette_with(image: Image.Image, count: int) -> Image.Image:
    """Half of it what most of the picture has, as it is; half what is nearest to all the rest.

    Else either the paper has a hue, or a line of few pixels the color of another run.
    """
    from PIL import Image

    colors: list[tuple[int, tuple[int, int, int]]] = image.getcolors(image.width * image.height)  # type: ignore[assignment]
    common = [color for _, color in sorted(colors, reverse=True)[: count // 2]]
    covering = image.quantize(count - len(common), method=Image.Quantize.MAXCOVERAGE)
    found = Image.new("P", (1, 1))
    rest = (covering.getpalette() or [])[: 3 * (count - len(common))]
    found.putpalette([*itertools.chain(*common), *rest])
    return found


def picture(frame: Frame) -> Image.Image:
    """The panes below each other, under a line with the time; or the browser."""
    from PIL import Image, ImageDraw

    if frame.page:
        return Image.open(io.BytesIO(frame.page)).convert("RGB")

    font, (width, height) = fonts()[0], cell_size()
    rows = sum(len(pane) for pane in frame.panes) + 2
    image = Image.new("RGB", (COLUMNS * width + 2 * width, rows * height + height // 2), PAPER)
    draw = ImageDraw.Draw(image)
    minutes, seconds = divmod(int(frame.at), 60)
    draw.text((width, 2), "kharness", font=fonts()[1], fill=DIM)
    draw.text(((COLUMNS - 3) * width, 2), f"{minutes}:{seconds:02}", font=font, fill=DIM)
    y = height + height // 2
    for number, pane in enumerate(frame.panes):
        if number:
            draw.line([(0, y + height // 2), (image.width, y + height // 2)], fill=DIM)
            y += height
        for row in pane:
            x = width
            for text, color, bold in row:
                if text.strip():
                    draw.text((x, y), text, font=fonts()[bold], fill=color)
                x += len(text) * width
            y += height
    return image


@cache
def fonts() -> tuple[ImageFont.FreeTypeFont, ImageFont.FreeTypeFont]:
    """DejaVu Sans Mono as matplotlib ships it, plain and bold."""
    import matplotlib
    from PIL import ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    plain, bold = (
        ImageFont.truetype(folder / f"DejaVuSansMono{style}.ttf", FONT_SIZE) for style in ("", "-Bold")
    )
    return plain, bold


@cache
def cell_size() -> tuple[int, int]:
    """Width and height of a character, in pixels."""
    return round(fonts()[0].getlength("0")), FONT_SIZE + 4


def smaller(png: bytes) -> bytes:
    """The same picture with 256 colors, a third of the bytes."""
    from PIL import Image

    written = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        whole = image.convert("RGB")
        few = whole.quantize(palette=palette_with(whole, 256), dither=Image.Dither.NONE)
        few.save(written, "PNG", optimize=True)
    return written.getvalue()


def copy_of_checkout(folder: Path) -> None:
    """The files that git knows, as old as they are here: make there finds this checkout's environment ready.

    A Pane names that by VENV, since a link to it in the copy would look to make like one that was moved.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def table(folder: Path) -> str:
    """The comparison as `make summary` prints it, without the names of the files that it writes."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("KHARNESS_", "MAKE"))
    }
    command = [sys.executable, "scripts/summary.py"]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    shown = (line for line in done.stdout.splitlines() if not line.startswith(("results/", "test_matrix_")))
    return "\n".join(shown).strip() + "\n"


def main(argv: Sequence[str]) -> int:
    """0 once the pictures and the table are those of a new matrix."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name) / "kharness"
        folder.mkdir()
        copy_of_checkout(folder)
        session = Session(folder)
        try:
            first_run(session, folder)
            pages = dashboard(session, folder)
        finally:
            session.close()
        printed = table(folder)
        # Says of which matrix the picture is.
        digest = hashlib.sha256(printed.encode()).hexdigest()
        save(session.frames, Path(name) / "first_run.gif", comment=digest)
        moving = (Path(name) / "first_run.gif").read_bytes()
        if len(moving) >= LARGEST:
            raise KharnessError(f"the moving picture has {len(moving):,} bytes, more than {LARGEST:,}")
        write_file(IMAGES / "first_run.gif", moving)
        graphs = folder / "results" / LATEST / GRAPHS
        for graph in SHOWN:
            write_file(IMAGES / f"{graph}.png", (graphs / f"{graph}.png").read_bytes())
        for name, png in pages.items():
            write_file(IMAGES / f"{name}.png", smaller(png))
        text = QUICKSTART.read_text(encoding="utf-8")
        block = BLOCK.sub(lambda found: found[1] + printed + found[2], text)
        write_file(QUICKSTART, block.encode())
    seconds = session.frames[-1].at
    print(
        f"docs/images/first_run.gif: {len(session.frames)} pictures of {seconds:.0f} s, {len(moving):,} bytes"
    )
    return 0


if __name__ == "__main__":
    run_command(main)
