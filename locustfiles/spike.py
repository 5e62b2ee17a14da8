"""A quiet load, a sudden crowd, and quiet again: how long until TPOT is back?

locust -f locustfiles/spike.py --host http://127.0.0.1:8000 --model NAME
"""

from locust import LoadTestShape, task

from outrider.load.users import StreamUser

QUIET_USERS, CROWD_USERS = 2, 32
STAGES = (("before", 60, QUIET_USERS), ("spike", 120, CROWD_USERS), ("after", 240, QUIET_USERS))


class SpikeUser(StreamUser):
    """Asks without pause; each stage has rows of its own."""

    @task
    def ask(self) -> None:
        """One streamed answer, filed under the stage in which it was asked."""
        shape = self.environment.shape_class
        self.send(name=next((name for name, until_s, _ in STAGES if shape.get_run_time() < until_s), "after"))


class Spike(LoadTestShape):
    """Three stages."""

    def tick(self) -> tuple[int, float] | None:
        """Users wanted now, and how fast to get there."""
        at = self.get_run_time()
        return next(((users, CROWD_USERS) for _, until_s, users in STAGES if at < until_s), None)
