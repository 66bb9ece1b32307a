"""Tests repeat themselves, unless new seeds are asked for with `DISC_SEED=random`."""

import os

import hypothesis

hypothesis.settings.register_profile("repeat", derandomize=True)
if os.environ.get("DISC_SEED") != "random":
    hypothesis.settings.load_profile("repeat")
