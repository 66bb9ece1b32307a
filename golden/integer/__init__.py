"""The integer golden core: the exact meaning of every operation that the hardware performs.

Pure NumPy on int64, no floating point, no PyTorch.  `docs/arithmetic.md` is the specification in
words; function names here and there are the same.
"""

from golden.integer.fused import FusedResult, fused_attention
from golden.integer.rounding import round_shift, saturate

__all__ = ["FusedResult", "fused_attention", "round_shift", "saturate"]
