"""Jobs of a scheduler: their program on the node, the file that it writes, and the attempts of a run."""
