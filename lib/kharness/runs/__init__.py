"""The harness's files in a run directory, how a run is launched, and how it ended."""
