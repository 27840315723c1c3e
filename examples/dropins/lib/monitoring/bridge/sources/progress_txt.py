"""Spinning Up's `progress.txt`: names in the first line, then values per epoch, with tabs between."""

from collections.abc import Iterator

from monitoring.bridge.source import MetricSource, Reported, Watched, files_below

NAME = "progress.txt"

# Between CSV files (40) and what is printed (10): of two sources of one metric the richer one counts.
RICHNESS = 35


def find(watched: Watched) -> "Iterator[ProgressText]":
    """Yield the files that are new."""
    return (ProgressText(path) for path in files_below(watched.cwd, NAME) if watched.is_new(path))


class ProgressText(MetricSource):
    """The place is a count of lines."""

    kind = "progress_txt"

    def read(self, place: int) -> Iterator[Reported]:
        """A last line without its end is left for later."""
        lines = self.path.read_text().splitlines(keepends=True)
        names, *rows = [line.rstrip().split("\t") for line in lines if line.endswith("\n")] or [[]]
        for count, row in list(enumerate(rows, 1))[place:]:
            yield Reported(dict(zip(names, map(float, row), strict=False)), count)
