"""The attention engine in simulation: a harness that keeps Python out of the cycle loop."""

from hw_tests.engine.simulate import Counters, HeadJob, SimulatedHead, build_engine, check, simulate

__all__ = ["Counters", "HeadJob", "SimulatedHead", "build_engine", "check", "simulate"]
