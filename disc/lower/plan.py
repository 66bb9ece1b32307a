"""A block, or a network, with its place in DRAM."""

from __future__ import annotations

from dataclasses import dataclass

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.block import lower_block
from disc.lower.buffers import Block, BlockBuffers, SharedBuffers
from disc.lower.emit import Emitter
from disc.lower.layout import Layout
from disc.lower.memory import BlockMemory
from disc.lower.network import Final, NetworkBuffers, lower_branches, lower_final
from disc.lower.shape import BlockScalars, BlockShape, StepKind
from disc.program import Program
from disc.program.build import Builder


def default_hash(config: CoreConfig) -> BankHash:
    """Modulo."""
    return BankHash.modulo(config.array.banks, config.local_bits)


class BlockPlan(BlockMemory):
    """Layout and programs of one block.

    Parameters
    ----------
    config, shape
        Sizes.
    hash_
        Of columns to banks; modulo if left out.
    """

    def __init__(
        self, config: CoreConfig, shape: BlockShape, *, hash_: BankHash | None = None
    ) -> None:
        self.layout = Layout()
        shared = SharedBuffers.add(self.layout, shape, config)
        buffers = BlockBuffers.add(self.layout, shape, config, "block.")
        super().__init__(config, shape, hash_ or default_hash(config), shared, buffers)

    def program(self, scalars: BlockScalars, kind: StepKind, *, tokens: bool = True) -> Program:
        """Return the program of a step; without tokens it is for counting only."""
        builder = Builder(self.config, self.layout.buffers, hash_rows=self.hash.rows, tokens=tokens)
        block = Block(self.shape, scalars, self.shared, self.buffers)
        lower_block(Emitter(builder), block, kind)
        return builder.program()


@dataclass(frozen=True)
class NetworkScalars:
    """Numbers of a network that are fields of commands."""

    blocks: tuple[BlockScalars, ...]
    final_epsilon: int
    hold: bool
    """Reused tokens keep their last branch sums; else these are extrapolated."""


class NetworkPlan:
    """Layout and programs of all blocks, the branch sums and the final layer.

    The host writes embeddings (twice, also as the residual stream), lists of computed, reused and
    all tokens, the step's number and the vectors of conditioning, and reads what the final layer
    gives.

    Parameters
    ----------
    config, shape
        Sizes; the blocks are equal.
    depth
        Blocks.
    outputs
        Values that the final layer gives a token.
    hash_
        Of columns to banks; modulo if left out.
    """

    def __init__(
        self,
        config: CoreConfig,
        shape: BlockShape,
        depth: int,
        outputs: int,
        *,
        hash_: BankHash | None = None,
    ) -> None:
        if depth < 1 or outputs < 1:
            raise ValueError(f"depth, outputs: must be at least 1, got {depth} and {outputs}")
        self.config, self.shape, self.outputs = config, shape, outputs
        self.hash = hash_ or default_hash(config)
        self.layout = Layout()
        self.shared = SharedBuffers.add(self.layout, shape, config)
        self.buffers = NetworkBuffers.add(self.layout, shape, outputs)
        self.blocks = [
            BlockMemory(
                config,
                shape,
                self.hash,
                self.shared,
                BlockBuffers.add(self.layout, shape, config, f"block{index}."),
            )
            for index in range(depth)
        ]

    def program(
        self, scalars: NetworkScalars, kind: StepKind, reused: int, *, tokens: bool = True
    ) -> Program:
        """Return the program of a step.

        Parameters
        ----------
        kind
            What blocks do; `rows` is how many tokens may be computed.
        reused
            How many may be reused.
        """
        if len(scalars.blocks) != len(self.blocks):
            raise ValueError(
                f"scalars: has {len(scalars.blocks)} blocks, the network {len(self.blocks)}"
            )
        if not 0 <= reused <= self.shape.tokens:
            raise ValueError(f"reused: must be in [0, {self.shape.tokens}] (N), got {reused}")
        builder = Builder(self.config, self.layout.buffers, hash_rows=self.hash.rows, tokens=tokens)
        emitter = Emitter(builder)
        for memory, own in zip(self.blocks, scalars.blocks, strict=True):
            lower_block(emitter, Block(self.shape, own, self.shared, memory.buffers), kind)
        n = self.shape.tokens
        lower_branches(
            emitter, self.shape, self.shared, self.buffers, kind.rows, reused, scalars.hold
        )
        final = Final(n, self.shape.width, self.outputs, scalars.final_epsilon)
        lower_final(emitter, final, self.shared, self.buffers)
        return builder.program()
