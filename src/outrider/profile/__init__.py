"""Where the time of a decode step goes, from a torch profiler trace of the engine."""

from outrider.profile.shares import StepShares, shares_of
from outrider.profile.trace import Trace, read_trace

__all__ = ["StepShares", "Trace", "read_trace", "shares_of"]
