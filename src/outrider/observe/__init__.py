"""Seeing it live: recording rules, alerts, dashboards, the exporter of recorded cells, and the terminal view."""
