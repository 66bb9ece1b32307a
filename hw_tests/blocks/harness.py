# amaranth: UnusedElaboratable=no
"""All blocks of a configuration side by side, so that one build serves all benches."""

from __future__ import annotations

from functools import cache
from typing import Any

from amaranth.hdl import Module, Shape, ShapeLike, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.verilog import to_verilog
from hw.adder_tree import adder_tree
from hw.array.column_constants import ColumnConstants
from hw.array.distributor import BankDistributor
from hw.array.dpu_array import DpuArray
from hw.hash import BankHash
from hw.masks.controller import MaskController
from hw.masks.generator import MaskGenerator, total_bits
from hw.softmax.normaliser import Normaliser
from hw.softmax.numerator import NumeratorUnit
from hw.softmax.reciprocal import Reciprocal
from hw.softmax.score import ScoreUnit
from hw_tests import sim

__all__ = ["TREE_SHAPES", "TREE_TERMS", "SideBySide", "Trees", "blocks", "port_shapes", "simulator"]

TREE_TERMS = range(2, 18)
TREE_SHAPES = {"signed": signed(5), "unsigned": unsigned(5)}
WIDEST_TOTAL = 24
"""Bits of a row's total in the largest configuration."""


class Trees(wiring.Component):
    """`adder_tree` for each number of terms: ports `terms_<n>` and `total_<n>`."""

    def __init__(self, shape: Shape):
        members = {}
        for terms in TREE_TERMS:
            total = Shape(shape.width + (terms - 1).bit_length(), shape.signed)
            members[f"terms_{terms}"] = In(data.ArrayLayout(shape, terms))
            members[f"total_{terms}"] = Out(total)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        for terms in TREE_TERMS:
            total = adder_tree(m, list(getattr(self, f"terms_{terms}")), name=f"tree_{terms}")
            m.d.comb += getattr(self, f"total_{terms}").eq(total)
        return m


class SideBySide(wiring.Component):
    """Components that share a clock; ports of `name` are called `name__port`."""

    def __init__(self, parts: dict[str, wiring.Component]):
        self.parts = parts
        super().__init__({name: Out(part.signature) for name, part in parts.items()})

    def elaborate(self, platform):
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
            wiring.connect(m, wiring.flipped(getattr(self, name)), part)
        return m


def blocks(config: CoreConfig) -> dict[str, wiring.Component]:
    """Return one of each block.

    Trees, which depend on no configuration, only with `tiny`; no array with `flat`, where it takes
    as long to build as everything else and has no size that is degenerate.
    """
    parts: dict[str, wiring.Component] = {
        "hash": BankHash(config),
        "distributor": BankDistributor(config),
        "constants": ColumnConstants(config),
        "controller": MaskController(config),
        "generator": MaskGenerator(config),
        "score": ScoreUnit(config),
        "numerator": NumeratorUnit(config),
        "reciprocal": Reciprocal(total_bits(config)),
        "normaliser": Normaliser(config),
    }
    if config.name != "flat":
        parts["array"] = DpuArray(config)
    if config.name == "tiny":
        parts["wide_reciprocal"] = Reciprocal(WIDEST_TOTAL)
        parts["one_bit_reciprocal"] = Reciprocal(1)
        for name, shape in TREE_SHAPES.items():
            parts[f"{name}_trees"] = Trees(shape)
    return parts


@cache
def port_shapes(config: CoreConfig) -> dict[str, ShapeLike]:
    """Return the shape of every port of the simulator, by name."""
    flat: Any = ()
    for name, part in blocks(config).items():
        ports = part.signature.flatten(part)
        flat = (*flat, *(((name, *path), member.shape) for path, member, _ in ports))
    return {"__".join(map(str, path)): shape for path, shape in flat}


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator of all blocks, built if it is not yet."""
    top = f"blocks_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(SideBySide(blocks(config)), top=top, header=header), top)
