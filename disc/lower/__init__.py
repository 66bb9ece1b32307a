"""Lowering: from a block's sizes, tensors and step to a program and a memory image."""
