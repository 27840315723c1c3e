"""Datasets as files: which ones there are, how they are fetched, verified, read. Nothing needs torch."""
