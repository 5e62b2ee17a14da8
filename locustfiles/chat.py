"""A fixed number of users, each asking again as soon as it was answered.

locust -f locustfiles/chat.py --host http://127.0.0.1:8000 --model NAME --users 8 --spawn-rate 8
"""

from locust import task

from outrider.load.users import StreamUser


class ChatUser(StreamUser):
    """Asks without pause: a closed loop at a concurrency of `--users`."""

    @task
    def ask(self) -> None:
        """One streamed answer."""
        self.send()
