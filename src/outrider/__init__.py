"""Outrider: which way of serving this model is fastest at which load, answered by measuring."""

__version__ = "0.1.0"
