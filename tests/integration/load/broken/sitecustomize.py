"""Put on a load process's path by a test: breaks one function, so that the test sees what a bug looks like."""

import sys

if any("outrider.load.worker" in argument for argument in sys.orig_argv):
    import outrider.load.timing

    def repetition(_text: str) -> None:
        raise ZeroDivisionError("a mistake of ours")

    outrider.load.timing.repetition = repetition
