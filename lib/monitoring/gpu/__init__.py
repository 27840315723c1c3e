"""GPU samples as values: no driver is asked here."""
