"""Sparse masks: kept, listed, made.

`controller` holds them and hands rows to a `scanner` a bank, which list the kept columns;
`generator` compares probabilities with the threshold and writes new ones.
"""
