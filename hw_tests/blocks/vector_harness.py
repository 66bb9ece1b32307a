# amaranth: UnusedElaboratable=no
"""All blocks of the vector unit side by side, and cases for them as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from amaranth.hdl import Shape, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from disc.config import CoreConfig
from disc.verilog import to_verilog
from hw.vector.aligner import Aligner
from hw.vector.forecast import Forecast, Record
from hw.vector.gate import GateResidual
from hw.vector.layernorm import LayerNorm
from hw.vector.lookup import ActivationTable
from hw.vector.merge import TileMerger
from hw.vector.requantise import WIDE_BITS, ColumnRequantiser
from hw.vector.rsqrt import Rsqrt
from hw.vector.sharing import SharingEpilogue
from hw_tests import sim
from hw_tests.blocks.harness import SideBySide
from hw_tests.blocks.vectors import from_bytes, to_bytes

__all__ = [
    "Case",
    "Got",
    "blocks",
    "run",
    "simulator",
    "stalled",
    "to_rows",
    "to_words",
    "vectors",
]

STALLS = (
    ("bernoulli", "bernoulli"),
    ("never", "mostly_stalled"),
    ("mostly_stalled", "never"),
    ("bursts", "bursts"),
)
"""Pauses at inputs and outputs of the cases with back-pressure."""

WIDEST_V = 64
"""Bits of the widest row variance in any configuration."""


def blocks(config: CoreConfig) -> dict[str, wiring.Component]:
    """Return one of each block."""
    parts: dict[str, wiring.Component] = {
        "layernorm": LayerNorm(config),
        "gate": GateResidual(config),
        "requantise": ColumnRequantiser(config),
        "aligner": Aligner(signed(WIDE_BITS), config.array.banks, config.array.lanes),
        "lookup": ActivationTable(config),
        "sharing": SharingEpilogue(config),
        "forecast": Forecast(config),
        "record": Record(config),
        "merge": TileMerger(config),
    }
    if config.name == "tiny":
        parts["rsqrt"] = Rsqrt(WIDEST_V)
        parts["small_rsqrt"] = Rsqrt(3)
    return parts


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator of all blocks, built if it is not yet."""
    top = f"vector_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(SideBySide(blocks(config)), top=top, header=header), top)


@dataclass
class Case:
    """One command: ports that are set, and what goes into and comes out of every stream.

    Values are arrays whose first dimension is words, or mappings by field of such arrays.
    """

    set: dict[str, int]
    inputs: dict[str, Any]
    expected: dict[str, Any]
    late: tuple[str, ...] = ()
    """Inputs that begin behind those that are named before them."""
    pulse: tuple[str, ...] = ()
    """Ports that are high for a cycle, before anything comes."""
    load: dict[str, Any] = field(default_factory=dict)
    """Constants, loaded before the rest begins."""
    pauses: tuple[str, str] = ("never", "never")
    """At inputs and outputs."""
    what: str = ""
    """For messages."""


@dataclass
class Got:
    """Cycles of all transfers of a case, by stream."""

    cycles: dict[str, np.ndarray]


def run(config: CoreConfig, block: str, cases: list[Case], *, seed: int) -> list[Got]:
    """Stream cases through a block and assert that exactly what is expected comes out."""
    sources, sinks = _streams(config, block)
    shapes = {**sources, **sinks}
    given: dict[str, Any] = {
        "block": block,
        "sources": np.array(list(sources)),
        "sinks": np.array(list(sinks)),
        "widths": np.array([Shape.cast(shape).width for shape in shapes.values()]),
        "cases": len(cases),
    }
    expected: list[dict[str, np.ndarray]] = []
    for n, case in enumerate(cases):
        given |= {f"{n}.pause_in": case.pauses[0], f"{n}.pause_out": case.pauses[1]}
        given |= {f"{n}.set.{port}": value for port, value in case.set.items()}
        given |= {f"{n}.pulse": np.array(case.pulse, dtype=np.str_)}
        given |= {f"{n}.late": np.array(case.late, dtype=np.str_)}
        for kind, words in (("load", case.load), ("in", case.inputs)):
            given |= {f"{n}.{kind}.{k}": to_bytes(sources[k], v) for k, v in words.items()}
        empty = {name: np.empty((0, 0), np.uint8) for name in sinks}
        packed = {k: to_bytes(sinks[k], v) for k, v in case.expected.items()}
        expected.append({**empty, **packed})
        given |= {f"{n}.count.{name}": len(words) for name, words in expected[n].items()}
    result = sim.run(
        simulator(config), "hw_tests.blocks.vector_bench", seed=seed, inputs=given
    ).outputs
    for n, case in enumerate(cases):
        for name, words in expected[n].items():
            got, where = result[f"{n}.out.{name}"], f"{config.name} {block}.{name}, case {n}"
            where += f" ({case.what or case.set}, pauses {case.pauses}, seed {seed})"
            assert len(got) == len(words), f"{where}: {len(words)} words wanted, got {len(got)}"
            wrong = np.flatnonzero((got != words).any(axis=1)) if len(words) else []
            assert not len(wrong), (
                f"{where}: {len(wrong)} of {len(words)} words differ, first {wrong[0]}: expected "
                f"{from_bytes(sinks[name], words[wrong[:1]])}, "
                f"got {from_bytes(sinks[name], got[wrong[:1]])}"
            )
    return [Got({name: result[f"{n}.cycles.{name}"] for name in shapes}) for n in range(len(cases))]


def stalled(make: Callable[[], list[Case]]) -> list[Case]:
    """Return cases under each kind of back-pressure, fresh ones every time."""
    return [replace(case, pauses=pauses) for pauses in STALLS for case in make()]


def vectors(
    config: CoreConfig, block: str, inputs: dict[str, Any], outputs: list[str], *, seed: int
) -> dict[str, np.ndarray]:
    """Drive a block without handshake, as `hw_tests.blocks.vectors.drive` does."""
    members = blocks(config)[block].signature.members
    given = {f"in.{port}": to_bytes(members[port].shape, v) for port, v in inputs.items()}
    given |= {"block": block, "outputs": np.array(outputs)}
    result = sim.run(simulator(config), "hw_tests.blocks.vectors_bench", seed=seed, inputs=given)
    return {port: from_bytes(members[port].shape, result.outputs[port]) for port in outputs}


@cache
def _streams(config: CoreConfig, block: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Payload shapes of the streams that go in and that come out."""
    sources, sinks = {}, {}
    for name, member in blocks(config)[block].signature.members.items():
        if member.is_signature and isinstance(member.signature, stream.Signature):
            side = sources if member.flow is In else sinks
            side[name] = member.signature.members["payload"].shape
    return sources, sinks


def to_words(rows: np.ndarray, lanes: int, rng: np.random.Generator | None = None) -> np.ndarray:
    """Cut rows [R, D] into words [R * ceil(D / lanes), lanes].

    Padding is 0, or with `rng` something that occurs in the rows.
    """
    count, channels = rows.shape
    full = -(-channels // lanes) * lanes
    words = np.zeros((count, full), np.int64)
    if rng is not None and rows.size:
        words[:] = rng.choice(rows.ravel(), words.shape)
    words[:, :channels] = rows
    return words.reshape(-1, lanes)


def to_rows(rows: np.ndarray, lanes: int) -> dict[str, np.ndarray]:
    """Return the `RowWord`s of rows [R, D]."""
    words = to_words(rows, lanes)
    last = np.zeros((len(rows), len(words) // max(1, len(rows))), np.int64)
    last[:, -1:] = 1
    return {"data": words, "last": last.ravel()}
