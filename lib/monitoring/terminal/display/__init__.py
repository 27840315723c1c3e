"""A terminal that is painted, and what is painted of: keys, cells, colors, graphs and numbers."""
