"""Checks: pure functions from what was read to findings."""
