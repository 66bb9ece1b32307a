"""Everything that a user needs to take the core into another flow."""

from __future__ import annotations

from pathlib import Path

from disc import __version__
from disc.config import CoreConfig
from disc.verilog import to_verilog
from hw.core import TOP, Core

__all__ = ["TOP", "release"]

WAIVERS = "waivers.vlt"


def release(config: CoreConfig) -> dict[str, str]:
    """Return file names and texts of a release.

    `disc_core.v` holds all modules; `disc_core.f` lists the sources for tools that take `-f`;
    `config.toml` is the configuration; `waivers.vlt` are the lint waivers with their reasons.
    """
    header = {
        "version": __version__,
        "configuration": f"{config.name} {config.digest}",
        "licence": "Apache-2.0",
    }
    return {
        f"{TOP}.v": to_verilog(Core(config), top=TOP, header=header),
        f"{TOP}.f": f"{TOP}.v\n",
        "config.toml": config.to_toml(),
        WAIVERS: (Path(__file__).parent / WAIVERS).read_text(encoding="utf-8"),
    }
