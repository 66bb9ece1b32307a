"""PyTorch and integer golden models."""
