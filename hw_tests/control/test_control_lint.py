# amaranth: UnusedElaboratable=no
"""Verilog of control and data movement passes the lint of a release."""

from __future__ import annotations

from pathlib import Path

import synth.lint
from disc.verilog import to_verilog
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.harness import SideBySide
from hw_tests.control.harness import blocks
from synth.release import TOP, WAIVERS


def test_lint():
    verilog = to_verilog(SideBySide(blocks(CONFIGS["odd"])), top=TOP, header={})
    waivers = Path(synth.lint.__file__).with_name(WAIVERS).read_text(encoding="utf-8")
    synth.lint.check({f"{TOP}.v": verilog, WAIVERS: waivers})
