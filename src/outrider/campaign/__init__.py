"""Measured cells: the plan, the store, and what the figures say."""
