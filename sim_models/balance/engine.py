"""Balance as the engine's cycle model has it: dot, axpy, and whole commands with their overhead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig, build, preset
from disc.hashing import BankHash
from disc.program import Function
from sim_models.balance.masks import in_banks
from sim_models.calibration import designed_constants
from sim_models.engine import EngineModel, Operation


def tiny_of(banks: int, columns: int, head_dim: int) -> CoreConfig:
    """Return `tiny` with other banks and columns, and banks deep enough for one head of these."""
    tiny = preset("tiny")
    fields = tiny.model_dump()
    fields["name"] = f"tiny-{banks}-{columns}"
    fields["array"]["banks"] = banks
    fields["memory"]["columns"] = columns
    fields["memory"]["head_dim"] = head_dim
    beats = -(-head_dim // tiny.array.lanes)
    fields["memory"]["bank_words"] = max(16, 2 * beats * columns // banks)
    return build(fields)


def engine_record(masks: NDArray[np.bool_], hash_: BankHash, head_dim: int) -> dict[str, Any]:
    """Cycles of one head's masks [N, N] on a `tiny` with the hash's banks.

    Returns
    -------
    dict
        `rows`; `kept` columns; `dot_cycles` and `axpy_cycles` in which the array works;
        `cycles` of whole commands, `memory.query_rows` rows each; and with multiplications over
        those that fit into the cycles, `dot_utilisation`, `axpy_utilisation` and `utilisation`;
        `dot_command_utilisation`, likewise of a command that has no axpy.
    """
    config = tiny_of(hash_.banks, masks.shape[-1], head_dim)
    model = EngineModel(config, designed_constants(config))
    beats = model.beats(head_dim)
    ordered = in_banks(masks, hash_)
    busy = beats * int(ordered.sum(axis=2).max(axis=1).sum())
    kept = int(masks.sum())

    def parts() -> Iterator[NDArray[np.bool_]]:
        for begin in range(0, len(ordered), config.memory.query_rows):
            yield ordered[begin : begin + config.memory.query_rows]

    whole, alone = (
        sum(model.cycles_of_masks(part, Operation(head_dim, function=function)) for part in parts())
        for function in (Function.SOFTMAX, Function.PROJECT)
    )
    full = kept * beats / hash_.banks  # cycles of either half with all banks busy
    return {
        "rows": len(masks),
        "kept": kept,
        "dot_cycles": busy,
        "axpy_cycles": busy,
        "cycles": whole,
        "dot_utilisation": full / busy,
        "axpy_utilisation": full / busy,
        "utilisation": 2 * full / whole,
        "dot_command_utilisation": full / alone,
    }
