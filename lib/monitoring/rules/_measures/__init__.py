"""Measures that several rules share."""
