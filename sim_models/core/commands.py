"""Cycles of one command that has the port to DRAM to itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import (
    Attend,
    AttendEpilogue,
    Change,
    Command,
    Forecast,
    Function,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    MaskMode,
    Mlp,
    Norm,
    Project,
    ProjectEpilogue,
    Record,
    Select,
    StoreMasks,
    sizes,
)
from disc.program.work import CommandWork, dram_accesses, row_words
from disc.tables import DISTANCE_BITS
from sim_models.engine import EngineModel, Operation

__all__ = ["Cost", "CostModel"]

REQUESTS = 16
"""Requests of a client that may be on their way: depth of `hw.memory.arbiter`."""

EMPTY = {"load": 3, "vector": 2, "array": 1, "store": 3}
"""Cycles of a command whose list is empty."""

# Cycles that a command takes besides its words and memory's latency, as `hw_tests` measures them.
LOAD = 13
"""First request 11 cycles behind the start, the last word in its memory 2 behind its arrival."""
LIST, NO_ENTRIES = 26, 17
"""Length, then entries; a list that ends ahead of the first one asked for."""
STORE_MASKS = 8
SELECT, COPY = 24, 15
"""To the first score and from the last; to the first patch that is copied and from the last."""
NORM_START, NORM_STATISTICS, NORM_END = 11, 18, 15
FORECAST, FORECAST_RATIOS = 20, 18
"""Rows through the unit; more where ages are looked up among the ratios."""
PROJECT, PROJECT_GATED = 9, 14
MLP_SUMS, MLP_REST = 4, 9
"""Sums that start; sums that go on, or end in the gate."""
ATTEND, ATTEND_SUMS = 4, 14
"""Normalised by the engine; merged, shared, or left as sums."""


@dataclass(frozen=True)
class Cost:
    """What a command takes."""

    cycles: float
    """From its start to its end, if no one else uses the port to DRAM."""
    read: int
    """Words of the bus."""
    written: int
    engine: float = 0.0
    """Cycles in which the engine has the command."""


@dataclass(frozen=True)
class CostModel:
    """Costs on one core.

    Parameters
    ----------
    config
        Of the core.
    engine
        Calibrated on the same configuration.
    hash_
        Of columns to banks.
    latency
        Cycles from a request to its first data, and from a write to its acknowledgement.
    """

    config: CoreConfig
    engine: EngineModel
    hash_: BankHash
    latency: int
    _dense: dict[tuple[int, int, Operation], float] = field(
        default_factory=dict, init=False, repr=False
    )

    def cost(self, command: Command, work: CommandWork) -> Cost:
        """Return the cost of a command.

        The engine's part is exact.  All else is rows at the rate of the slower of unit and bus, and
        latencies as designed: they are named where the RTL has names for them.
        """
        size = self.config.bus.word_bytes
        words: dict[bool, list[NDArray[np.int64]]] = {False: [], True: []}
        for access in dram_accesses(command, self.config, work):
            words[access.write].append(row_words(access, work.tokens, size))
        read, written = (int(sum(w.sum() for w in words[write])) for write in (False, True))
        if self._empty(command, work):
            return Cost(EMPTY[command.QUEUE.name.lower()], 0, 0)
        if isinstance(command, Project | Mlp | Attend):
            engine = self._engine_cycles(command, work)
            over = self._array_overhead(command) + self.latency
            return Cost(max(engine, read, written) + over, read, written, engine)
        if isinstance(command, LoadList):
            return Cost(self._list(command, work, read), read, 0)
        if isinstance(command, Norm | Record | Forecast):
            return Cost(self._vector(command, work, words), read, written)
        if isinstance(command, StoreMasks):
            lines = self._core_words(command)
            rows = words[True][0]
            return Cost(int(np.maximum(rows, lines).sum()) + STORE_MASKS + self.latency, 0, written)
        if isinstance(command, Select):
            return Cost(self._select(command, words), read, written)
        rows = words[False][0]
        stream = int(np.maximum(rows, self._core_words(command)).sum())
        return Cost(self._stream(stream, rows) + LOAD + self.latency, read, 0)

    # -- load and store --------------------------------------------------------------------------

    def _empty(self, command: Command, work: CommandWork) -> bool:
        if isinstance(command, LoadList | Select) or not hasattr(command, "list"):
            return False
        return not len(work.tokens) and not getattr(command, "single", 0)

    def _core_words(self, command: Command) -> int:
        """Words of the unit for each row that it moves, or for all if it moves one."""
        if isinstance(command, LoadColumns | LoadRows):
            return sizes.words(command.width, self.config)
        if isinstance(command, LoadConstants):
            return command.columns
        if isinstance(command, LoadTable):
            return sizes.table_bytes(self.config)
        if isinstance(command, LoadMasks | StoreMasks):
            line = sizes.mask_line_bytes(self.config)
            return sizes.mask_row_bytes(command.columns, self.config) // line
        raise TypeError(f"command: {command.NAME} moves no rows")

    def _stream(self, cycles: int, rows: NDArray[np.int64]) -> int:
        """No faster than requests come back: each row makes its own."""
        behind = int(np.ceil(rows / self.config.bus.burst).sum()) - 1
        rounds = behind // REQUESTS * (self.latency + 3) + behind % REQUESTS
        return max(cycles, rounds)

    def _list(self, command: LoadList, work: CommandWork, read: int) -> float:
        if not len(work.tokens):
            return self.latency + NO_ENTRIES
        # The entries are asked for when the length is known.
        return 2 * self.latency + LIST + max(len(work.tokens), read)

    # -- vector ----------------------------------------------------------------------------------

    def _vector(
        self,
        command: Norm | Record | Forecast,
        work: CommandWork,
        words: dict[bool, list[NDArray[np.int64]]],
    ) -> float:
        own = -(-command.width // self.config.vector.lanes)
        rows = len(work.tokens)
        read, written = (int(sum(w.sum() for w in words[write])) for write in (False, True))
        first = sum(int(w[0]) for w in words[False])
        if isinstance(command, Norm):
            # A row's statistics are known behind it; the vectors come behind the first row.
            ahead = NORM_START + max(own + NORM_STATISTICS, first)
            return max(rows * own, read - first) + ahead + NORM_END + self.latency
        stream = self._stream(max(rows * own, read, written), np.concatenate(words[False]))
        if isinstance(command, Forecast) and not command.hold:
            stream = max(stream, 1 << DISTANCE_BITS) + FORECAST_RATIOS
        # The last row is written when it has been read.
        return stream + FORECAST + 2 * self.latency

    # -- array -----------------------------------------------------------------------------------

    def _engine_cycles(self, command: Project | Mlp | Attend, work: CommandWork) -> float:
        rows, shared = len(work.tokens), None
        if isinstance(command, Project):
            operation = Operation(command.width, function=Function.PROJECT)
        elif isinstance(command, Mlp):
            operation = Operation(
                command.width,
                command.out_width,
                Function.GELU,
                generate=command.mode == MaskMode.GENERATE,
            )
        else:
            generate = command.mode == MaskMode.GENERATE
            shares = command.epilogue in (AttendEpilogue.KEEP, AttendEpilogue.MASKED)
            direct = (
                command.first and command.last and command.epilogue == AttendEpilogue.PLAIN
            ) and not command.mark
            operation = Operation(
                command.width,
                generate=generate,
                raw=not direct,
                mark=bool(command.mark),
                fill=bool(command.fill),
            )
            if generate and work.made is not None and (shares or command.mark):
                shared = self.hash_.to_bank_order(work.made)
        if work.used is not None or shared is not None:
            return self._of_masks(rows, command.columns, operation, work.used, shared)
        # Dense commands of one shape take the same, and there are thousands.
        key = rows, command.columns, operation
        if key not in self._dense:
            self._dense[key] = self._of_masks(*key, None, None)
        return self._dense[key]

    def _of_masks(
        self,
        rows: int,
        columns: int,
        operation: Operation,
        used: NDArray[np.bool_] | None,
        shared: NDArray[np.bool_] | None,
    ) -> float:
        in_banks = self.hash_.to_bank_order(np.ones((1, columns), bool) if used is None else used)
        in_banks = np.broadcast_to(in_banks, (rows, *in_banks.shape[1:]))
        return self.engine.cycles_of_masks(in_banks, operation, shared=shared)

    def _array_overhead(self, command: Project | Mlp | Attend) -> int:
        """From the engine's end to the last word on its way, and the cycles ahead of it."""
        if isinstance(command, Project):
            return PROJECT_GATED if command.epilogue == ProjectEpilogue.GATE else PROJECT
        if isinstance(command, Mlp):
            return MLP_SUMS if command.first and not command.last else MLP_REST
        direct = command.first and command.last and command.epilogue == AttendEpilogue.PLAIN
        return ATTEND if direct and not command.mark else ATTEND_SUMS

    # -- select ----------------------------------------------------------------------------------

    def _select(self, command: Select, words: dict[bool, list[NDArray[np.int64]]]) -> float:
        pieces = command.grid_rows * command.patch * command.grid_columns
        beats = pieces * -(-command.patch * command.channels // self.config.selector.pixels)
        latents = 2 + (command.mode == Change.SECOND_DIFFERENCE)
        read = int(sum(w.sum() for w in words[False]))
        cycles = self._stream(max(beats, read), np.ones(pieces * latents, np.int64))
        if command.update:
            cycles += self._stream(read // latents, np.ones(pieces, np.int64)) + COPY + self.latency
        return cycles + SELECT + self.latency
