"""Lets only its user in: a token, the right host, no foreign origin; browsers run nothing but our scripts.

Loopback is no wall: on a login node everybody shares it, and any page in the user's browser may send requests
to it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from monitoring.host.name import host_name

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

SECONDS_A_YEAR = 365 * 86400

# No inline script or style, nothing from elsewhere; pictures that the page draws are blobs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin-allow-popups",  # Perfetto is opened, and spoken to
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

HOW = "Open the address that the terminal printed, with its token.\n"


def kept_token() -> str:
    """Return the user's token, so that an open page goes on after the server was restarted.

    It is in a file that only the user reads; where none can be written, it is this process's.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "kharness" / "dashboard_token"
    try:
        if path.stat().st_mode & 0o077 == 0 and len(token := path.read_text().strip()) >= 32:
            return token
    except (OSError, ValueError):
        pass
    token = secrets.token_urlsafe(24)  # with it the address fits in 80 columns
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(token + "\n")
    except OSError:
        pass
    return token


class AccessGuard:
    """ASGI: what is not its user's request is refused before anything reads it."""

    def __init__(self, app: App, *, token: str, port: int, hosts: Iterable[str] = ()) -> None:
        """`hosts` are names, beside those of loopback, under which the page is reached."""
        self._app = app
        self._token = token
        self._cookie = f"kharness_dashboard_{port}"
        self._hosts = LOOPBACK | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        cookie = b""
        if not self._has_cookie(headers):  # it came with the address: from now on the browser has it
            cookie = (
                f"{self._cookie}={self._token}; Path=/; Max-Age={SECONDS_A_YEAR}; HttpOnly; SameSite=Strict"
            ).encode()

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", [])}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [
                    *message.get("headers", []),
                    *((name, value) for name, value in added if name not in own),
                    *([(b"set-cookie", cookie)] if cookie else []),
                ]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            return 421, "This server has another name.\n"
        own = f"{scope.get('scheme', 'http')}://{host}"
        origin, method = headers.get("origin"), scope["method"]
        if (origin is not None and origin.lower() != own.lower()) or (
            origin is None and method not in ("GET", "HEAD")
        ):
            return 403, "Requests come from the page itself only.\n"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and (
            headers.get("sec-fetch-mode") != "navigate" or scope["path"] != "/"
        ):
            return 403, "Requests come from the page itself only.\n"
        if not self._has_cookie(headers) and not self._has_query(scope):
            return 401, HOW
        return None

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _has_query(self, scope: Scope) -> bool:
        if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
            return False
        try:
            given = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
        except ValueError:
            return False
        return any(self._is_token(token) for token in given.get("token", []))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def own_names(host: str) -> set[str]:
    """Return the names under which a server that listens there is reached."""
    if host in LOOPBACK:
        return set()
    names = {host, host_name()}
    if host in ("0.0.0.0", "::"):
        names.add(socket.getfqdn())
    return names


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    headers += [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
