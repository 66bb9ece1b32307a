"""The engine: `y_i = sum over j of f(x_i . w_j) v_j` on one array, row by row.

`engine.py` puts the parts together; in the order in which a row meets them they are `control` (the
command), `rows` (what is kept, and where), `issue` (what the array does next), `fetch` (operands),
`activation` (what becomes of a dot product), `sums` (what becomes of weighted sums) and `kept` (the
columns of a mask just made).
"""

from hw.engine.engine import AttentionEngine
from hw.engine.ports import EngineCounters, QueryWord

__all__ = ["AttentionEngine", "EngineCounters", "QueryWord"]
