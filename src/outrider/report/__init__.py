"""The run as one self-contained page."""

from outrider.report.build import Judged, write_report

__all__ = ["Judged", "write_report"]
