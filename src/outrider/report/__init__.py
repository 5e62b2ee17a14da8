"""The run as one self-contained page."""

from outrider.report.build import write_report

__all__ = ["write_report"]
