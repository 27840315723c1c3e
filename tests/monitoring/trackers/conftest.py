"""A W&B server on loopback, for what only the real wandb client can show: what it uploads, and once."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class UploadedRun:
    """What the server holds of one run; history lines are kept by their offset, as W&B's file stream keeps them."""

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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """The variables that point a wandb client here, logged in."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": "0" * 40}

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        entity = {"name": "local", "id": "e1"}
        project = {"id": "p1", "name": variables.get("project") or "none", "entity": entity}
        if "upsertBucket" in query:
            return {"upsertBucket": self._upsert(variables, project)}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in variables.get("files", [])]
            return {"createRunFiles": {"runID": "b1", "uploadHeaders": [], "files": files}}
        if "viewer" in query:
            viewer = {"id": "u1", "entity": "local", "username": "local", "email": "", "flags": "{}", "admin": False}
            versions = {"min_cli_version": "0.10.0", "max_cli_version": "99.0.0"}
            server = {"cliVersionInfo": versions, "latestLocalVersionInfo": None, "features": []}
            return {"viewer": {**viewer, "teams": {"edges": []}, "apiKeys": {"edges": []}}, "serverInfo": server}
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
        bucket = {"id": f"b-{name}", "name": name, "displayName": run.name, "config": "{}", "project": project}
        return {"bucket": {**bucket, "historyLineCount": 0, "sweepName": None}, "inserted": inserted}

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
        self._body()
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
