"""The complete core on simulated DRAM: programs in, images and counters out."""

from hw_tests.core.simulate import CoreJob, CoreResult, build_core, simulate

__all__ = ["CoreJob", "CoreResult", "build_core", "simulate"]
