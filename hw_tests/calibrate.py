"""Measures the engine and fits its cycle model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import version

from disc.config import CoreConfig
from disc.hashing import BankHash
from golden.capture import capture_masks
from hw_tests.engine.measure import Measurement, Workload, measure, synthetic_workloads
from hw_tests.engine.simulate import engine_verilog
from hw_tests.sim import find_toolchain
from sim_models.calibration import Sample, errors, fit
from sim_models.engine import SCHEMA, EngineCalibration, EngineModel, Operation

__all__ = ["calibrate", "trained_workloads"]

_LAYERS_AND_HEADS = ((0, 0), (1, 2), (3, 1), (5, 3))


def trained_workloads(config: CoreConfig) -> list[Workload]:
    """Return real masks of the shipped 256-token model: sparse, dense and mask-making runs."""
    workloads = []
    for alpha in (0.5, 2.0):
        masks, steps = capture_masks("digits-256", at=[0, 10], alpha=alpha)
        for number, step in enumerate(steps):
            for layer, head in _LAYERS_AND_HEADS:
                mask = masks[number, layer, head][: config.memory.query_rows]
                label = f"digits-256 step {step} layer {layer} head {head} alpha {alpha:g}"
                workloads.append(Workload(label, "trained masks", mask, Operation(32)))
    return workloads


def calibrate(
    config: CoreConfig, *, seed: int = 0, tell: Callable[[str], object] = lambda _: None
) -> EngineCalibration:
    """Run synthetic and real masks on the RTL, fit on part of the synthetic ones, judge the rest.

    Raises
    ------
    ToolchainError, BuildError
        The simulator cannot be built.
    """
    tools = find_toolchain()
    tell("sampling the trained model")
    workloads = synthetic_workloads(config, seed) + trained_workloads(config)
    tell(f"running {len(workloads)} commands on the RTL")
    hash_ = BankHash.xor_fold(config.array.banks, config.local_bits)
    samples = [_sample(m) for m in measure(config, workloads, hash_, seed=seed)]
    tell("fitting")
    constants = fit(config, samples)
    model = EngineModel(config, constants)
    return EngineCalibration(
        schema=SCHEMA,
        config_digest=config.digest,
        config_name=config.name,
        constants=constants,
        tools={"simulation": tools.identity, "amaranth": version("amaranth")},
        design_digest=hashlib.sha256(engine_verilog(config).encode()).hexdigest()[:12],
        errors=errors(config, constants, samples),
        samples=[
            {
                "masks": s.label,
                "split": s.split,
                "measured_cycles": s.measured,
                "modelled_cycles": s.modelled(model),
            }
            for s in samples
        ],
    )


def _sample(measured: Measurement) -> Sample:
    work = measured.workload
    return Sample(
        label=work.label,
        split=work.split,
        in_banks=measured.in_banks,
        operation=work.operation,
        measured=measured.cycles,
        shared=measured.shared,
    )
