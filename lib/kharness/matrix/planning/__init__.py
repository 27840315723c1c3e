"""Turns axes into the cells of a matrix, and its matrix.json."""
