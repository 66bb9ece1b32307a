"""The array unit: projections, MLP and attention on the engine, with all that surrounds it."""

from hw.units.array.unit import ArrayUnit

__all__ = ["ArrayUnit"]
