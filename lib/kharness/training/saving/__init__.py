"""How the state of a training is written: hashed on its way, in one file or in one directory of all ranks."""
