"""The help screen, which fits 80x24."""

from __future__ import annotations

from monitoring.terminal.display.cells import Line, Span, set_cell_size

HELP = """\
 q quit     ? this help, and any key closes it     Ctrl-Z suspend   h next host
 s save the newest samples (gpu_metrics_*.jsonl, training_metrics_*.jsonl)
 + - zoom: 1 min, 5 min, 30 min, 4 h, all that the run recorded   r reset graphs
 n N another metric in the second graph   l log axis of the losses
 t theme: dark, light, mono, safe   m mouse on, off
 ↑ ↓ graphs and processes of one GPU, or of all   ← → another run that trains

 Processes
 j k PgDn PgUp  select one; Esc none    < >  sort by another column
 i  the other order    /  filter by user, pid or command: Enter keeps, Esc drops
 T I K  send SIGTERM, SIGINT, SIGKILL to the selected one, after a question
 SM%  share of time in which it kept the GPU's SMs busy   CPU%  of one processor
 RES  host memory   –  not reported by the device, or not for you to read

 Mouse: click a GPU, a process, a column's head, a graph (zoom), the losses
 (log), the run; the wheel scrolls. To select text hold Shift, or press m.

 Yellow, and red with a !: memory from 75 and above 90 %, temperature from 70
 and above 80 °C, power from 95 and above 105 % of its limit.
 util: share of the time in which any kernel ran; a rank that waits for others
 is 100 % busy, too."""


def help_screen(width: int, height: int) -> list[Line]:
    """Return exactly `height` lines."""
    text = ["", *HELP.splitlines()][:height]
    lines = [[Span(set_cell_size(line, width), "strong" if line == " Processes" else "")] for line in text]
    return lines + [[] for _ in range(height - len(lines))]
