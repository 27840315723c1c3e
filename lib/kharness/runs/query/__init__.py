"""Ask all runs below a folder: `kharness.runs(…)` and `kharness ls`."""
