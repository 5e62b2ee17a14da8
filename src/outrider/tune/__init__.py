"""Declared alternatives of flags and environment, measured beside the stack's own and kept only if better."""
