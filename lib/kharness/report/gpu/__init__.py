"""Activity of a run's GPUs, and how evenly they were used."""
