"""A quiet load, a sudden crowd, and quiet again: how long until TPOT is back?

locust -f locustfiles/spike.py --host http://127.0.0.1:8000 --model NAME --stage-seconds 60
"""

from locust import LoadTestShape, task

from outrider.load.users import StreamUser

STAGES = (("before", 2), ("spike", 32), ("after", 2), ("long after", 2))


class SpikeUser(StreamUser):
    """Asks without pause; each stage has rows of its own."""

    @task
    def ask(self) -> None:
        """One streamed answer, filed under the stage in which it was asked."""
        self.send(name=self.environment.shape_class.stage)


class Spike(LoadTestShape):
    """One stage after the other, then the end."""

    stage = STAGES[0][0]

    def tick(self) -> tuple[int, float] | None:
        """Users wanted now, and how fast to get there."""
        at = int(self.get_run_time() // self.runner.environment.parsed_options.stage_seconds)
        if at >= len(STAGES):
            return None
        self.stage, users = STAGES[at]
        return users, 32
