"""Tests of what controls the core and moves its data."""
