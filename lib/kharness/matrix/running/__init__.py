"""Cells run to their end, and the table that shows them."""
