"""What balance costs in a core, counted from the engine's structure, not from synthesis.

Bits of memory, registers, adders and multiplexers (two inputs each).  To compare by: gate
equivalents, with the weights of `GATES`, usual for standard cells; for memories they are rough.
"""

from __future__ import annotations

from typing import Any

from disc.config import CoreConfig

GATES = {"adder_bits": 6.0, "register_bits": 5.0, "mux_bits": 2.0, "memory_bits": 0.5}
"""Gate equivalents (NAND2) of a bit; of memory as a small macro with two ports."""


def area(config: CoreConfig, window: int = 8) -> list[dict[str, Any]]:
    """Return what each measure adds to a core: a record for each, `array` (what there is) first.

    `gates` are gate equivalents, `of_array` those over the array's.
    """
    a, m, n = config.array, config.memory, config.number
    B, L, beats = a.banks, a.lanes, config.max_beats
    G, local = config.columns_per_bank, config.local_bits
    accumulator = n.accumulator_bits
    product = n.operand_bits + n.numerator_bits + 1
    grown = product + 2  # mean width in an adder tree
    row = beats * L
    slots = max(0, window + 2 - a.rows_in_flight)
    bins = 32

    def record(measure: str, dot: str, axpy: str, **bits: int) -> dict[str, Any]:
        full = dict.fromkeys(GATES, 0) | bits
        gates = sum(GATES[kind] * count for kind, count in full.items())
        return {"measure": measure, "dot": dot, "axpy": axpy, **full, "gates": round(gates)}

    records = [
        record(
            "array",
            "",
            "",
            # Multipliers as rows of adders; trees over lanes and over banks; accumulators.
            adder_bits=B * L * n.operand_bits * (n.numerator_bits + 1)
            + (B * (L - 1) + L * (B - 1)) * grown
            + (B + L) * accumulator,
            register_bits=B * L * (n.operand_bits + n.numerator_bits + 1 + product)
            + (B * (L - 1) + L * (B - 1)) // 3 * grown
            + (B + L) * accumulator,
            mux_bits=B * L * 2 * (n.numerator_bits + 1),
        ),
        record("hash search", "yes", "yes"),
        record(
            "hash a head",
            "yes",
            "yes",
            # The matrix of what is being loaded beside that of what is being used.
            register_bits=config.bank_bits * local,
            mux_bits=config.bank_bits * local,
        ),
        record(
            "dot beside axpy",
            "yes",
            "yes",
            # Each bank its own entry, phase and first and last; a second walk.
            register_bits=B * (2 * (local + 1) + 4) + 40,
            adder_bits=B * 2 * (local + 1),
            mux_bits=B * (2 * local + 4 + (m.bank_words - 1).bit_length()),
        ),
        record(
            "run-ahead over 2 rows, dot",
            "yes",
            "no",
            # Two rows copied out of the row buffer, and the next two.
            memory_bits=4 * row * n.operand_bits,
            mux_bits=B * L * n.operand_bits,
            register_bits=L * n.operand_bits,
        ),
        record(
            "run-ahead over 2 words, axpy",
            "no",
            "yes",
            # Another tree over banks with its accumulators; each bank adds to one of the two.
            adder_bits=(B - 1) * L * grown + L * accumulator,
            register_bits=(B - 1) * L // 3 * grown + L * accumulator,
            mux_bits=B * L * product,
        ),
        record(
            f"run-ahead over {window} rows, dot",
            "yes",
            "no",
            memory_bits=B * window * row * n.operand_bits + B * slots * G * (local + n.score_bits),
            adder_bits=B * 2 * (local + 1),
            register_bits=B * 2 * (local + 1),
        ),
        record(
            f"run-ahead over {window} rows, axpy",
            "no",
            "yes",
            # An accumulator a multiplier, written to memory when the bank changes rows; the tree
            # over banks then adds accumulators instead of products.
            memory_bits=2 * B * window * row * accumulator,
            adder_bits=B * L * accumulator + (B - 1) * L * (accumulator - product),
            register_bits=B * L * accumulator,
        ),
        record(
            "masks filled in 1 pass",
            "yes",
            "yes",
            adder_bits=B * 2 * (local + 1) + n.numerator_bits,
            register_bits=B * (local + 1) + (local + 1) + n.numerator_bits,
            mux_bits=n.numerator_bits,
        ),
        record(
            "even masks, 2 bins an octave",
            "yes",
            "yes",
            # A histogram a bank for each half; its running sum; the sum of the banks' counts.
            memory_bits=2 * B * bins * (local + 1),
            adder_bits=B * 3 * (local + 1) + (B - 1) * (local + 1 + config.bank_bits),
            register_bits=B * (2 * (local + 1) + 5),
            mux_bits=B * n.numerator_bits * 4,
        ),
    ]
    for entry in records:
        entry["of_array"] = entry["gates"] / records[0]["gates"]
    return records
