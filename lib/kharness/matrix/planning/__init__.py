"""From axes to the cells of a matrix, and its matrix.json."""
