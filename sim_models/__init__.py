"""Cycles and whole-network estimates, calibrated with RTL runs."""
