"""Cells of a matrix forked from one process that has imported torch already."""
