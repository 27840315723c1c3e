"""A report for a paper: tables, pictures, captions, a bibliography, an appendix on reproducibility."""
