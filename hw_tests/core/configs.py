"""Configurations of the complete core's tests; all but `scarce` hold a block of `digits-256`."""

from __future__ import annotations

from disc.config import CoreConfig, build, preset

__all__ = ["CORES", "small"]


def small(name: str, bus: tuple[int, int], **sections: dict[str, int]) -> CoreConfig:
    """Return a configuration with a bus of (bits, burst), and sections as given."""
    word_bits, burst = bus
    return build(
        {
            "name": name,
            "cores": 1,
            "clock_mhz": 100.0,
            "bus": {"word_bits": word_bits, "burst": burst},
            "dram": {"kind": "LPDDR5-6400", "channels": 1},
            **sections,
        }
    )


CORES: dict[str, CoreConfig] = {
    "tiny": preset("tiny"),
    # Nothing is a power of two that need not be; two elements a word of the vector unit.
    "six": small(
        "six",
        (64, 16),
        array={"banks": 8, "lanes": 6, "rows_in_flight": 3},
        memory={
            "bank_words": 400,
            "query_rows": 40,
            "columns": 256,
            "head_dim": 32,
            "mask_word_bits": 8,
            "row_words": 190,
        },
        number={"numerator_bits": 8},
        vector={"lanes": 2, "max_channels": 140},
        selector={"pixels": 3, "max_width": 16},
    ),
    # Many banks, wide words; sums of 40 bits take eight bytes, residuals of sharing two.
    "wide": small(
        "wide",
        (256, 4),
        array={"banks": 16, "lanes": 12},
        memory={
            "bank_words": 100,
            "query_rows": 24,
            "columns": 256,
            "head_dim": 32,
            "mask_word_bits": 8,
            "row_words": 180,
        },
        number={
            "accumulator_bits": 40,
            "score_bits": 18,
            "score_fraction_bits": 7,
            "sharing_bits": 16,
            "sharing_guard_bits": 4,
        },
        vector={"lanes": 4, "max_channels": 128},
        selector={"pixels": 2, "max_width": 16},
    ),
    # The banks hold 16 keys of 12 elements; an element at a time.
    "scarce": small(
        "scarce",
        (32, 16),
        array={"banks": 2, "lanes": 6},
        memory={
            "bank_words": 32,
            "query_rows": 24,
            "columns": 16,
            "head_dim": 12,
            "mask_word_bits": 8,
        },
        vector={"lanes": 1, "max_channels": 64},
        selector={"pixels": 1, "max_width": 16},
    ),
}
