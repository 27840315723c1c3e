"""A model outside of the tree of kharness: make M=FOLDER."""
