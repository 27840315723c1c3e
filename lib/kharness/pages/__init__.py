"""Pages that kharness adds to the page of runs: matrices, sweeps, and where options come from."""
