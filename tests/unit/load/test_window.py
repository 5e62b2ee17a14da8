"""Phases of requests, and when the window closes."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.load.window import Window


def test_warm_up_then_measured_then_cool_down() -> None:
    window = Window(warmup=2, requests=3, duration_s=None)
    assert [window.admit(float(n)) for n in range(7)] == [*["warmup"] * 2, *["measured"] * 3, *["cooldown"] * 2]


def test_it_closes_when_the_last_measured_request_has_ended_whatever_else_runs() -> None:
    window = Window(warmup=1, requests=2, duration_s=None)
    phases = [window.admit(0.0) for _ in range(4)]
    window.open(1.0)
    window.end(phases[1], 5.0)
    window.end(phases[3], 5.5)
    window.end(phases[0], 6.0)
    assert not window.closed(6.0)
    window.end(phases[2], 7.0)
    assert window.closed(7.0)
    assert window.length_s == 6.0


def test_a_duration_counts_from_the_first_measured_send() -> None:
    window = Window(warmup=0, requests=None, duration_s=10.0)
    assert window.admit(100.0) == "measured"
    window.open(100.0)
    assert window.admit(109.9) == "measured"
    assert window.admit(110.0) == "cooldown"
    window.end("measured", 111.0)
    assert not window.closed(112.0)
    window.end("measured", 115.0)
    assert window.closed(115.0)


def test_a_duration_ends_without_another_send() -> None:
    window = Window(warmup=0, requests=None, duration_s=10.0)
    window.admit(0.0)
    window.open(0.0)
    window.end("measured", 2.0)
    assert not window.closed(9.0)
    assert window.closed(10.0)


def test_of_requests_and_duration_the_first_reached_counts() -> None:
    by_count = Window(warmup=0, requests=1, duration_s=100.0)
    by_count.admit(0.0)
    by_count.open(0.0)
    assert by_count.admit(1.0) == "cooldown"
    by_time = Window(warmup=0, requests=100, duration_s=1.0)
    by_time.admit(0.0)
    by_time.open(0.0)
    assert by_time.admit(1.0) == "cooldown"


def test_it_says_when_it_is_about_to_open() -> None:
    window = Window(warmup=1, requests=1, duration_s=None)
    assert not window.opens_next
    window.admit(0.0)
    assert window.opens_next
    window.admit(0.0)
    assert not window.opens_next


def test_nothing_measured_has_no_length() -> None:
    window = Window(warmup=5, requests=1, duration_s=None)
    window.admit(0.0)
    assert window.length_s == 0.0
    window.exhaust()
    assert window.closed(1.0)


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 30))
def test_exactly_the_requests_asked_for_are_measured(warmup: int, requests: int, extra: int) -> None:
    window = Window(warmup, requests, None)
    phases = [window.admit(0.0) for _ in range(warmup + requests + extra)]
    assert phases.count("warmup") == warmup
    assert phases.count("measured") == requests
    assert phases == sorted(phases, key=["warmup", "measured", "cooldown"].index)
