"""Values of any kind as the strict JSON of a record."""
