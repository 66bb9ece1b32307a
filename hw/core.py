"""One DiSC core: token selector, row list and attention engine."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from disc.config import CoreConfig
from hw.command import FuseLayout
from hw.engine import AttentionEngine, EngineCounters
from hw.row_list import RowList, RowWindow
from hw.selector import TokenSelector

__all__ = ["TOP", "Core", "CoreCommand"]

TOP = "disc_core"
"""Name of the top module, in every release."""


class CoreCommand(data.StructLayout):
    """A fused operation over a window of the row list."""

    def __init__(self, config: CoreConfig):
        super().__init__({"fuse": FuseLayout(config), "rows": RowWindow(config)})


class Core(wiring.Component):
    """Selects tokens, then computes attention heads for the tokens selected.

    1. `select` and `pixels` feed the token selector.  Both index lists and their counts leave on
       `selected`, `reused` and `summary`; the selected list is also kept inside.
    2. `command` starts the attention engine on a window of that list, once per head and window.
       Keys and values of *all* tokens come in through `operands` (those of reused tokens are
       cached), queries and masks of the window's tokens through `queries` and `masks`: row n of
       the window in slot n.
    3. Results leave on `o`, generated masks on `masks_out`, tagged with slot and token.

    A command must not be issued before the summary of its list has been taken.  An image has at
    most `memory.columns` tokens here.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    As of `TokenSelector` (`select` is its `commands`) and of `AttentionEngine`, except
    `command`, a stream of `CoreCommand`.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._selector = TokenSelector(config)
        self._engine = AttentionEngine(config)
        selector = dict(self._selector.signature.members)
        engine = dict(self._engine.signature.members)
        super().__init__(
            {
                "select": selector["commands"],
                **{name: selector[name] for name in ("pixels", "selected", "reused", "summary")},
                "command": In(stream.Signature(CoreCommand(config))),
                **{
                    name: engine[name]
                    for name in ("matrix", "operands", "queries", "masks", "o", "masks_out")
                },
                "busy": Out(1),
                "counters": Out(EngineCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        selector, engine = self._selector, self._engine
        m.submodules.selector, m.submodules.engine = selector, engine
        m.submodules.row_list = row_list = RowList(self.config)

        connect(m, flipped(self.select), selector.commands)
        connect(m, flipped(self.pixels), selector.pixels)
        for name in ("selected", "reused", "summary"):
            connect(m, getattr(selector, name), flipped(getattr(self, name)))
        for name in ("operands", "queries", "masks"):
            connect(m, flipped(getattr(self, name)), getattr(engine, name))
        for name in ("o", "masks_out"):
            connect(m, getattr(engine, name), flipped(getattr(self, name)))
        connect(m, row_list.rows, engine.rows)

        # The list listens to what leaves the selector, so it can never hold it up.
        m.d.comb += [
            row_list.clear.eq(selector.commands.valid & selector.commands.ready),
            row_list.token.eq(selector.selected.payload),
            row_list.token_valid.eq(selector.selected.valid & selector.selected.ready),
            engine.matrix.eq(self.matrix),
            self.busy.eq(engine.busy),
            self.counters.eq(engine.counters),
        ]

        # A command goes to the engine and to the list in the same cycle.
        both = engine.command.ready & row_list.window.ready
        m.d.comb += [
            self.command.ready.eq(both),
            engine.command.payload.eq(self.command.payload.fuse),
            engine.command.valid.eq(self.command.valid & both),
            row_list.window.payload.eq(self.command.payload.rows),
            row_list.window.valid.eq(self.command.valid & both),
        ]
        return m
