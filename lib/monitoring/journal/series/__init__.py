"""Any metric of a run as a series: what terminal, report, page and `kharness.runs` read journals by.

    series = RunSeries(run_dir)
    while series.refresh(0.05):     # True while more is left: what is there can be drawn already
        ...
    window = series.window("train_loss", lo=1000, hi=2000, buckets=800)

A journal is read once and then followed by a byte offset. Of a long series only the lowest, the highest and
the last value of each block of records stay in memory, with where the block stands in the journal: a chart
takes these, and reads the records themselves again where it zooms in to them.
"""

from monitoring.journal.series.ends import LastValue, last_values
from monitoring.journal.series.journals import TrainingJournal
from monitoring.journal.series.run_series import RunSeries, SeriesInfo
from monitoring.journal.series.window import Window

__all__ = ["LastValue", "RunSeries", "SeriesInfo", "TrainingJournal", "Window", "last_values"]
