"""Doubles the users step by step: where does TPOT leave what you promised?

locust -f locustfiles/ramp.py --host http://127.0.0.1:8000 --model NAME --stage-seconds 60
"""

from locust import LoadTestShape, task

from outrider.load.users import StreamUser

STEPS = (1, 2, 4, 8, 16, 32, 64)


class RampUser(StreamUser):
    """Asks without pause; each step has rows of its own."""

    @task
    def ask(self) -> None:
        """One streamed answer, filed under the number of users at its start."""
        self.send(name=f"{self.environment.runner.user_count} users")


class Ramp(LoadTestShape):
    """One step after the other, then the end."""

    def tick(self) -> tuple[int, float] | None:
        """Users wanted now, and how fast to get there."""
        step = int(self.get_run_time() // self.runner.environment.parsed_options.stage_seconds)
        return (STEPS[step], STEPS[step]) if step < len(STEPS) else None
