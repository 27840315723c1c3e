"""Runs to follow, the real agent to follow them, and a W&B server on loopback.

The agent is a process of its own, as in life: wandb and trackio read their settings once a process.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest

from monitoring import Run, read_records
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.end_status import COMPLETE, EndStatus
from monitoring.trackers import TrackerPoint, journal_points

from ...warm_python import WarmPython


@dataclass(frozen=True)
class Followed:
    """A run directory, and what it takes to follow it."""

    directory: Path
    tracker: str
    options: dict[str, object]
    python: WarmPython

    @property
    def info(self) -> RunInfo:
        return RunInfo.read(self.directory)

    def train(self, steps: int, *, first: int = 1, status: EndStatus | None = COMPLETE, **about: Any) -> None:
        """One attempt: a start record, steps, an evaluation, an epoch and, unless status is None, an end."""
        given = {"name": "run 1", "project": "digits", "config": {"SEED": 1, "LIST": [1, 2]}, **about}
        run = Run(self.directory, trackers={self.tracker: self.options}, agent=False, **given)
        run.start(model={"name": "lenet5"}, training={"num_steps": steps})
        for step in range(first, first + steps):
            run.log_step(step, train_loss=1 / step, lr=1e-3, grad_norm=2 / step, fine=True, text="x")
        run.log_eval(first + steps - 1, split="val", val_loss=0.1, val_accuracy=1 / 3)
        run.log_epoch(1, global_step=first + steps - 1, train_loss=0.2, val_loss=0.1)
        if status is not None:
            run.finish(status, best_val_loss=0.1)

    def follow(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the agent to its end; it ends because the journal has ended or its trainer is gone."""
        return self._run("-m", "monitoring.agent", self.directory, **environment)

    def catch_up(self, root: Path, *variables: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`make sync` of the run."""
        return self._run(root / "scripts/sync.py", f"RUN={self.directory}", *variables, **environment)

    def _run(self, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python.run(command, env={**os.environ, **environment}, timeout=600)

    def sent(self) -> list[TrackerPoint]:
        records = (record for record, _ in read_records(self.directory / "metrics.jsonl"))
        return journal_points(records)

    def received(self) -> list[TrackerPoint]:
        module = follower_module(self.tracker)
        points: list[TrackerPoint] = module.read_back(self.info, follower_options(self.tracker, self.options))
        return points

    def alerts(self) -> list[str]:
        return [str(record["message"]) for record, _ in read_records(self.directory / "alerts.jsonl")]


class MakeFollowed(Protocol):
    def __call__(self, tracker: str, directory: str = "run", **options: object) -> Followed: ...


@pytest.fixture
def followed(tmp_path: Path, shared_trackio: None, warm_trackers: WarmPython) -> MakeFollowed:
    """Makes `Followed`s: followed("wandb", offline=True)."""

    def make(tracker: str, directory: str = "run", **options: object) -> Followed:
        return Followed(tmp_path / directory, tracker, options, warm_trackers)

    return make


def sync(run: Followed, environment: dict[str, str]) -> str:
    """Upload with W&B's command, as a user would; what it says."""
    command = ["-m", "wandb", "sync", run.directory / "wandb"]
    done = run.python.run(command, env={**os.environ, **environment}, cwd=run.directory, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stderr


def new_run(directory: Path, project: str, *trackers: str) -> Run:
    """A run whose records nobody delivers meanwhile."""
    options: dict[str, dict[str, object]] = {name: {} for name in trackers}
    return Run(directory, name="r", project=project, config={}, trackers=options, agent=False)


@dataclass
class UploadedRun:
    """A run on the server; history lines are kept by their offset, as W&B keeps them."""

    project: str
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    overwritten: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The history in the order of its lines."""
        return [self.history[offset] for offset in sorted(self.history)]


class WandbServer(ThreadingHTTPServer):
    """Enough of W&B's GraphQL and file-stream interfaces for uploads."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, UploadedRun] = {}
        self.lock = threading.Lock()
        self.requests = 0
        self.alerts: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, as wandb does, is no error."""

    def environment(self) -> dict[str, str]:
        """The variables that point a wandb client here, logged in."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": "0" * 40}

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        entity = {"name": variables.get("entity") or "local", "id": "e1"}
        project = {"id": "p1", "name": variables.get("project") or "none", "entity": entity}
        if "upsertBucket" in query:
            return {"upsertBucket": self._upsert(variables, project)}
        if "createRunFiles" in query:
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{name}"}
                for name in variables.get("files", [])
            ]
            return {"createRunFiles": {"runID": "b1", "uploadHeaders": [], "files": files}}
        if "notifyScriptableRunAlert" in query:
            self.alerts.append(variables)
            return {"notifyScriptableRunAlert": {"success": True}}
        if "viewer" in query:
            viewer = {
                "id": "u1",
                "entity": "local",
                "username": "local",
                "flags": "{}",
                "teams": {"edges": []},
            }
            versions = {"min_cli_version": "0.10.0", "max_cli_version": "99.0.0"}
            server: dict[str, object] = {
                "cliVersionInfo": versions,
                "latestLocalVersionInfo": None,
                "features": [],
            }
            return {"viewer": {**viewer, "teams": {"edges": []}}, "serverInfo": server}
        if "__type" in query:
            names = re.findall(r"(\w+)\s*:\s*__type", query)
            return {name: {"name": name, "fields": [], "inputFields": []} for name in names}
        return {}

    def _upsert(self, variables: dict[str, Any], project: dict[str, Any]) -> dict[str, Any]:
        name = variables["name"]
        inserted = name not in self.runs
        run = self.runs.setdefault(name, UploadedRun(project=variables.get("project") or ""))
        run.entity = variables.get("entity") or run.entity
        run.name = variables.get("displayName") or run.name
        run.group = variables.get("groupName") or run.group
        if variables.get("config"):
            run.config = json.loads(variables["config"])
        bucket = {"id": f"b-{name}", "name": name, "displayName": run.name, "config": "{}"}
        return {"bucket": {**bucket, "historyLineCount": 0, "project": project}, "inserted": inserted}

    def stream(self, run_id: str, request: dict[str, Any]) -> None:
        run = self.runs[run_id]
        chunk = request.get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
        for offset, line in enumerate(chunk["content"], start=chunk["offset"]):
            row = json.loads(line)
            if run.history.get(offset, row) != row:
                run.overwritten.append((run.history[offset], row))
            run.history[offset] = row
        for line in request.get("files", {}).get("wandb-summary.json", {"content": []})["content"]:
            run.summary = json.loads(line)
        if request.get("complete"):
            run.exit_code = request["exitcode"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self.server.files[self.path.removeprefix("/upload/")] = self._body()
        self._answer({})

    def do_POST(self) -> None:
        request = json.loads(self._body() or b"{}")
        with self.server.lock:
            self.server.requests += 1
            if self.path.startswith("/files/"):
                self.server.stream(self.path.split("/")[4], request)
                self._answer({"exitcode": None, "limits": {}})
            else:
                data = self.server.graphql(request.get("query", ""), request.get("variables") or {})
                self._answer({"data": data})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def wandb_server() -> Iterator[WandbServer]:
    """A running server; `.runs` holds what was uploaded."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
