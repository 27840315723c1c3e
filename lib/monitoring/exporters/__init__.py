"""One module per exporter, which follows a journal and is no tracker; follower.py says what it defines."""
