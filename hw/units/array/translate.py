"""Commands of the array queue as the engine executes them."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Attend, AttendEpilogue, Function, MaskMode, Mlp, Project, Queue
from hw.command import FuseLayout
from hw.control.layouts import QueueLayout

__all__ = ["Translator", "words_up"]


def words_up(elements: Value, lanes: int) -> Value:
    """Return `ceil(elements / lanes)`: a product with a constant, no divider.

    With n = elements + lanes - 1 and c = ceil(2**s / lanes), n * c / 2**s exceeds n / lanes by less
    than n / 2**s, which is less than 1 / lanes and so changes no quotient that is rounded down.
    """
    most = (1 << len(elements)) + lanes - 2
    raised = elements + (lanes - 1)
    if lanes & (lanes - 1) == 0:
        return raised >> (lanes.bit_length() - 1)
    shift = most.bit_length() + lanes.bit_length()
    return ((raised * -(-(1 << shift) // lanes)) >> shift)[: (most // lanes).bit_length()]


class Translator(wiring.Component):
    """A command of the array queue to `FuseLayout`; combinational.

    Rows of an operation lie behind each other in the row buffer, `beats` words each.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `QueueLayout`
    fuse : Out, `FuseLayout`
    direct : Out
        Of `attend`: the engine's own normaliser makes the result, `o`.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "command": In(QueueLayout(Queue.ARRAY, config)),
                "fuse": Out(FuseLayout(config)),
                "direct": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, fuse = self.config.array.lanes, self.fuse

        def put(**fields):
            m.d.comb += [fuse[name].eq(value) for name, value in fields.items()]

        with m.Switch(self.command.header.opcode):
            for kind in (Project, Mlp, Attend):
                with m.Case(kind.OPCODE):
                    c = self.command[kind.NAME]
                    beats = Signal(fuse.beats.shape(), name=f"{kind.NAME}_beats")
                    m.d.comb += beats.eq(words_up(c.width, lanes))
                    put(beats=beats, row_stride=beats)
                    names = ["columns", "dot_base", "row_base"]
                    if kind is not Project:
                        names += ["mode", "axpy_base", "threshold"]
                    put(**{name: c[name] for name in names})
        mlp, attend = self.command.mlp, self.command.attend
        with m.Switch(self.command.header.opcode):
            with m.Case(Project.OPCODE):
                put(function=Function.PROJECT, mode=MaskMode.DENSE)
            with m.Case(Mlp.OPCODE):
                put(
                    function=Function.GELU,
                    axpy_beats=words_up(mlp.out_width, lanes),
                    mask_slot=mlp.slot,
                    shared_mask=1,
                    constant_base=mlp.constants,
                    fresh=mlp.fresh & (mlp.mode == MaskMode.GENERATE),
                )
            with m.Case(Attend.OPCODE):
                generate = attend.mode == MaskMode.GENERATE
                plain = attend.epilogue == AttendEpilogue.PLAIN
                share = generate & ~attend.mark & ~plain
                m.d.comb += self.direct.eq(attend.first & attend.last & plain & ~attend.mark)
                put(
                    function=Function.SOFTMAX,
                    mask_slot=attend.slot,
                    diagonal=attend.diagonal,
                    raw=~self.direct & ~share & ~attend.mark,
                    share=share,
                    mark=attend.mark,
                    fill=attend.fill & generate,
                )
                scales = ("score_multiplier", "score_shift", "output_multiplier", "output_shift")
                put(**{name: attend[name] for name in scales})
        return m
