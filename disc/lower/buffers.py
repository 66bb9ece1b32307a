"""DRAM buffers of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from disc.config import CoreConfig
from disc.lower.layout import Layout
from disc.lower.shape import BlockScalars, BlockShape, RowList, StepKind
from disc.lower.tiles import hidden_tiles, key_tiles
from disc.program import sizes
from disc.program.program import Buffer, BufferKind


@dataclass(frozen=True)
class SharedBuffers:
    """What all blocks of a network use in turn."""

    x: Buffer
    """[N, D] int16, residual stream."""
    rows: Buffer
    """List of the tokens to compute."""
    q: Buffer
    """[N, D] int8."""
    attention_out: Buffer
    """[N, D] int8."""
    sums: Buffer
    """[N, D] accumulators of the MLP between hidden tiles, by place in the list."""
    states: Buffer
    """[N] states of a head's rows between key tiles, by place in the list."""
    kept: Buffer
    """[N] states of the kept columns, the same."""

    @staticmethod
    def add(layout: Layout, shape: BlockShape, config: CoreConfig) -> SharedBuffers:
        """Append them to a layout."""
        n, d = shape.tokens, shape.width
        scratch, state = BufferKind.SCRATCH, BufferKind.STATE
        sums = n * d * sizes.accumulator_bytes(config)
        states = n * sizes.state_bytes(config, shape.head_dim)
        return SharedBuffers(
            x=layout.add("x", n * d * sizes.RESIDUAL_BYTES, state, "residual stream"),
            rows=layout.add("rows", list_bytes(n), BufferKind.INPUT, "lists"),
            q=layout.add("q", n * d, scratch, "activations"),
            attention_out=layout.add("attention_out", n * d, scratch, "activations"),
            sums=layout.add("sums", sums, scratch, "partial sums"),
            states=layout.add("states", states, scratch, "partial sums"),
            kept=layout.add("kept", states, scratch, "partial sums"),
        )


def list_bytes(tokens: int) -> int:
    """Bytes of a list that may name all tokens."""
    return sizes.LIST_HEADER_BYTES + tokens * sizes.ENTRY_BYTES


@dataclass(frozen=True)
class BlockBuffers:
    """What belongs to one block.  Weights are int8 [out, in], down's transposed."""

    qkv: Buffer
    """[3 D, D]"""
    qkv_constants: Buffer
    proj: Buffer
    """[D, D]"""
    proj_constants: Buffer
    up: Buffer
    """[hidden, D]"""
    up_constants: Buffer
    gelu: Buffer
    down: Buffer
    """[hidden, D]: row j is what hidden unit j adds."""
    down_bias: Buffer
    """[D] accumulators."""
    attention: Buffer
    """Modulation ahead of attention."""
    attention_gate: Buffer
    mlp: Buffer
    mlp_gate: Buffer
    kv: Buffer
    """[N, 2 D] int8, keys of all heads, then values; rows of reused tokens stay."""
    masks: Buffer
    """[heads, key tiles, N] rows of `pack_masks`; all tiles take as much as the first."""
    residual: Buffer
    """[N, D], what the masks dropped."""
    hot: Buffer
    """[hidden tiles] rows of `pack_masks`."""

    @staticmethod
    def add(layout: Layout, shape: BlockShape, config: CoreConfig, prefix: str) -> BlockBuffers:
        """Append them to a layout; `prefix` goes ahead of all names."""
        n, d, hidden = shape.tokens, shape.width, shape.hidden
        constant, state, given = BufferKind.CONSTANT, BufferKind.STATE, BufferKind.INPUT

        def add(name: str, size: int, kind: BufferKind, group: str) -> Buffer:
            return layout.add(prefix + name, size, kind, group)

        gate = sizes.HEADER_BYTES + d * sizes.VECTOR_BYTES
        modulation = sizes.HEADER_BYTES + 2 * d * sizes.VECTOR_BYTES
        keys, tiles = key_tiles(config, n, shape.head_dim), hidden_tiles(config, d, hidden)
        return BlockBuffers(
            qkv=add("qkv", 3 * d * d, constant, "weights"),
            qkv_constants=add("qkv_constants", 3 * d * sizes.CONSTANT_BYTES, constant, "constants"),
            proj=add("proj", d * d, constant, "weights"),
            proj_constants=add("proj_constants", d * sizes.CONSTANT_BYTES, constant, "constants"),
            up=add("up", hidden * d, constant, "weights"),
            up_constants=add("up_constants", hidden * sizes.CONSTANT_BYTES, constant, "constants"),
            gelu=add("gelu", sizes.table_bytes(config), constant, "constants"),
            down=add("down", hidden * d, constant, "weights"),
            down_bias=add("down_bias", d * sizes.accumulator_bytes(config), constant, "constants"),
            attention=add("attention", modulation, given, "vectors"),
            attention_gate=add("attention_gate", gate, given, "vectors"),
            mlp=add("mlp", modulation, given, "vectors"),
            mlp_gate=add("mlp_gate", gate, given, "vectors"),
            kv=add("kv", 2 * n * d, state, "caches"),
            masks=add(
                "masks",
                shape.heads * len(keys) * n * sizes.mask_row_bytes(keys[0].count, config),
                state,
                "masks",
            ),
            residual=add("residual", n * d * sizes.sharing_bytes(config), state, "shared residual"),
            hot=add(
                "hot", len(tiles) * sizes.mask_row_bytes(tiles[0].count, config), state, "masks"
            ),
        )


@dataclass(frozen=True)
class Block:
    """A block and where its data is."""

    shape: BlockShape
    scalars: BlockScalars
    shared: SharedBuffers
    buffers: BlockBuffers

    def rows(self, kind: StepKind) -> RowList:
        """The tokens to compute."""
        return RowList(self.shared.rows.address, kind.rows, self.shape.tokens)
