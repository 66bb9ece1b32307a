# amaranth: UnusedElaboratable=no
"""The store unit's Verilog passes the lint of a release."""

from __future__ import annotations

from pathlib import Path

import pytest

import synth.lint
from disc.verilog import to_verilog
from hw.units.store import StoreUnit
from hw_tests.units.store_harness import CONFIGS
from synth.release import TOP, WAIVERS


@pytest.mark.parametrize("name", ["narrow", "odd"])
def test_lint(name):
    verilog = to_verilog(StoreUnit(CONFIGS[name]), top=TOP, header={})
    waivers = Path(synth.lint.__file__).with_name(WAIVERS).read_text(encoding="utf-8")
    synth.lint.check({f"{TOP}.v": verilog, WAIVERS: waivers})
