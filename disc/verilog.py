"""Amaranth to Verilog: one text for simulation, synthesis and release."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from amaranth.back import verilog
from amaranth.lib import wiring

from hw.sram import Sram

__all__ = ["PROJECT", "to_verilog"]

PROJECT = "DiSC in the open"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Yosys writes the constant bits of a signal whose other bits come from a process like this.  No
# simulator need ever execute it, since nothing in it changes, and Verilator may not.
_CONSTANT = re.compile(r"^  always @\*\n    (\S+ = \d+'h[0-9a-f]+;)$", re.MULTILINE)

# What a register or a memory holds before anybody writes it.
_REGISTER = re.compile(
    r"^(  reg (?:signed )?(?:\[\d+:\d+\] )?\S+) ? = -?\d+'s?[hd][0-9a-f]+;$", re.MULTILINE
)
_MEMORY = re.compile(
    r"^  initial begin\n(?:    \S+ ?\[\d+\] = \d+'[hd]0+;\n)+  end\n", re.MULTILINE
)


def to_verilog(component: wiring.Component, *, top: str, header: Mapping[str, str]) -> str:
    """Return the component as Verilog.

    The text depends on the component, `top` and `header` alone: no source locations, no paths, no
    dates, and it is the same in every process.  Ports are the flattened signature: the member `i`
    with `stream.Signature(shape)` becomes `i__payload`, `i__valid`, `i__ready`; a payload is one
    packed port with the first field at bit 0.  The clock is `clk`, the reset `rst`, synchronous and
    active high.  Submodules are called `<top>.<name>`.  Registers are undefined until reset,
    memories until they are written; tables, which nothing writes, hold what they hold.

    Parameters
    ----------
    component : wiring.Component
    top : str
        Name of the top module.
    header : mapping
        Comment lines `name: value`, for example of the configuration's name and digest.

    Raises
    ------
    TypeError
        `component` is not a `wiring.Component`.
    ValueError
        `top` is not a Verilog identifier, or a header line would break the comment.
    """
    if not isinstance(component, wiring.Component):
        raise TypeError(f"component: must be a wiring.Component, got {component!r}")
    if not _IDENTIFIER.fullmatch(top):
        raise ValueError(f"top: must be a Verilog identifier, got {top!r}")
    lines = [PROJECT, f"top: {top}", *(f"{name}: {value}" for name, value in header.items())]
    for line in lines:
        if not line.isprintable():
            raise ValueError(f"header: must be single printable lines, got {line!r}")
    # The bundled Yosys, not one that happens to be installed: others print other text.
    before = os.environ.get("AMARANTH_USE_YOSYS")
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    try:
        with _no_collection():
            text = verilog.convert(component, name=top, emit_src=False, strip_internal_attrs=True)
    finally:
        if before is None:
            del os.environ["AMARANTH_USE_YOSYS"]
        else:
            os.environ["AMARANTH_USE_YOSYS"] = before
    text = "".join(f"// {line}\n" for line in lines) + _executed(_uninitialised(text))
    if f"  {Sram.MODULE} " in text:
        text += "\n" + Sram.VERILOG.read_text(encoding="utf-8")
    return text


@contextmanager
def _no_collection() -> Iterator[None]:
    """Suspend the search for reference cycles: among millions of nets it takes half the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _uninitialised(text: str) -> str:
    """Leave registers undefined until reset, and memories until written; tables stay.

    No silicon starts with values, an initialised memory is no SRAM macro, and a simulation that
    starts with zeros hides what relies on them.
    """
    return _REGISTER.sub(r"\1 ;", _MEMORY.sub("", text))


def _executed(text: str) -> str:
    """Make constant assignments of processes depend on something that is set at time 0."""
    numbers = count()

    def with_trigger(match: re.Match[str]) -> str:
        name = f"constant_trigger_{next(numbers)}"
        return (
            f"  reg {name} = 0;\n"
            "  always @* begin\n"
            f"    if ({name}) begin end\n"
            f"    {match[1]}\n"
            "  end"
        )

    return _CONSTANT.sub(with_trigger, text)
