"""A step of the trained model on the core: run, compared, measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from disc.config import CoreConfig
from hw_tests.core.simulate import CoreJob, CoreResult, build_core, simulate
from hw_tests.core.trained import TrainedStep, trained_step
from hw_tests.core.utilisation import by_command, utilisation

__all__ = ["MeasuredStep", "run_step"]

_MOST_CYCLES = 1 << 30


@dataclass(frozen=True)
class MeasuredStep:
    """A step that left in DRAM what the integer golden core computes."""

    step: TrainedStep
    result: CoreResult
    report: dict[str, Any]
    """Plain numbers and strings."""
    by_command: dict[str, dict[str, float]]


def run_step(
    config: CoreConfig,
    kind: str,
    *,
    checkpoint: str = "digits-256",
    layers: slice = slice(None),
    fraction: float = 0.25,
    alpha: float = 2.0,
    hot: bool = False,
    fill: bool = False,
    seed: int = 0,
    latency: int = 20,
    stall: float = 0.0,
    tell: Callable[[str], object] = lambda text: None,
) -> MeasuredStep:
    """Run a step; parameters as of `trained_step` and `CoreJob`.

    Raises
    ------
    ValueError
        A parameter is out of range, or the model does not fit the configuration.
    AssertionError
        The program stopped with an error, or anything differs from the integer golden core.
    """
    tell("golden model and program")
    step = trained_step(
        config,
        kind,
        checkpoint=checkpoint,
        layers=layers,
        fraction=fraction,
        alpha=alpha,
        hot=hot,
        fill=fill,
        seed=seed,
    )
    tell("building the simulator")
    built = build_core(config)
    tell(f"simulating {len(step.program.commands):,} commands")
    job = CoreJob(step.program, step.dram, latency, 0, stall)
    (result,) = simulate(config, [job], built=built, seed=seed, most_cycles=_MOST_CYCLES)
    if result.error:
        raise AssertionError(
            f"the program stopped at command {result.error_index}: {result.error.name}"
        )
    step.require(result.dram)
    report = {
        "config": config.name,
        "checkpoint": checkpoint,
        "kind": kind,
        "commands": len(step.program.commands),
        "equal_to_golden": True,
        **utilisation(result.counters, config),
        "simulated_cycles_per_second": result.counters["cycles"] / result.seconds,
    }
    return MeasuredStep(step, result, report, by_command(result, step.program))
