"""Attention, the third function of the fused operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import Access, Accesses, Space, Window, row_slots
from disc.program.array import Fuse
from disc.program.fields import TOKEN_BITS, Queue, address, flag, operand, stride
from disc.program.fuse import MaskMode
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS, THRESHOLD_BITS


class AttendEpilogue(IntEnum):
    """What becomes of a row's sums."""

    PLAIN = 0
    """Divided by the total, to an operand."""
    ADD = 1
    """Divided with guard bits, kept residual added, to an operand."""
    KEEP = 2
    """Dense result; dense minus masked is kept as residual."""
    MASKED = 3
    """Result of the columns that the new mask keeps."""


@dataclass(frozen=True, kw_only=True)
class Attend(Fuse):
    """One head over one key tile: y_i = sum over j of softmax(q_i . k_j) v_j.

    With several tiles a row's maximum, total and sums meet in DRAM.  A mask over several tiles is
    made in a second pass, `mark`, when maximum and total of the whole row are known.
    """

    OPCODE: ClassVar[int] = 18
    QUEUE: ClassVar[Queue] = Queue.ARRAY
    NAME: ClassVar[str] = "attend"

    axpy_base: int = operand(
        "bank word of the columns for axpy", sizes.last_word, unit="word", why="memory.bank_words"
    )
    mode: MaskMode = operand(
        "DENSE: all columns; MASKED: those of the mask; GENERATE: all, and make the mask", MaskMode
    )
    epilogue: AttendEpilogue = operand("what becomes of a row's sums", AttendEpilogue, default=0)
    slot: int = operand(
        "first row slot of the mask memory", sizes.last_mask_slot, unit="row slot", default=0
    )
    first_column: int = operand(
        "key token that is column 0 here, for the diagonal", (1 << TOKEN_BITS) - 1, default=0
    )
    score_multiplier: int = operand("dot product to score", (1 << MULTIPLIER_BITS) - 1)
    score_shift: int = operand("times 2**-shift, unit log2 / 2**F", (1 << SHIFT_BITS) - 1)
    output_multiplier: int = operand("weighted mean of V to result", (1 << MULTIPLIER_BITS) - 1)
    output_shift: int = operand("times 2**-shift", 32)
    threshold: int = operand(
        "GENERATE keeps probabilities of at least threshold * 2**-20",
        1 << THRESHOLD_BITS,
        default=0,
    )
    diagonal: int = flag("GENERATE keeps the row's own column in any case", default=1)
    first: int = flag("first tile: no earlier state", default=1)
    last: int = flag("last tile: result; else leave the state in DRAM", default=1)
    mark: int = flag("second pass of GENERATE: `partial` holds the state of the whole rows")
    fill: int = flag("GENERATE: each bank keeps as many columns as the fullest one, if it can")
    partial: int = address("states of the rows of this list window", align=4, default=0)
    kept: int = address("mark: states of the kept columns", align=4, default=0)
    residual: int = address(
        "ADD, KEEP: residual of token 0, int8 with sharing_bits up to 8, else int16", default=0
    )
    residual_stride: int = stride("from token to token", default=0)
    dram: int = address("result of token 0, operands of a byte", default=0)
    stride: int = stride("from token to token", default=0)

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        self.check_rows(config)
        if self.width > config.memory.head_dim:
            raise ValueError(
                f"width: must be in [1, {config.memory.head_dim}] for configuration "
                f"{config.name!r}, got {self.width}; memory.head_dim limits it"
            )
        length = self.tile(self.width, config)
        self.check_tile("dot_base", self.width, config)
        self.check_tile("axpy_base", self.width, config)
        parts = (("K", self.dot_base), ("V", self.axpy_base))
        sizes.require_apart("axpy_base", parts, (length, length))
        if self.mode != MaskMode.DENSE:
            size = config.memory.query_rows
            sizes.require_room("slot", "the tile", self.slot, self.rows, size, "slot")
        allowed = {
            MaskMode.DENSE: (AttendEpilogue.PLAIN,),
            MaskMode.MASKED: (AttendEpilogue.PLAIN, AttendEpilogue.ADD),
            MaskMode.GENERATE: (AttendEpilogue.PLAIN, AttendEpilogue.KEEP, AttendEpilogue.MASKED),
        }[self.mode]
        if self.epilogue not in allowed:
            names = ", ".join(item.name for item in allowed)
            raise ValueError(
                f"epilogue: mode {self.mode.name} has {names}, got {self.epilogue.name}"
            )
        for field in ("mark", "fill"):
            if getattr(self, field) and self.mode != MaskMode.GENERATE:
                raise ValueError(f"{field}: needs mode GENERATE, got {self.mode.name}")
        if self.mode == MaskMode.GENERATE and not self.mark and not (self.first and self.last):
            raise ValueError("mark: GENERATE over several tiles needs it, got 0")
        if sizes.sharing_bytes(config) == 2 and (self.residual | self.residual_stride) & 1:
            raise ValueError(
                f"residual, residual_stride: must be even for int16, got {self.residual}, "
                f"{self.residual_stride}"
            )
        guard = config.number.sharing_guard_bits
        shares = self.epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP)
        if shares and self.output_shift < guard:
            raise ValueError(
                f"output_shift: must be at least sharing_guard_bits = {guard} to share "
                f"residuals, got {self.output_shift}"
            )

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        found = [
            *self.reads(config),
            self.banks(self.axpy_base, self.width, config),
        ]
        if self.mode != MaskMode.DENSE:
            write = self.mode == MaskMode.GENERATE
            found.append(row_slots(Space.MASK, write, self.slot, self.rows, 1))
        state = sizes.state_bytes(config, self.width)
        running = self.kept if self.mark else self.partial
        if self.mark:
            found.append(row_slots(Space.DRAM, False, self.partial, self.rows, state))
        if not self.first:
            found.append(row_slots(Space.DRAM, False, running, self.rows, state))
        if not self.last:
            return [*found, row_slots(Space.DRAM, True, running, self.rows, state)]
        if self.epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP):
            found.append(
                Access(
                    Space.DRAM,
                    self.epilogue == AttendEpilogue.KEEP,
                    self.residual,
                    self.width * sizes.sharing_bytes(config),
                    self.residual_stride,
                    window=window,
                )
            )
        result = Access(Space.DRAM, True, self.dram, self.width, self.stride, window=window)
        return [*found, result]

    def array_cycles(self, config: CoreConfig) -> int:
        """See `Command.array_cycles`."""
        return 2 * self.rows * self.tile(self.width, config)
