"""The parts of the dashboard's picture, one file each."""
