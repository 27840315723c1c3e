"""Where the time of a training goes, and numbers that are still on a device."""
