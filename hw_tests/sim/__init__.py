"""Verilator simulation with cocotb: build once per design, run tests, exchange NumPy arrays.

`build` and `run` are for pytest functions; `inputs`, `outputs` and the backdoor functions for the
cocotb tests that run inside the simulator.
"""

from hw_tests.sim.build import BuildError, Built, build
from hw_tests.sim.exchange import inputs, outputs
from hw_tests.sim.memory import pack_words, read_memory, unpack_words, write_memory
from hw_tests.sim.run import SimResult, choose_seed, run
from hw_tests.sim.toolchain import Toolchain, ToolchainError, find_toolchain

__all__ = [
    "BuildError",
    "Built",
    "SimResult",
    "Toolchain",
    "ToolchainError",
    "build",
    "choose_seed",
    "find_toolchain",
    "inputs",
    "outputs",
    "pack_words",
    "read_memory",
    "run",
    "unpack_words",
    "write_memory",
]
