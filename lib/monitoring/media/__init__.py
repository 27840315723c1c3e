"""Texts, pictures, histograms, tables and files of a run, kept in its directory by their content."""
