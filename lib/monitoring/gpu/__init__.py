"""GPU samples as values: no driver is called here."""
