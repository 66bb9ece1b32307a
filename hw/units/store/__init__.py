"""The store unit: what the store queue's commands ask for."""

from hw.units.store.unit import StoreUnit

__all__ = ["StoreUnit"]
