"""What stands in a run directory of the harness's, how a run is launched, and how it ended."""
