"""Verilog release, lint and reports."""
