"""Latency of one denoising step of a whole network on a chip, operator by operator.

Attention (scores, softmax and P*V, one engine operation) comes from a cycle model of the engine,
see `EngineCycles`; everything else from formulas on sizes.  An operator takes the longest of
its time on the array, in the vector unit and on DRAM at peak bandwidth, which overlap; operators
follow each other.

Modelled
    Padding of rows to words of L, of columns to B banks and of work to whole cores; the choice of
    sharing a matrix product among cores by rows or by output columns; weights read again for
    every tile of rows, or rows for every tile of weights, that on-chip memory holds; attention in
    key tiles of at most `memory.columns` (or what the banks hold of K and V) and row tiles of
    `memory.query_rows`, with K and V read again for each row tile if a head has several key
    tiles, else for each core that works on the head; merging of key tiles (one vector operation
    an output element); mask bits; forecasts of reused tokens and residual sharing of sparse
    attention.
Not modelled
    DRAM latency, row misses and refresh; contention on chip (cores that need the same weights
    share one read); results kept on chip from one operator to the next; start-up of operators
    other than attention; the token selector and mask making; writing K, V and caches of
    skipped work beyond the operators' own results.  Uneven tiles count as the largest.

GELU and requantisation are one pass over a product's results.  Work is shared out in whole heads
or row tiles, so that with few of them some cores idle.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from disc.config import CoreConfig
from sim_models.banking import expected_fullest
from sim_models.networks import ATTENTION_KINDS, MATMUL_KINDS, Network, Operator, operators

SCHEMA = 1

Bound = Literal["array", "vector", "DRAM"]
Basis = Literal["calibrated", "formula", "formula (extrapolated)"]
Mapping = Literal["rows", "columns", "heads"]

_OPERAND_BYTES = 1  # q, k, v, results
_RESIDUAL_BYTES = 2  # the residual stream is int16


class EngineCycles(Protocol):
    """Cycles of the attention engine of one core."""

    def cycles(self, rows: int, columns: int, head_dim: int, fullest: ArrayLike) -> float:
        """Return the cycles of `rows` query rows over one tile of `columns` key columns.

        `fullest` is the kept columns of the fullest bank, one expected value or one per row.
        """
        ...


class Calibration(Protocol):
    """What the engine's cycle model was fitted to."""

    @property
    def id(self) -> str:
        """Name for reports."""
        ...

    @property
    def config_digest(self) -> str:
        """Digest of the configuration that was measured."""
        ...


@dataclass(frozen=True)
class Step:
    """What kind of denoising step is estimated.

    Parameters
    ----------
    density
        Fraction of key columns that self-attention keeps; cross-attention is dense.
    utilisation
        Measured kept / (B * fullest bank) at this density; `None` expects that of random masks.
    computed_fraction
        Fraction of tokens that are computed; the others are reused (Cached Token Reuse).  Patch
        embedding and final layer always work on all tokens.
    cfg
        Classifier-free guidance: two branches.
    precomputed
        Leave out what depends on the timestep or the prompt alone.
    """

    density: float = 1.0
    utilisation: float | None = None
    computed_fraction: float = 1.0
    cfg: bool = False
    precomputed: bool = False

    def __post_init__(self) -> None:
        for field in ("density", "utilisation", "computed_fraction"):
            value = getattr(self, field)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{field}: must be above 0 and at most 1, got {value}")


@dataclass(frozen=True)
class OperatorEstimate:
    """Cost of one operator, summed over layers and guidance branches."""

    name: str
    kind: str
    mapping: Mapping
    """What the cores share out."""
    cycles: float
    """The longest of the three below."""
    array_cycles: float
    """Of the busiest core; for attention with its softmax."""
    vector_cycles: float
    dram_cycles: float
    time_us: float
    bound: Bound
    macs: int
    """Multiply-accumulates done: of computed tokens and kept columns."""
    bytes: int
    """DRAM traffic."""
    utilisation: float
    """Multiply-accumulates over those the whole chip could do in `cycles`."""
    basis: Basis


