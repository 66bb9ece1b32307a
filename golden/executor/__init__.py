"""Executes programs on a memory image with the functions of `golden.integer`, to the bit."""

from golden.executor.machine import execute
from golden.executor.memory import Memory
from golden.executor.order import random_order

__all__ = ["Memory", "execute", "random_order"]
