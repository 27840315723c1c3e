"""A terminal that is painted, and what is painted of: keys, cells, colours, graphs and numbers."""
