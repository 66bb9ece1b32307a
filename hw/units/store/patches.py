"""Where in an image the patches of listed tokens lie."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.fields import TOKEN_BITS
from hw.units.store.selector import MAX_CHANNELS, MAX_PATCH

__all__ = ["PIECE_BITS", "PatchPieces", "image_bits", "line_bits"]

_LARGEST_PIECE = MAX_PATCH * MAX_CHANNELS * sizes.LATENT_BYTES

PIECE_BITS = _LARGEST_PIECE.bit_length()
"""Bits of the bytes of a patch's pixel row, its piece."""


def line_bits(config: CoreConfig) -> int:
    """Bits of the bytes of an image's pixel row."""
    return (_LARGEST_PIECE * config.selector.max_width).bit_length()


def image_bits(config: CoreConfig) -> int:
    """Bits of the bytes of an image."""
    return (_LARGEST_PIECE * MAX_PATCH * config.selector.max_width**2).bit_length()


class PatchPieces(wiring.Component):
    """Byte offsets of the pieces of ascending tokens' patches: `patch` each.

    A walk over the tokens in raster order, so that no division is needed.

    Throughput: a cycle for every token that is not listed, a cycle for every piece.  A piece is
    offered in the cycle after its token was found.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Go to token 0.
    columns, patch : In
        Patches in a row, and their edge.
    piece, line, row : In
        Bytes of a piece, of a pixel row of the image, and of `patch` such rows.  All these hold
        while tokens come.
    tokens : In, stream of tokens
    offsets : Out, stream of byte offsets
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        width = range(config.selector.max_width + 1)
        super().__init__(
            {
                "begin": In(1),
                "columns": In(width),
                "patch": In(range(MAX_PATCH + 1)),
                "piece": In(PIECE_BITS),
                "line": In(line_bits(config)),
                "row": In(image_bits(config)),
                "tokens": In(stream.Signature(TOKEN_BITS)),
                "offsets": Out(stream.Signature(image_bits(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index, column = Signal(TOKEN_BITS), Signal(self.columns.shape())
        start, place = (Signal(image_bits(self.config), name=n) for n in ("start", "place"))
        piece, down = Signal(self.patch.shape()), Signal(image_bits(self.config))
        found, last, end, free, step = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(~self.offsets.valid | self.offsets.ready),
            found.eq(self.tokens.payload == index),
            last.eq(piece + 1 == self.patch),
            end.eq(column + 1 == self.columns),
            self.tokens.ready.eq(found & last & free),
            step.eq(self.tokens.valid & (~found | (last & free))),
        ]
        with m.If(free):
            m.d.sync += [
                self.offsets.valid.eq(self.tokens.valid & found),
                self.offsets.payload.eq(place + down),
            ]
            with m.If(self.tokens.valid & found):
                m.d.sync += [
                    piece.eq(Mux(last, 0, piece + 1)),
                    down.eq(Mux(last, 0, down + self.line)),
                ]
        with m.If(step):
            m.d.sync += [
                index.eq(index + 1),
                column.eq(Mux(end, 0, column + 1)),
                place.eq(Mux(end, start + self.row, place + self.piece)),
                start.eq(Mux(end, start + self.row, start)),
            ]
        with m.If(self.begin):
            m.d.sync += [signal.eq(0) for signal in (index, column, start, place)]
        return m
