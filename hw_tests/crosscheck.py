"""One attention head of the trained model on the RTL, held against the integer golden core."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash, search
from disc.program import FuseCommand, MaskMode
from golden.capture import AttentionCapture, capture_attention, capture_masks
from golden.integer import FusedResult, fused_attention
from golden.integer.quantise import (
    QuantisedHead,
    float_attention,
    quantise_head,
    quantised_attention,
)
from hw_tests.engine import HeadJob, SimulatedHead, build_engine, check, simulate

__all__ = ["HASHES", "Crosscheck", "choose_hash", "crosscheck", "prepare"]

HASHES = ("modulo", "xor-fold", "random", "searched")


@dataclass(frozen=True)
class Prepared:
    """A head in integers, and what the golden core makes of it."""

    capture: AttentionCapture
    head: QuantisedHead
    command: FuseCommand
    golden: FusedResult
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Crosscheck:
    """Result of `crosscheck`."""

    config: CoreConfig
    prepared: Prepared
    hash: BankHash
    simulated: SimulatedHead
    report: dict[str, Any]
    """Plain numbers and strings."""


def choose_hash(
    name: str, config: CoreConfig, *, checkpoint: str = "digits-256", seed: int = 0
) -> BankHash:
    """Return a hash by name, or parse a matrix such as `0x3,0x5,...` (one mask per bank bit).

    `searched` looks for the best matrix on masks of another image of the model, seed + 1.

    Raises
    ------
    ValueError
        The name is unknown or the matrix does not fit the configuration.
    """
    banks, local_bits = config.array.banks, config.local_bits
    match name:
        case "modulo":
            return BankHash.modulo(banks, local_bits)
        case "xor-fold":
            return BankHash.xor_fold(banks, local_bits)
        case "random":
            return BankHash.random_gf2(banks, local_bits, seed=seed)
        case "searched":
            masks, _ = capture_masks(checkpoint, seed=seed + 1)
            columns = masks.shape[-1]
            return search(masks.reshape(-1, columns), banks, local_bits, seed=seed)
    try:
        hash_ = BankHash.parse(name, local_bits)
    except ValueError as error:
        raise ValueError(
            f"hash: must be one of {', '.join(HASHES)} or a matrix, got {name!r} ({error})"
        ) from None
    if hash_.bank_bits != config.bank_bits:
        raise ValueError(
            f"hash: configuration {config.name!r} needs {config.bank_bits} rows, got {name!r}"
        )
    return hash_


def prepare(
    config: CoreConfig, capture: AttentionCapture, *, alpha: float, selected_only: bool = False
) -> Prepared:
    """Quantise a captured head and run it through the integer golden core.

    On a refresh step the command is GENERATE, else MASKED with the mask in force.
    """
    head = quantise_head(capture.q, capture.k, capture.v, config)
    mode = MaskMode.GENERATE if capture.refresh else MaskMode.MASKED
    command = head.command(config, mode, alpha=alpha)
    rows = capture.rows if selected_only else np.arange(len(capture.q))
    golden = fused_attention(
        head.q[rows],
        head.k,
        head.v,
        command,
        config.number,
        mask=None if capture.refresh else capture.mask[rows],
        tokens=rows,
    )
    return Prepared(capture, head, command, golden, rows)


def job(prepared: Prepared, hash_: BankHash, *, stall: float = 0.0) -> HeadJob:
    """Return what the engine is given for a prepared head."""
    masked = prepared.command.mode == MaskMode.MASKED
    return HeadJob(
        q=prepared.head.q[prepared.rows],
        k=prepared.head.k,
        v=prepared.head.v,
        command=prepared.command,
        hash=hash_,
        mask=prepared.golden.mask if masked else None,
        tokens=prepared.rows,
        stall=stall,
    )


def mismatches(prepared: Prepared, simulated: SimulatedHead) -> int:
    """Count result elements and mask bits in which RTL and golden core differ."""
    different = int((simulated.out != prepared.golden.out).sum())
    if prepared.command.mode == MaskMode.GENERATE:
        assert simulated.mask is not None
        different += int((simulated.mask != prepared.golden.mask).sum())
    return different


def balanced_cycles(config: CoreConfig, prepared: Prepared) -> int:
    """Return the array cycles if every row's kept columns were spread evenly over the banks."""
    kept = np.full(len(prepared.rows), prepared.command.columns)
    if prepared.command.mode == MaskMode.MASKED:
        kept = prepared.golden.mask.sum(axis=1)
    return 2 * prepared.command.beats * int((-(-kept // config.array.banks)).sum())


def signal_to_noise_db(exact: NDArray[Any], other: NDArray[Any]) -> float:
    """Return 10 log10 of signal over error power; infinity if equal."""
    error = float(np.square(exact - other).sum())
    return float("inf") if error == 0 else 10 * np.log10(float(np.square(exact).sum()) / error)


def crosscheck(
    config: CoreConfig,
    *,
    checkpoint: str = "digits-256",
    seed: int = 0,
    steps: int = 20,
    step: int = 12,
    layer: int = 2,
    head: int = 1,
    alpha: float = 0.5,
    refresh: int = 5,
    hash_name: str = "xor-fold",
    selected_only: bool = False,
    stall: float = 0.0,
    tell: Callable[[str], object] = lambda _: None,
) -> Crosscheck:
    """Sample the trained model up to a step, run one head on RTL and compare.

    Parameters
    ----------
    selected_only
        Only the rows that CTR selects, instead of all.
    stall
        Fraction of cycles in which every stream of the engine is stalled.
    tell
        Told what is about to be done.

    Raises
    ------
    ValueError
        An argument is out of range; the message names it.
    ToolchainError, BuildError
        The simulator cannot be built.
    """
    tell("sampling the trained model")
    capture = capture_attention(
        checkpoint,
        seed=seed,
        steps=steps,
        step=step,
        layer=layer,
        head=head,
        alpha=alpha,
        refresh=refresh,
    )
    prepared = prepare(config, capture, alpha=alpha, selected_only=selected_only)
    hash_ = choose_hash(hash_name, config, checkpoint=checkpoint, seed=seed)
    head_job = job(prepared, hash_, stall=stall)
    check(config, head_job)
    tell("generating and compiling the RTL (kept for the next time)")
    begun = time.perf_counter()
    built = build_engine(config)
    build_seconds = time.perf_counter() - begun
    tell("running the RTL")
    (simulated,) = simulate(config, [head_job], built=built, seed=seed)
    counters = simulated.counters
    beats = prepared.command.beats
    masked = prepared.command.mode == MaskMode.MASKED
    mask = capture.mask[prepared.rows] if masked else None
    exact = float_attention(capture.q[prepared.rows], capture.k, capture.v, mask)
    quantised = quantised_attention(prepared.head, capture.mask if masked else None)[prepared.rows]
    integer = prepared.golden.out * prepared.head.out_scale
    ideal = balanced_cycles(config, prepared)
    report = {
        "mismatches": mismatches(prepared, simulated),
        "cycles": counters.cycles,
        "ideal_cycles": ideal,
        "utilisation": 2 * beats * counters.kept / (config.array.banks * counters.cycles),
        "density": counters.kept / (counters.rows * prepared.command.columns),
        "array_cycles": counters.dot + counters.axpy,
        "mask_density_made": float(prepared.golden.mask.mean()) if capture.refresh else None,
        "rows": counters.rows,
        "columns": prepared.command.columns,
        "head_dim": prepared.head.head_dim,
        "mode": prepared.command.mode.name,
        "snr_quantised_db": signal_to_noise_db(exact, quantised),
        "snr_integer_db": signal_to_noise_db(exact, integer),
        "checkpoint": str(checkpoint),
        "layer": layer,
        "head": head,
        "step": step,
        "steps": steps,
        "seed": seed,
        "alpha": alpha,
        "refresh_period": refresh,
        "hash": str(hash_),
        "stall": stall,
        "config": config.name,
        "config_digest": config.digest,
        "build_seconds": build_seconds,
        "simulated_cycles_per_second": counters.cycles / simulated.seconds,
    }
    return Crosscheck(config, prepared, hash_, simulated, report)
