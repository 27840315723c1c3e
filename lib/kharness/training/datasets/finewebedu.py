"""FineWeb-Edu, the sample of 10 billion tokens: educational pages of the web.

https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu (ODC-By 1.0); Penedo et al., arXiv:2406.17557.
The sample's files are sample/10BT/000_00000.parquet to 013_00000.parquet.
"""

from __future__ import annotations

from kharness.training.datasets._texts import HubDataset, HubOptions

CITED = ("penedo2024",)

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("finewebedu", "HuggingFaceFW/fineweb-edu", "sample/10BT/*.parquet")

Options = HubOptions
fetch, check, load, manifest = DATASET.fetch, DATASET.check, DATASET.load, DATASET.manifest
