"""A Hugging Face hub on the loopback interface: as much of its HTTP interface as reading a dataset takes.

Paths and fields are those of https://huggingface.co/docs/hub/api; the client under test is the real one.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One dataset, its files by name."""

    repository: str
    files: Mapping[str, bytes]
    url: str = ""
    fail_after: int | None = None
    """Requests for file contents that are answered before every later one fails."""
    asked: list[str] = field(default_factory=list)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes, str]:
        """Status, content and the name of a file, if it is one."""
        self.asked.append(f"{request.command} {request.path}")
        api = f"/api/datasets/{self.repository}"
        if request.path in (f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return 200, json.dumps(self.described()).encode(), ""
        folder = request.path.partition("?")[0].removeprefix(f"{api}/tree/{COMMIT}/")
        found = [self.entry(name) for name in self.files if name.rpartition("/")[0] == folder]
        if found:
            return 200, json.dumps(found).encode(), ""
        resolve = f"/datasets/{self.repository}/resolve/{COMMIT}/"
        name = request.path.removeprefix(resolve)
        if request.path.startswith(resolve) and name in self.files:
            return 200, self.files[name], name
        return 404, b'{"error": "not found"}', ""

    def described(self) -> dict[str, object]:
        siblings = [{"rfilename": name} for name in ("README.md", *self.files)]
        return {"id": self.repository, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}

    def entry(self, name: str) -> dict[str, object]:
        content = self.files[name]
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"type": "file", "path": name, "size": len(content), "oid": oid}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub, with an address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, content, name = hub.answer(self)
            if name:
                if hub.fail_after == 0:
                    status, content, name = 403, b"", ""
                elif hub.fail_after is not None:
                    hub.fail_after -= 1
            total = len(content)
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if name else None
            if wanted:
                status, content = 206, content[int(wanted[1]) : int(wanted[2]) + 1]
            self.send_response(status)
            if wanted:
                self.send_header("Content-Range", f"bytes {wanted[1]}-{wanted[2]}/{total}")
            self.send_header("Content-Type", "application/octet-stream" if name else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
