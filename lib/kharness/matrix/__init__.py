"""From axes to cells to processes: the test matrix. Starts models by command line, so it needs no torch."""
