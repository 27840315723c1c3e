"""The server's answers: the page's files, the table of runs, one run, its series and logs, requests to it."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from monitoring.control import RequestError
from monitoring.errors import UserError
from monitoring.host.small_file import text_of
from monitoring.journal.fields import row_of
from monitoring.journal.files import ENVIRONMENT_JSON
from monitoring.web.alone import dumped, page_of, served
from monitoring.web.charts import AT_ONCE, SOON, Charts
from monitoring.web.details import RunDetails
from monitoring.web.files import NoSuchFile, find_in_log, open_trace, read_log, read_picture
from monitoring.web.folders import RunIndex, StatusJudge, unreadable
from monitoring.web.kept_view import KeptView
from monitoring.web.past import is_read_then, row_then
from monitoring.web.rows import RunRow
from monitoring.web.saved_views import SavedViews
from monitoring.where import Where, parse_where

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

T = TypeVar("T")

PAGE = Path(__file__).resolve().parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# How long a browser keeps a file that has another name once it changes.
KEPT = "private, max-age=31536000, immutable"

# Bytes of a request.
MOST_BYTES = 2**20

# Seconds that reading a run's files may take before the page says that they do not answer.
PATIENCE = 20.0

# Reads of files at once; those that hang keep their threads.
MOST_AT_ONCE = 64

# Answers about one run that hang before the next ones are refused at once.
MOST_HANGING = 2

# Seconds between looks for changes that are pushed, and between signs of life to a page.
LIVE_EVERY = 0.5
ALIVE_EVERY = 15.0


class BadRequest(UserError):
    """A request that no page of ours sends."""


class Addition(StatusJudge, Protocol):
    """Pages of another package."""

    name: str
    """Part of the addresses of its files: `page/NAME/…`."""
    folder: Path
    script: str
    style: str

    def routes(self, answers: Answers) -> Sequence[BaseRoute]:
        """Return the server's routes; a handler's UserError becomes a sentence on the page."""

    def kept(self, answers: Answers, view: Mapping[str, str], drawn: Sequence[str]) -> Mapping[str, Any]:
        """Return the answers that a view saved as a file needs: `PATH` or `PATH ID` -> content."""


class Answers:
    """Everything that the page asks for."""

    def __init__(
        self, index: RunIndex, *, read_only: bool = False, additions: Sequence[Addition] = ()
    ) -> None:
        self.index = index
        self.details = RunDetails(read_only=read_only)
        self.saved_views = SavedViews(Path(index.folders[0]), read_only=read_only)
        self.charts = Charts()
        self.read_only = read_only
        self.additions = additions
        self.started = time.time()
        self._hanging: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="read")
        self._files = {
            str(path.relative_to(PAGE)): (path.read_bytes(), TYPES.get(path.suffix, "text/plain"))
            for path in sorted(PAGE.rglob("*"))
            if path.is_file()
        }
        self._scripts, self._styles = ["main.js"], list[str]()
        for addition in additions:
            self._add(addition)
        self._served = served(self._files, self._scripts, self._styles)
        self._compressed = {name: gzip.compress(data, 6) for name, (data, _) in self._served.items()}

    def _add(self, addition: Addition) -> None:
        """Serve the files of an addition; its script runs before the page's own, its style after it."""
        for path in sorted(addition.folder.iterdir()):
            name = f"{addition.name}/{path.name}"
            self._files[name] = (path.read_bytes(), TYPES.get(path.suffix, "text/plain"))
        self._scripts.insert(-1, f"{addition.name}/{addition.script}")
        self._styles.append(f"{addition.name}/{addition.style}")

    def app(self) -> Starlette:
        """Return the application, without the guard."""
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.routing import Route

        routes = [
            Route("/", self.page),
            Route("/page/{name:path}", self.file),
            Route("/api/live", self.live),
            Route("/api/runs", self.runs),
            Route("/api/where", self.where, methods=["POST"]),
            Route("/api/run", self.run),
            Route("/api/series", self.series, methods=["POST"]),
            Route("/api/log", self.log),
            Route("/api/environment", self.environment),
            Route("/api/picture", self.picture),
            Route("/api/trace", self.trace),
            Route("/api/control", self.control, methods=["POST"]),
            Route("/api/notes", self.notes, methods=["POST"]),
            Route("/api/alone", self.alone, methods=["POST"]),
            Route("/api/views", self.views),
            Route("/api/views", self.save_view, methods=["POST"]),
            *(route for addition in self.additions for route in addition.routes(self)),
        ]
        errors: dict[Any, Any] = {
            UserError: self._refused,
            RequestError: self._refused,
            NoSuchFile: self._missing,
            HTTPException: self._http,
        }
        return Starlette(
            routes=routes,
            exception_handlers=errors,
            middleware=[Middleware(GZipMiddleware, minimum_size=20_000, compresslevel=1)],
        )

    # ------------------------------------------------------------- the page's own files

    async def page(self, request: Request) -> Response:
        return self._static(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._static(request, request.path_params["name"])

    def _static(self, request: Request, name: str) -> Response:
        from starlette.responses import Response

        found = self._served.get(name) or self._files.get(name)
        if found is None:
            raise NoSuchFile(name)
        data, kind = found
        is_named_by_content = name in self._served and name != "index.html"
        headers = {"cache-control": KEPT if is_named_by_content else "no-cache"}
        if name in self._compressed and "gzip" in request.headers.get("accept-encoding", ""):
            data = self._compressed[name]
            headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
        return Response(data, media_type=kind, headers=headers)

    # ------------------------------------------------------------- runs

    async def runs(self, request: Request) -> Response:
        """Return all rows, or those that have changed since a version."""
        self.index.asked()
        moment = _moment(request.query_params.get("at"))
        if moment is not None:
            rows = [self.row(row) for row in await self._rows_then(moment)]
            return _json({"rows": rows, "at": moment})
        since, epoch = _whole(request, "since"), _whole(request, "epoch")
        return _json(self.changes(since, epoch))

    async def _rows_then(self, moment: float) -> list[RunRow]:
        """Return the rows of all runs that had begun at a moment, as they were."""

        async def then(row: RunRow) -> RunRow | None:
            try:
                return await self._patiently(row, lambda: row_then(row, moment))
            except (UserError, OSError, ValueError, TypeError, KeyError) as error:
                return unreadable(row.id, row.directory, error)

        rows = self.all_rows()
        read = [row for row in rows if is_read_then(row, moment)]
        found = dict(zip((row.id for row in read), await asyncio.gather(*map(then, read)), strict=True))
        of_all = (found[row.id] if row.id in found else row_then(row, moment) for row in rows)
        return [row for row in of_all if row is not None]

    def changes(self, since: int, epoch: int) -> dict[str, Any]:
        """Return the rows that changed after a version; all where what is sent of each has changed."""
        index = self.index
        with index.lock:
            # A page that is older than this server asks with versions that mean nothing here.
            whole = epoch != index.epoch or since > index.version or since <= 0
            rows = [self.row(row) for row in index.rows.values() if whole or row.version > since]
            gone = [] if whole else [run for run, version in index.gone.items() if version > since]
            names = dict.fromkeys(name for row in index.rows.values() for name in row.metrics)
            varying = list(index.varying)
            version, epoch = index.version, index.epoch
        return {
            "version": version,
            "epoch": epoch,
            "whole": whole,
            "rows": rows,
            "gone": gone,
            "options": varying,
            "metrics": {name: _about(name) for name in names},
            "problems": index.problems(),
            "folders": index.folders,
            "all_read": index.is_complete,
            "read_only": self.read_only,
            "started": self.started,
            "now": time.time(),
        }

    def row(self, row: RunRow) -> dict[str, Any]:
        options = {name: row.options[name] for name in self.index.varying if name in row.options}
        found = {**row.facts, "options": options, "metrics": row.metrics}
        return {**found, "best": row.best} if row.best else found

    async def live(self, request: Request) -> Response:
        """Push changes of rows as they come (server-sent events)."""
        from starlette.responses import StreamingResponse

        since, epoch = _whole(request, "since"), _whole(request, "epoch")

        async def pushed() -> AsyncIterator[bytes]:
            sent, sent_epoch, quiet, problems = since, epoch, 0.0, None
            while True:
                self.index.asked()
                now = (self.index.version, self.index.epoch, self.index.problems(), self.index.is_complete)
                if now[:2] != (sent, sent_epoch) or now[2:] != problems:
                    changes = await asyncio.to_thread(self.changes, sent, sent_epoch)
                    sent, sent_epoch, problems, quiet = changes["version"], changes["epoch"], now[2:], 0.0
                    yield b"data: " + dumped(changes) + b"\n\n"
                elif quiet >= ALIVE_EVERY:
                    quiet = 0.0
                    # A comment line, as the HTML standard advises: proxies drop connections that are silent
                    # (html.spec.whatwg.org, server-sent events, authoring notes).
                    yield b": alive\n\n"
                await asyncio.sleep(LIVE_EVERY)
                quiet += LIVE_EVERY

        return StreamingResponse(
            pushed(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def where(self, request: Request) -> Response:
        """Return the runs that a condition selects."""
        content = await _content(request)
        text = content.get("where")
        selection = parse_where(text if isinstance(text, str) else "")
        moment = _moment(content.get("at"))
        rows = self.all_rows() if moment is None else await self._rows_then(moment)
        return _json({"ids": await asyncio.to_thread(self.selected, selection, rows)})

    def selected(self, selection: Where, rows: Sequence[RunRow]) -> list[str]:
        """Return the ids of the rows that a condition selects. UserError for a field that none has."""
        fields = [row.fields() for row in rows]
        if selection.fields:
            selection.check({*chain.from_iterable([*fields, *(row.facts for row in rows)])})
        return [row.id for row, known in zip(rows, fields, strict=True) if selection(known.get)]

    # ------------------------------------------------------------- one run

    async def run(self, request: Request) -> Response:
        row, moment = self._named(request.query_params.get("id", "")), _moment(request.query_params.get("at"))
        self.index.asked()
        return _json(await self._patiently(row, lambda: self.details.of(row, moment)))

    async def series(self, request: Request) -> Response:
        """Return windows of metrics of several runs, those that do not answer left out."""
        content = await _content(request)
        self.index.asked()
        asked = content.get("series")
        if not isinstance(asked, list) or len(asked) > 2000:
            raise BadRequest("series is a list of at most 2000 of run, metric and key")
        x, buckets = str(content.get("x", "step")), content.get("buckets", 500)
        buckets = min(5000, max(10, int(buckets))) if isinstance(buckets, int) else 500
        lo, hi, moment = (_edge(content.get(name)) for name in ("lo", "hi", "at"))
        by_run: dict[str, list[dict[str, Any]]] = {}
        for one in asked:
            if isinstance(one, dict) and isinstance(one.get("run"), str):
                by_run.setdefault(one["run"], []).append(one)
        found: dict[str, Any] = {}
        problems: dict[str, str] = {}
        until = time.monotonic() + (SOON if content.get("soon") is True else AT_ONCE)

        async def read(run_id: str, wanted: list[dict[str, Any]]) -> None:
            try:
                row = self._named(run_id)
                read_it = partial(self.charts.windows, x=x, lo=lo, hi=hi, buckets=buckets, moment=moment)
                read_it = partial(read_it, log_x=content.get("log_x") is True, until=until, runs=len(by_run))
                found[run_id] = await self._patiently(row, lambda: read_it(row, wanted))
            except UserError as error:
                problems[run_id] = str(error)
            except NoSuchFile:
                problems[run_id] = "there is no such run any more"
            except (OSError, ValueError, KeyError, TypeError) as error:
                problems[run_id] = f"its series cannot be read: {error}"

        await asyncio.gather(*(read(run_id, wanted) for run_id, wanted in by_run.items()))
        return _json({"runs": found, "problems": problems})

    async def log(self, request: Request) -> Response:
        """Return a stretch of a log, or its lines with a text."""
        row, query = self._named(request.query_params.get("id", "")), request.query_params
        name, wanted = query.get("name", ""), query.get("q", "")
        if wanted:
            lines = await self._patiently(row, lambda: find_in_log(row.directory, name, wanted[:200]))
            return _json({"lines": lines})
        before, after = query.get("before"), query.get("after")
        edges = {
            "before": int(before) if before and before.isdecimal() else None,
            "after": int(after) if after and after.isdecimal() else None,
        }
        part = await self._patiently(row, lambda: read_log(row.directory, name, **edges))
        return _json({"text": part.text, "begins": part.begins, "ends": part.ends, "size": part.size})

    async def environment(self, request: Request) -> Response:
        row = self._named(request.query_params.get("id", ""))
        path = row.directory / ENVIRONMENT_JSON
        data = await self._patiently(row, lambda: text_of(path))
        try:
            return _json(json.loads(data or "{}"))
        except ValueError as error:
            raise BadRequest(f"{ENVIRONMENT_JSON} cannot be read: {error}") from error

    async def picture(self, request: Request) -> Response:
        from starlette.responses import Response

        row, name = self._named(request.query_params.get("id", "")), request.query_params.get("name", "")
        data = await self._patiently(row, lambda: read_picture(row.directory, name))
        return Response(data, media_type="image/png")

    async def trace(self, request: Request) -> Response:
        """Return a trace of the profiler, which may be long, a part at a time."""
        from starlette.responses import StreamingResponse

        row, name = self._named(request.query_params.get("id", "")), request.query_params.get("name", "")
        file = await self._patiently(row, lambda: open_trace(row.directory, name))

        async def parts() -> AsyncIterator[bytes]:
            with file:
                while part := await self._patiently(row, lambda: file.read(MOST_BYTES)):
                    yield part

        return StreamingResponse(parts(), media_type="application/octet-stream")

    async def control(self, request: Request) -> Response:
        """Send a request to a running training."""
        content = await _content(request)
        row = self._named(str(content.get("id", "")))
        sent = await self._patiently(row, lambda: self.details.request(row, content.get("changes")))
        return _json({"file": sent.file, "changes": sent.changes})

    async def notes(self, request: Request) -> Response:
        """Keep tags and a note of a run."""
        content = await _content(request)
        row = self._named(str(content.get("id", "")))
        tags, text = content.get("tags"), content.get("note")
        kept = await self._patiently(row, lambda: self.details.annotate(row, tags, text))
        return _json({"tags": kept.tags, "note": kept.text})

    async def alone(self, request: Request) -> Response:
        """Return the page of a view as one file that works without a server."""
        from starlette.responses import Response

        address = (await _content(request)).get("address")
        if not isinstance(address, str):
            raise BadRequest("a view is saved by its address")
        view = KeptView(self, address)
        page = await self.patiently(view.run or "the view", lambda: self.page_alone(view))
        return Response(page, media_type="text/html; charset=utf-8")

    def page_alone(self, view: KeptView) -> bytes:
        """Return the same, reading files for as long as that takes."""
        return page_of(self._files, self._scripts, self._styles, view.content())

    async def views(self, request: Request) -> Response:
        """Return the saved views."""
        return _json({"views": await self.patiently("views", self.saved_views.all)})

    async def save_view(self, request: Request) -> Response:
        """Save a view by a name, or remove it."""
        content = await _content(request)
        save = partial(self.saved_views.save, content.get("name"), content.get("address"))
        return _json({"views": await self.patiently("views", save)})

    def _named(self, run_id: str) -> RunRow:
        row = self.index.get(run_id)
        if row is None:
            raise NoSuchFile("there is no such run any more")
        return row

    async def _patiently(self, row: RunRow, read: Callable[[], T]) -> T:
        return await self.patiently(row.id, read, name=str(row.facts["name"]), directory=row.directory)

    async def patiently(
        self, key: str, read: Callable[[], T], *, name: str = "", directory: Path | None = None
    ) -> T:
        """Return what a function reads of a run or folder; UserError where files fail or answer too late.

        Nobody waits for a `directory` that is known not to answer.
        """
        problem = f"{name or key}: its files do not answer"
        if self._hanging[key] >= MOST_HANGING or (directory and self.index.hangs(directory)):
            raise BadRequest(problem)
        task = asyncio.get_running_loop().run_in_executor(self._pool, read)
        until = time.monotonic() + PATIENCE
        while (
            not task.done() and time.monotonic() < until and not (directory and self.index.hangs(directory))
        ):
            await asyncio.wait({task}, timeout=LIVE_EVERY)
        if not task.done():
            self._hanging[key] += 1
            task.add_done_callback(lambda late: self._answered(key, late))
            raise BadRequest(problem)
        try:
            return task.result()
        except OSError as error:  # such as of a run that was deleted and is still in the table
            raise BadRequest(f"{name or key}: {error.strerror or error}") from error

    def _answered(self, key: str, late: asyncio.Future[Any]) -> None:
        """Note that files that did not answer in time do so again."""
        self._hanging[key] -= 1
        late.exception()  # nobody waits for what it was

    # ------------------------------------------------------------- what additions are made from

    def all_rows(self) -> list[RunRow]:
        """Return the runs that were found, for an addition that has been asked something."""
        self.index.asked()
        with self.index.lock:
            return list(self.index.rows.values())

    def json(self, content: object) -> Response:
        return _json(content)

    async def content(self, request: Request) -> Mapping[str, Any]:
        """Return the JSON object of a request. BadRequest for anything else."""
        return await _content(request)

    # ------------------------------------------------------------- errors

    async def _refused(self, request: Request, error: Exception) -> Response:
        return _json({"error": str(error), "hint": getattr(error, "hint", "")}, status=400)

    async def _missing(self, request: Request, error: Exception) -> Response:
        return _json({"error": str(error) or "not found", "hint": ""}, status=404)

    async def _http(self, request: Request, error: Any) -> Response:
        return _json({"error": str(error.detail), "hint": ""}, status=error.status_code)


def _about(name: str) -> dict[str, Any]:
    row = row_of(name)
    text = next(iter(row.about.values()), "")
    return {"unit": row.unit, "better": row.better, "kind": row.kind, "about": text.replace("`", "")}


def _json(content: object, *, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(dumped(content), status_code=status, media_type="application/json")


async def _content(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_BYTES:
            raise BadRequest("the request is too long")
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise BadRequest("the request is not JSON") from None
    if not isinstance(content, dict):
        raise BadRequest("the request is not a JSON object")
    return content


def _whole(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 17 else 0


def _moment(value: object) -> float | None:
    """Return a moment, UTC epoch seconds, of an address or a request; None for what is none."""
    try:
        return _edge(float(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def _edge(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
