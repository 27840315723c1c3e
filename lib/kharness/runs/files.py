"""The names of the harness's files in the directory of a run or a matrix; no other module spells one.

Those that monitoring writes are in monitoring.journal.files, those of the configuration in kharness.config.
"""

from __future__ import annotations

from monitoring.journal.files import OUTPUT_LOG as OUTPUT_LOG

MATRIX_JSON = "matrix.json"
STATUS_JSON = "status.json"
RUNNER_LOCK = ".runner.lock"
JOB_JSONL = "job.jsonl"
"""Starts and ends of the run's jobs on a cluster, written by the jobs themselves."""
SLURM = ".slurm"
"""Folder of a matrix with what its jobs on Slurm are to run."""
SOURCES = ".sources"
"""Folder of a matrix with the sources that its cells train from (MATRIX_SNAPSHOT)."""
CHECKPOINTS = "checkpoints"
RENDERED = "rendered"
"""Folder of the files that a command was given with the values of the run."""
REPLAYED_JSON = "replayed.json"
"""Changes of a past run (its control_change records) that its reproduction makes after the same steps."""
INSPECTED = "inspected"
"""Folder of pictures of samples (`make inspect-batch`)."""
WEIGHTS = "weights.pt"
"""Those of a training whose checkpoints are shared by its processes (PARALLEL=fsdp), in one file."""
PREDICTIONS = "predictions.png"

SUMMARY_JSON = "summary.json"
SUMMARY_CSV = "summary.csv"
SUMMARY_MD = "summary.md"
REPORT_HTML = "report.html"
JUNIT_XML = "junit.xml"
GRAPHS = "graphs"
LEADERBOARD_JSON = "leaderboard.json"
LEADERBOARD_CSV = "leaderboard.csv"
LEADERBOARD_MD = "leaderboard.md"

BUNDLE = ".kharness.zip"
"""Ending of the archive of a run or a matrix; UNPACKED that of the folder it is unpacked into."""
UNPACKED = ".unpacked"
BUNDLE_JSON = "bundle.json"
REQUIREMENTS = "requirements.txt"
"""The packages that were installed, in a bundle."""

LATEST = "latest"
"""The link to the newest run or matrix, in the folder of results."""
