"""Hours of people who read what they get: does anything creep?

locust -f locustfiles/soak.py --host http://127.0.0.1:8000 --model NAME --users 16 --run-time 8h
"""

from locust import between, task

from outrider.load.users import StreamUser


class SoakUser(StreamUser):
    """Pauses between questions. Memory of the client stays flat: nothing is kept per request."""

    wait_time = between(2, 10)

    @task
    def ask(self) -> None:
        """One streamed answer."""
        self.send()
