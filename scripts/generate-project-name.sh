#!/bin/sh
# generate-project-name.sh MODEL [tracking]: prints the tracking project of a model, like gpt2-a3f2c.
# The 5 hex digits come from short host name, first interface's IP address and this checkout's folder name.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
exec "${PYTHON:-python3}" -I "$root/lib/kharness/config/project_name.py" "$@"
