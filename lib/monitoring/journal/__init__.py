"""What stands in a run directory of monitoring's: records, their files, and what can be read off them."""
