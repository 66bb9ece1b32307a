"""Configurations of the block benches: ordinary, odd in every size, and degenerate."""

from __future__ import annotations

from disc.config import CoreConfig, build, preset
from disc.hashing import BankHash

__all__ = ["CONFIGS", "hashes"]

_DRAM = {"kind": "LPDDR5-6400", "channels": 1}

CONFIGS: dict[str, CoreConfig] = {
    "tiny": preset("tiny"),
    # Nothing is a power of two that need not be; accumulators as narrow as is allowed.
    "odd": build(
        {
            "name": "odd",
            "cores": 1,
            "clock_mhz": 100.0,
            "array": {"banks": 8, "lanes": 6},
            "memory": {
                "bank_words": 170,
                "query_rows": 11,
                "columns": 160,
                "mask_word_bits": 8,
                "head_dim": 20,
            },
            "number": {
                "operand_bits": 6,
                "numerator_bits": 10,
                "accumulator_bits": 24,
                "score_bits": 14,
                "score_fraction_bits": 5,
            },
            "vector": {"lanes": 2},
            "dram": _DRAM,
        }
    ),
    # One column a bank, one beat a row, one cycle a word: counters of one bit or none.
    "flat": build(
        {
            "name": "flat",
            "cores": 1,
            "clock_mhz": 100.0,
            "array": {"banks": 16, "lanes": 9},
            "memory": {
                "bank_words": 16,
                "query_rows": 4,
                "columns": 16,
                "mask_word_bits": 4,
                "head_dim": 9,
            },
            "number": {
                "operand_bits": 4,
                "numerator_bits": 4,
                "accumulator_bits": 24,
                "score_bits": 12,
                "score_fraction_bits": 3,
            },
            "vector": {"lanes": 9},
            "dram": _DRAM,
        }
    ),
}


def hashes(config: CoreConfig, count: int, seed: int) -> list[BankHash]:
    """Return modulo, XOR-fold and `count` random hashes."""
    sizes = config.array.banks, config.local_bits
    random = [BankHash.random_gf2(*sizes, seed=seed + i) for i in range(count)]
    return [BankHash.modulo(*sizes), BankHash.xor_fold(*sizes), *random]
