"""Benches of single blocks.

Blocks of fixed latency and without handshake are driven with a vector a cycle (`vectors.py`), and
all their outputs of all cycles are compared afterwards; so latencies are checked with the values.
The others have a bench of their own.  All blocks of a configuration stand side by side in one
simulator (`harness.py`).
"""
