"""Tiny Shakespeare in its 65 characters, each of which is a token: the last 111,540 are for validation."""

from __future__ import annotations

from kharness.training.datasets._files import DataFolder
from kharness.training.datasets.shakespeare import Shakespeare

TEXT = Shakespeare("shakespeare_char")

Options = DataFolder
fetch, check, load, manifest = TEXT.fetch, TEXT.check, TEXT.load, TEXT.manifest
