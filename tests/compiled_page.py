"""Import this before forks that write reports: each would compile the page, 60 ms of CPU time."""

from kharness.report.writing.html import page_template

page_template()
