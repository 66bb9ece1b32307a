"""A step of the trained model on the core: run, compared, measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from disc.config import CoreConfig
from golden.executor.observe import observe
from hw_tests.core.simulate import CoreJob, CoreResult, build_core, simulate
from hw_tests.core.trained import TrainedStep, trained_step
from hw_tests.core.utilisation import by_command, kind_name, utilisation
from sim_models.core import Prediction, predict
from sim_models.engine import (
    CalibrationError,
    EngineCalibration,
    EngineModel,
    shipped_calibration,
)

__all__ = ["MeasuredStep", "PredictedStep", "predict_step", "run_step"]

_MOST_CYCLES = 1 << 30


@dataclass(frozen=True)
class MeasuredStep:
    """A step that left in DRAM what the integer golden core computes."""

    step: TrainedStep
    result: CoreResult
    report: dict[str, Any]
    """Plain numbers and strings."""
    by_command: dict[str, dict[str, float]]


@dataclass(frozen=True)
class PredictedStep:
    """A step by the cycle model, not simulated and not compared with anything."""

    step: TrainedStep
    prediction: Prediction
    report: dict[str, Any]
    """Plain numbers and strings."""
    by_command: dict[str, dict[str, float]]


def predict_step(
    config: CoreConfig,
    kind: str,
    *,
    calibration: EngineCalibration,
    latency: int = 20,
    tell: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> PredictedStep:
    """Predict a step; parameters as of `trained_step`, `EngineModel` and `CoreJob`.

    Raises
    ------
    CalibrationError
        The calibration was made for another configuration.
    ValueError
        As `run_step`.
    """
    engine = EngineModel.calibrated(config, calibration)
    tell("golden model and program")
    step = trained_step(config, kind, **options)
    tell(f"predicting {len(step.program.commands):,} commands")
    found = predict_program(step, engine, latency)
    kinds: dict[str, dict[str, float]] = {}
    for command, (start, end) in zip(step.program.commands, found.spans.tolist(), strict=True):
        own = kinds.setdefault(kind_name(command), {"commands": 0, "cycles": 0})
        own["commands"] += 1
        own["cycles"] += round(end - start)
    report = {
        "config": config.name,
        "kind": kind,
        "commands": len(step.program.commands),
        "predicted_cycles": round(found.cycles),
        **{f"busy_{queue}": share for queue, share in found.busy(step.program).items()},
    }
    return PredictedStep(step, found, report, kinds)


def predict_program(step: TrainedStep, engine: EngineModel, latency: int) -> Prediction:
    """Return what the cycle model makes of a step's program and data."""
    work = observe(step.program, step.config, step.dram)
    return predict(step.program, step.config, work, engine, latency=latency)


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
    try:
        engine = EngineModel.calibrated(config, shipped_calibration(config))
    except CalibrationError:
        predicted = {}
    else:
        tell("predicting")
        cycles = predict_program(step, engine, latency).cycles
        predicted = {
            "predicted_cycles": round(cycles),
            "prediction_error": cycles / result.counters["cycles"] - 1,
        }
    report = {
        "config": config.name,
        "checkpoint": checkpoint,
        "kind": kind,
        "commands": len(step.program.commands),
        "equal_to_golden": True,
        **utilisation(result.counters, config),
        **predicted,
        "simulated_cycles_per_second": result.counters["cycles"] / result.seconds,
    }
    return MeasuredStep(step, result, report, by_command(result, step.program))
