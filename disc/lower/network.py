"""What surrounds the blocks: branch sums of computed and reused tokens, and the final layer."""

from __future__ import annotations

from dataclasses import dataclass

from disc.lower.buffers import SharedBuffers, list_bytes
from disc.lower.emit import Emitter
from disc.lower.layout import Layout
from disc.lower.projection import Layer, lower_projection
from disc.lower.shape import BlockShape, RowList
from disc.lower.tiles import split
from disc.program import Forecast, ProjectEpilogue, Record, sizes
from disc.program.program import Buffer, BufferKind
from disc.tables import DISTANCE_BITS


@dataclass(frozen=True)
class NetworkBuffers:
    """What a network has besides its blocks."""

    embedding: Buffer
    """[N, D] int16."""
    last: Buffer
    """[N, D] int16, branch sums when a token was last computed."""
    before: Buffer
    """[N, D] int16, the time before."""
    ages: Buffer
    """Step, then [N] steps of last and before."""
    ratios: Buffer
    reused: Buffer
    """List of the tokens that are not computed."""
    all_tokens: Buffer
    """List of all."""
    final: Buffer
    """[outputs, D] int8."""
    final_constants: Buffer
    final_modulation: Buffer
    out: Buffer
    """[N, outputs] int16."""

    @staticmethod
    def add(layout: Layout, shape: BlockShape, outputs: int) -> NetworkBuffers:
        """Append them to a layout."""
        n, d = shape.tokens, shape.width
        constant, state, given = BufferKind.CONSTANT, BufferKind.STATE, BufferKind.INPUT
        rows, modulation = n * d * 2, sizes.HEADER_BYTES + 2 * d * sizes.VECTOR_BYTES
        ages = sizes.HEADER_BYTES + n * sizes.AGE_BYTES
        constants = outputs * sizes.CONSTANT_BYTES
        add = layout.add
        return NetworkBuffers(
            embedding=add("embedding", rows, given, "residual stream"),
            last=add("last", rows, state, "branch sums"),
            before=add("before", rows, state, "branch sums"),
            ages=add("ages", ages, state, "branch sums"),
            ratios=add("ratios", sizes.RATIO_BYTES << DISTANCE_BITS, constant, "constants"),
            reused=add("reused", list_bytes(n), given, "lists"),
            all_tokens=add("all_tokens", list_bytes(n), given, "lists"),
            final=add("final", outputs * d, constant, "weights"),
            final_constants=add("final_constants", constants, constant, "constants"),
            final_modulation=add("final_modulation", modulation, given, "vectors"),
            out=add("out", n * outputs * 2, BufferKind.OUTPUT, "activations"),
        )


@dataclass(frozen=True)
class Final:
    """Sizes of the final layer."""

    tokens: int
    width: int
    outputs: int
    epsilon: int


def lower_branches(
    emitter: Emitter,
    shape: BlockShape,
    shared: SharedBuffers,
    buffers: NetworkBuffers,
    computed: int,
    reused: int,
    hold: bool,
) -> None:
    """Emit what keeps the branch sums of computed tokens and forecasts the reused ones."""
    fields = {
        "x": shared.x.address,
        "embedding": buffers.embedding.address,
        "last": buffers.last.address,
        "before": buffers.before.address,
        "ages": buffers.ages.address,
        "stride": shape.width * sizes.RESIDUAL_BYTES,
        "width": shape.width,
    }
    most = emitter.config.memory.query_rows
    rows = RowList(shared.rows.address, computed, shape.tokens)
    for tile in split(computed, most):
        buffer = emitter.list_buffer(rows, tile)
        emitter.emit(Record(list=buffer, rows=tile.count, **fields))
    rows = RowList(buffers.reused.address, reused, shape.tokens)
    for tile in split(reused, most) if reused else []:
        buffer = emitter.list_buffer(rows, tile)
        ratios = buffers.ratios.address
        emitter.emit(
            Forecast(list=buffer, rows=tile.count, ratios=ratios, hold=int(hold), **fields)
        )


def lower_final(
    emitter: Emitter, final: Final, shared: SharedBuffers, buffers: NetworkBuffers
) -> None:
    """Emit the final layer, for all tokens."""
    fill = emitter.rows_normalised(shared.x, final.width, buffers.final_modulation, final.epsilon)
    layer = Layer(
        buffers.final,
        0,
        buffers.final_constants,
        final.outputs,
        ProjectEpilogue.WIDE,
        buffers.out.address,
        2 * final.outputs,
    )
    rows = RowList(buffers.all_tokens.address, final.tokens, final.tokens)
    row_bytes = final.width * sizes.RESIDUAL_BYTES
    lower_projection(emitter, rows, fill, row_bytes, final.width, [layer])
