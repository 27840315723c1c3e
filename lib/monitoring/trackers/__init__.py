"""One module a tracker; follower.py says what it defines."""
