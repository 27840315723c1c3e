"""From run directories to a comparison: summary, tables, graphs. Needs neither torch nor the models."""
