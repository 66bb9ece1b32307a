"""Configurations of the vector unit's benches: ordinary, odd in every size, and both extremes."""

from __future__ import annotations

from disc.config import CoreConfig, build, preset

__all__ = ["CONFIGS"]


def _config(
    name: str, banks: int, lanes: int, vector: tuple[int, int], bus: tuple[int, int], **number: int
) -> CoreConfig:
    memory = {"bank_words": 32, "query_rows": 8, "columns": 12 * banks, "head_dim": 20}
    return build(
        {
            "name": name,
            "cores": 1,
            "clock_mhz": 100.0,
            "array": {"banks": banks, "lanes": lanes},
            "memory": memory,
            "number": number,
            "vector": dict(zip(("lanes", "max_channels"), vector, strict=True)),
            "bus": dict(zip(("word_bits", "burst"), bus, strict=True)),
            "dram": {"kind": "LPDDR5-6400", "channels": 1},
        }
    )


CONFIGS: dict[str, CoreConfig] = {
    # V = 4, B = 4, default widths.
    "tiny": preset("tiny"),
    # V = 3 divides nothing; every width other than its default; a bus narrower than a word.
    "odd": _config(
        "odd",
        8,
        12,
        (3, 100),
        (32, 16),
        operand_bits=6,
        numerator_bits=10,
        accumulator_bits=26,
        score_bits=14,
        score_fraction_bits=5,
        residual_bits=13,
        sharing_bits=11,
        sharing_guard_bits=2,
    ),
    # One element a word; most banks; narrow, and again no width as by default.
    "serial": _config(
        "serial",
        16,
        9,
        (1, 128),
        (64, 8),
        operand_bits=4,
        numerator_bits=4,
        accumulator_bits=24,
        score_bits=12,
        score_fraction_bits=3,
        residual_bits=12,
        sharing_bits=9,
        sharing_guard_bits=1,
    ),
    # V = L = 8, wider than the group of columns; wide accumulators; the widest bus.
    "wide": _config(
        "wide",
        4,
        8,
        (8, 4096),
        (512, 2),
        accumulator_bits=44,
        numerator_bits=12,
        sharing_bits=16,
        sharing_guard_bits=6,
    ),
}
