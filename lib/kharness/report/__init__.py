"""Turns run directories into a comparison: summary, tables, graphs. Needs neither torch nor the models."""
