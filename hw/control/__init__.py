"""Executes programs: fetches commands, decodes them, and starts them as tokens allow."""
