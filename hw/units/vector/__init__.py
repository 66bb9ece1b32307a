"""The vector unit: what the vector queue's commands ask for."""

from hw.units.vector.unit import VectorUnit

__all__ = ["VectorUnit"]
