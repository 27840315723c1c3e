#!/bin/sh
# What to run first on a machine with GPUs: scripts/gpu_first_run.py, whose head says how.
set -u
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-.venv/bin/python}
if ! "$PYTHON" -c '' 2>/dev/null; then
	echo "error: $PYTHON does not run" >&2
	echo "hint: run make first, or set PYTHON" >&2
	exit 2
fi
exec "$PYTHON" scripts/gpu_first_run.py "$@"
