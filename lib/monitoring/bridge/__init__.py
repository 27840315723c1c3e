"""Records any program that trains, unchanged: runs it, follows what it reports, and writes the journal."""
