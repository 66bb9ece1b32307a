"""The integer golden core: the exact meaning of every operation that the hardware performs.

`docs/arithmetic.md` is the specification in words; function names here and there are the same.

What hardware does, NumPy on int64 without floating point (save for products that are exact in it,
see `matmul`): `rounding`, `matmul`, `softmax`, `fused`, `sharing`, `layernorm`, `linear`, `mlp`,
`forecast`, `block`, `network`.

What the host does, in float: `quantise`, `parameters`, `lowering`, `observe`, `calibrate`,
`calibration`, and `dit`, which puts all of it in place of the float model in a sampling run.
`quantised_float` is the level between the two.  These need PyTorch; import them by name.
"""

from golden.integer.fused import FusedResult, fused_attention
from golden.integer.rounding import round_shift, saturate

__all__ = ["FusedResult", "fused_attention", "round_shift", "saturate"]
