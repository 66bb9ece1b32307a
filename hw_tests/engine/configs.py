"""Configurations of the engine's tests: ordinary, odd in every size, and small."""

from __future__ import annotations

from disc.config import CoreConfig, build, preset

__all__ = ["ENGINES"]

_TINY = preset("tiny").model_dump()

ENGINES: dict[str, CoreConfig] = {
    "tiny": preset("tiny"),
    # Nothing in it is a default or, where it need not be, a power of two.
    "odd": build(
        _TINY
        | {
            "name": "odd",
            "array": {"banks": 8, "lanes": 6, "rows_in_flight": 3},
            "memory": {
                "bank_words": 100,
                "query_rows": 12,
                "columns": 88,
                "head_dim": 20,
                "mask_word_bits": 8,
            },
            "number": {
                "operand_bits": 7,
                "numerator_bits": 9,
                "accumulator_bits": 26,
                "score_bits": 15,
                "score_fraction_bits": 5,
            },
            "vector": {"lanes": 2},
        }
    ),
    # Two banks, one beat a head, one element at a time to the vector unit.
    "narrow": build(
        _TINY
        | {
            "name": "narrow",
            "array": {"banks": 2, "lanes": 9, "rows_in_flight": 2},
            "memory": {
                "bank_words": 64,
                "query_rows": 48,
                "columns": 32,
                "head_dim": 9,
                "mask_word_bits": 4,
            },
            "number": {"accumulator_bits": 28},
            "vector": {"lanes": 1},
        }
    ),
}
