"""The steps of a training: what ranks agree on in each, the update that the guard lets pass, and the loop."""
