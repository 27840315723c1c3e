"""LeNet-5 on handwritten digits."""