@dataclass(frozen=True)
class Report:
    """Estimate of one denoising step."""

    network: Network
    config: CoreConfig
    step: Step
    calibration_id: str | None
    operators: tuple[OperatorEstimate, ...]

    @property
    def cycles(self) -> float:
        """Of the whole step."""
        return sum(op.cycles for op in self.operators)

    @property
    def time_us(self) -> float:
        """Of the whole step."""
        return sum(op.time_us for op in self.operators)

    @property
    def macs(self) -> int:
        """Multiply-accumulates done."""
        return sum(op.macs for op in self.operators)

    @property
    def bytes(self) -> int:
        """DRAM traffic."""
        return sum(op.bytes for op in self.operators)

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates over those the whole chip could do in the same time."""
        return self.macs / (self.cycles * self.config.macs_per_core * self.config.cores)

    def time_us_by(self, field: Literal["bound", "basis", "kind"]) -> dict[str, float]:
        """Sum time over operators that agree in a field."""
        sums: dict[str, float] = {}
        for op in self.operators:
            key = getattr(op, field)
            sums[key] = sums.get(key, 0.0) + op.time_us
        return sums

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        return {
            "schema": SCHEMA,
            "config": {"name": self.config.name, "digest": self.config.digest},
            "calibration_id": self.calibration_id,
            "network": asdict(self.network),
            "step": asdict(self.step),
            "operators": [asdict(op) for op in self.operators],
            "total": {
                "cycles": self.cycles,
                "time_us": self.time_us,
                "macs": self.macs,
                "bytes": self.bytes,
                "utilisation": self.utilisation,
                "time_us_by_bound": self.time_us_by("bound"),
                "time_us_by_basis": self.time_us_by("basis"),
            },
        }


@dataclass(frozen=True)
class _Cost:
    """Of all layers of an operator: cycles of the busiest core, and bytes of the chip."""

    array: float
    vector: float
    bytes: int
    macs: int
    mapping: Mapping
    basis: Basis = "formula"


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def estimate(
    network: Network,
    config: CoreConfig,
    engine: EngineCycles,
    step: Step = Step(),
    *,
    calibration: Calibration | None = None,
) -> Report:
    """Estimate one denoising step.

    Parameters
    ----------
    engine
        Cycle model of one core's attention engine.
    calibration
        What `engine` was fitted to.  Attention counts as calibrated only if it was fitted to
        `config` and a head fits one key tile: merging key tiles was not measured.
    """
    if network.head_dim > config.memory.head_dim:
        raise ValueError(
            f"memory.head_dim: must be at least {network.head_dim} for {network.name}, "
            f"got {config.memory.head_dim}"
        )
    fitted = calibration is not None and calibration.config_digest == config.digest
    results = []
    for op in _operators(network, step):
        if op.kind in MATMUL_KINDS:
            cost = _matmul(op, config)
        elif op.kind in ATTENTION_KINDS:
            cost = _attention(op, config, engine, step, fitted)
        else:
            cost = _vector(op, config)
        results.append(_result(op, cost, config))
    identifier = calibration.id if calibration is not None else None
    return Report(network, config, step, identifier, tuple(results))


def _operators(network: Network, step: Step) -> list[Operator]:
    """What a step executes: fewer rows under reuse, and additions that the method needs."""
    computed = max(1, round(step.computed_fraction * network.tokens))
    listed = []
    for op in operators(network, cfg=step.cfg):
        if step.precomputed and op.precomputable:
            continue
        # The engine does softmax and P*V with the scores; GELU is part of the pass that
        # requantises the results of the product before it.
        if op.kind in ("softmax", "attention-axpy", "gelu"):
            continue
        if op.group in ("self", "cross", "mlp") and not op.precomputable:
            op = _with_rows(op, computed)
        listed.append(op)
        if op.name == "self.dot" and step.density < 1:
            listed.append(
                Operator(
                    "self.sharing",
                    "elementwise",
                    computed,
                    1,
                    network.width,
                    repeats=network.depth,
                    batch=op.batch,
                )
            )
    if computed < network.tokens:
        listed.append(
            Operator(
                "reuse.forecast",
                "elementwise",
                network.tokens - computed,
                1,
                network.width,
                batch=2 if step.cfg else 1,
            )
        )
    return listed


def _with_rows(op: Operator, rows: int) -> Operator:
    return Operator(
        op.name, op.kind, rows, op.k, op.n, op.heads, op.repeats, op.batch, op.depends_on
    )


def _result(op: Operator, cost: _Cost, config: CoreConfig) -> OperatorEstimate:
    dram = cost.bytes / (config.dram.peak_gb_per_s * 1e3) * config.clock_mhz
    times: dict[Bound, float] = {"array": cost.array, "vector": cost.vector, "DRAM": dram}
    bound = max(times, key=lambda name: times[name])
    cycles = times[bound]
    attention = op.kind in ATTENTION_KINDS
    return OperatorEstimate(
        name=f"{op.group}.attention" if attention else op.name,
        kind="attention" if attention else op.kind,
        mapping=cost.mapping,
        cycles=cycles,
        array_cycles=cost.array,
        vector_cycles=cost.vector,
        dram_cycles=dram,
        time_us=cycles / config.clock_mhz,
        bound=bound,
        macs=cost.macs,
        bytes=cost.bytes,
        utilisation=cost.macs / (cycles * config.macs_per_core * config.cores),
        basis=cost.basis,
    )


def _matmul(op: Operator, config: CoreConfig) -> _Cost:
    """Cost of a product, shared by rows or by output columns, whichever ends first."""
    banks, lanes, cores = config.array.banks, config.array.lanes, config.cores
    rows = op.m * op.batch
    beats, groups = _ceil(op.k, lanes), _ceil(op.n, banks)
    weights = op.weight_bytes // op.repeats
    inputs, outputs = rows * op.k * _OPERAND_BYTES, rows * op.n * _OPERAND_BYTES

    core_rows = _ceil(rows, cores)
    rows_held = max(1, config.query_words // beats)
    by_rows = _Cost(
        array=core_rows * groups * beats * op.repeats,
        vector=core_rows * _ceil(op.n, config.vector.lanes) * op.repeats,
        bytes=(weights * _ceil(core_rows, rows_held) + inputs + outputs) * op.repeats,
        macs=op.macs,
        mapping="rows",
    )
    core_groups = _ceil(groups, cores)
    core_columns = min(core_groups * banks, op.n)
    # All cores hold the same rows; if they all fit, tiles of weights pass by.
    weight_tiles = _ceil(core_groups * beats, config.memory.bank_words) if rows > rows_held else 1
    by_columns = _Cost(
        array=rows * core_groups * beats * op.repeats,
        vector=rows * _ceil(core_columns, config.vector.lanes) * op.repeats,
        bytes=(weights + inputs * weight_tiles + outputs) * op.repeats,
        macs=op.macs,
        mapping="columns",
    )
    # Among equally fast ones, that with less traffic and fewer cycles on the array.
    return min(
        (by_rows, by_columns),
        key=lambda cost: (_result(op, cost, config).cycles, cost.bytes, cost.array),
    )


def _vector(op: Operator, config: CoreConfig) -> _Cost:
    """Elementwise work on rows: at least one pass of a row for each core that has one."""
    core_rows = _ceil(op.m * op.batch, config.cores)
    return _Cost(
        array=0.0,
        vector=core_rows * _ceil(op.n, config.vector.lanes) * op.repeats,
        bytes=op.elements * _bytes_per_element(op),
        macs=0,
        mapping="rows",
    )


def _bytes_per_element(op: Operator) -> int:
    if op.kind == "layernorm":
        return _RESIDUAL_BYTES + _OPERAND_BYTES
    if op.name == "reuse.forecast":  # two cached sums in, the residual stream out
        return 3 * _RESIDUAL_BYTES
    if op.name == "self.sharing":  # the kept difference; the sum goes on to the projection
        return _OPERAND_BYTES
    return _OPERAND_BYTES + 2 * _RESIDUAL_BYTES  # branch and residual stream in, the latter out


def _attention(
    op: Operator, config: CoreConfig, engine: EngineCycles, step: Step, fitted: bool
) -> _Cost:
    """Cost of scores, softmax and P*V of all heads; `op` is the product of scores."""
    rows, head_dim, columns = op.m, op.k, op.n
    problems = op.heads * op.batch
    sparse = op.group == "self" and step.density < 1
    density = step.density if sparse else 1.0

    beats = _ceil(head_dim, config.array.lanes)
    fitting = config.array.banks * (config.memory.bank_words // (2 * beats))  # K and V
    if not fitting:
        raise ValueError(
            f"memory.bank_words: must be at least {2 * beats}, one column of K and of V, "
            f"got {config.memory.bank_words}"
        )
    key_tiles = _ceil(columns, min(config.memory.columns, fitting))
    tile_columns = _ceil(columns, key_tiles)
    # Heads go to different cores; with more cores than heads, several share a head's rows.
    cores_per_head = min(max(1, config.cores // problems), rows)
    row_tiles = cores_per_head * _ceil(_ceil(rows, cores_per_head), config.memory.query_rows)
    tile_rows = _ceil(rows, row_tiles)
    rounds = _ceil(problems * row_tiles, config.cores)

    fullest = _fullest(tile_columns, config, step if sparse else Step())
    tile_cycles = engine.cycles(tile_rows, tile_columns, head_dim, fullest)
    merge_cycles = tile_rows * _ceil(head_dim, config.vector.lanes) * (key_tiles - 1)

    loads = cores_per_head if key_tiles == 1 else row_tiles
    traffic = 2 * columns * head_dim * loads + 2 * rows * head_dim
    mask_bytes = rows * _ceil(columns, 8) if sparse else 0
    return _Cost(
        array=rounds * key_tiles * tile_cycles * op.repeats,
        vector=rounds * merge_cycles * op.repeats,
        bytes=(traffic * _OPERAND_BYTES + mask_bytes) * problems * op.repeats,
        macs=round(2 * op.macs * density),
        mapping="heads",
        basis="calibrated" if fitted and key_tiles == 1 else "formula (extrapolated)",
    )


def _fullest(columns: int, config: CoreConfig, step: Step) -> float:
    banks = config.array.banks
    if step.utilisation is None or step.density == 1:
        return expected_fullest(columns, banks, step.density)
    # No bank can keep more columns than it holds, whatever utilisation was measured elsewhere.
    return min(step.density * columns / (banks * step.utilisation), float(_ceil(columns, banks)))


# -- figure ------------------------------------------------------------------------------------

_BOUND_COLOURS: dict[Bound, str] = {"array": "#0072B2", "vector": "#E69F00", "DRAM": "#999999"}


def plot_latency(report: Report, path: Path | str, *, smallest_share: float = 0.002) -> None:
    """Draw time by operator as horizontal bars coloured by what bounds them; PNG or SVG.

    Operators below `smallest_share` of the total are summed in one bar.  Attention whose cycles
    are outside the calibration, and formulas, are hatched.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise ValueError(f"path: must end in .png or .svg, got {path.name!r}")
    total = report.time_us
    shown = [op for op in report.operators if op.time_us >= smallest_share * total]
    rest = [op for op in report.operators if op.time_us < smallest_share * total]
    unit, scale = ("ms", 1e-3) if total >= 1e4 else ("µs", 1.0)

    figure = Figure(figsize=(7.5, 1.6 + 0.27 * (len(shown) + bool(rest))), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    for position, op in enumerate(shown):
        ax.barh(
            position,
            op.time_us * scale,
            0.75,
            color=_BOUND_COLOURS[op.bound],
            edgecolor="white",
            hatch="" if op.basis == "calibrated" else "///",
            zorder=2,
        )
        _label(ax, op.time_us * scale, position, op.time_us / total)
    if rest:
        time_us = sum(op.time_us for op in rest)
        ax.barh(len(shown), time_us * scale, 0.75, color="#dddddd", zorder=2)
        _label(ax, time_us * scale, len(shown), time_us / total)
    names = [op.name for op in shown] + ([f"{len(rest)} others"] if rest else [])
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlabel(f"time per denoising step ({unit})")
    ax.grid(axis="x", color="#dddddd", zorder=0)
    ax.spines[["top", "right"]].set_visible(False)
    step = report.step
    branches = "two branches" if step.cfg else "one branch"
    ax.set_title(
        f"{report.network.name} at {report.network.resolution_px} px on {report.config.name}: "
        f"{total * scale:,.2f} {unit}\n{100 * step.density:.0f} % of keys, "
        f"{100 * step.computed_fraction:.0f} % of tokens, {branches}",
        fontsize=10,
    )
    handles = [
        Patch(color=colour, label=f"{bound}-bound") for bound, colour in _BOUND_COLOURS.items()
    ]
    handles.append(
        Patch(facecolor="#777777", edgecolor="white", hatch="///", label="not calibrated")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def _label(ax: Axes, x: float, y: int, share: float) -> None:
    ax.text(x, y, f" {100 * share:.1f} %", va="center", fontsize=8)
