"""What the GPUs of a run did, and how evenly they were used."""
