"""ResNet-50 on pictures."""
