"""Golden model: the trained transformer, CTR and ST on it, and the integers of the hardware."""

from __future__ import annotations

from typing import Any

__all__ = ["attach", "detach"]


def __getattr__(name: str) -> Any:
    # Late, so that the integer core can be imported without PyTorch.
    if name in __all__:
        from golden import accelerate

        return getattr(accelerate, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
