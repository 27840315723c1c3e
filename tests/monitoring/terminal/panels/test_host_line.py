"""The line about this machine, in a terminal that is wide and in one that is narrow."""

from __future__ import annotations

import re

from monitoring.terminal.panels.host_line import HostLine


def test_line_has_all_where_there_is_room_and_no_disk_where_there_is_not() -> None:
    host = HostLine()
    assert "".join(span.text for span in host.line(120)) == " host"
    host.look()
    host.look()
    wide, narrow = ("".join(span.text for span in host.line(width)) for width in (120, 70))
    pattern = r" host CPU +(\d+%|–) [▁▂▃▄▅▆▇█ ]{4,}  RAM [\d.]+/[\d.]+ GiB \d+%  load [\d. ]+"
    assert re.fullmatch(pattern + r"  disk \d+ GB free", wide)
    assert len(wide) <= 120
    assert re.fullmatch(pattern, narrow)
