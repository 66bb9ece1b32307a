"""Synthesizable Amaranth: one block a file, no test code."""
