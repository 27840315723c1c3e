"""The test matrix: axes, cells, processes. Starts models by command line, so it needs no torch."""
