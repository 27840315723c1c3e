"""Names made from templates: the project `{model}-{checksum}` and the run `{model}_{optimizer}_{timestamp}`.

Run as a script, without anything installed, it prints a project name: project_name.py gpt2 [tracking]
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # kept out of `make defconfig`, which has to be quick
    from datetime import datetime

_FIELD = re.compile(r"\{([^{}]*)\}")
_SIOCGIFADDR = 0x8915  # linux/sockios.h

LONGEST_RUN_NAME = 200
"""Bytes: a file system takes 255, of which names beside it (hidden ones, numbers) need some."""


@functools.lru_cache(maxsize=8)
def checksum(root: Path) -> str:
    """5 hex digits that identify this checkout on this machine.

    The start of the MD5 of short host name, first interface's IPv4 address and the checkout's directory name.
    """
    from hashlib import md5

    host = os.uname().nodename.partition(".")[0]
    identity = f"{host} {_first_address()} {root.resolve().name}"
    return md5(identity.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()[:5]


def project_name(values: Mapping[str, object], root: Path) -> str:
    """TRACKER_PROJECT with its fields filled in; ValueError for an unknown field or an empty name."""
    name = _expand(str(values["TRACKER_PROJECT"]), values, lambda: {"checksum": checksum(root)})
    if not name.strip():
        raise ValueError("is empty")
    return name


def run_name(values: Mapping[str, object], root: Path, started: datetime) -> str:
    """TRACKER_RUN_NAME with its fields filled in, `{timestamp}` as 20260131T235959Z.

    ValueError for an unknown field, or for a name that cannot be a folder.
    """
    return _run_name(values, root, f"{started:%Y%m%dT%H%M%SZ}")


def check_run_name(values: Mapping[str, object], root: Path) -> None:
    """ValueError now for a TRACKER_RUN_NAME that would fail when a run starts."""
    _run_name(values, root, "20260131T235959Z")


def _run_name(values: Mapping[str, object], root: Path, timestamp: str) -> str:
    name = _expand(
        str(values["TRACKER_RUN_NAME"]),
        values,
        lambda: {"checksum": checksum(root), "timestamp": timestamp},
    )
    if not name or "/" in name or name.startswith("."):
        raise ValueError(f"{name!r} cannot be the name of a folder")
    if (size := len(os.fsencode(name))) > LONGEST_RUN_NAME:
        raise ValueError(f"{name[:20]!r}… has {size} bytes, a run's name at most {LONGEST_RUN_NAME}")
    return name


def _expand(template: str, values: Mapping[str, object], extra: Callable[[], Mapping[str, str]]) -> str:
    """Fields are the extra ones and every symbol in lower case: {model}, {optimizer}, {seed}."""
    fields = _FIELD.findall(template)
    symbols = [field.upper() for field in fields if field == field.lower()]
    known = {symbol.lower(): str(values[symbol]) for symbol in symbols if symbol in values}
    if any(field not in known for field in fields):
        known.update(extra())
    for field in fields:
        if field not in known:
            raise ValueError(f"{template!r} has an unknown field {{{field}}}")
    return _FIELD.sub(lambda match: known[match[1]], template)


def _first_address() -> str:
    """IPv4 address of the first interface that is not loopback; 127.0.0.1 without one."""
    import socket

    if sys.platform == "linux":
        import fcntl
        import struct

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                try:
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                except OSError:
                    continue  # the interface has no IPv4 address
                address = socket.inet_ntoa(answer[20:24])
                if not address.startswith("127."):
                    return address
    return "127.0.0.1"


def main(argv: list[str]) -> int:
    """`gpt2 [tracking]`: print the project name of a model in this checkout."""
    if len(argv) not in (1, 2) or not argv[0] or argv[1:] not in ([], ["tracking"]):
        print("error: one model name is needed", file=sys.stderr)
        print("hint: generate-project-name.sh gpt2 tracking", file=sys.stderr)
        return 2
    print(f"{argv[0]}-{checksum(Path(__file__).resolve().parents[3])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
