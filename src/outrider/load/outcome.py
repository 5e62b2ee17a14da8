"""How a request can end. Each way is counted under its own name; none is folded into "error"."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """End of one request."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ABORTED = "aborted"
    OTHER_FINISH = "other_finish"
    ERROR_EVENT = "error_event"
    NO_FINISH = "no_finish"
    MISSING_DONE = "missing_done"
    CUT_OFF = "cut_off"
    RESET = "reset"
    STALLED = "stalled"
    MALFORMED_JSON = "malformed_json"
    NOT_UTF8 = "not_utf8"
    EVENT_TOO_LARGE = "event_too_large"
    TOKENS_WITHOUT_TEXT = "tokens_without_text"
    NOT_A_STREAM = "not_a_stream"
    PROTOCOL = "protocol"
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAVAILABLE = "unavailable"
    HTTP_OTHER = "http_other"
    REFUSED = "refused"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    CANCELLED = "cancelled"

    @property
    def ok(self) -> bool:
        """The request ran to an end that the server meant: its timings count."""
        return self in _OK

    @property
    def meaning(self) -> str:
        """What happened, in a few words."""
        return _MEANING[self][0]

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return _MEANING[self][1]


_OK = frozenset({Outcome.STOP, Outcome.LENGTH, Outcome.TOOL_CALLS})

_BY_STATUS = {
    400: Outcome.BAD_REQUEST,
    401: Outcome.UNAUTHORIZED,
    403: Outcome.UNAUTHORIZED,
    404: Outcome.NOT_FOUND,
    422: Outcome.BAD_REQUEST,
    429: Outcome.RATE_LIMITED,
    500: Outcome.SERVER_ERROR,
    503: Outcome.UNAVAILABLE,
}

_BY_FINISH = {
    "stop": Outcome.STOP,
    "length": Outcome.LENGTH,
    "tool_calls": Outcome.TOOL_CALLS,
    "function_call": Outcome.TOOL_CALLS,
    "abort": Outcome.ABORTED,
}


def of_status(status: int) -> Outcome:
    """Outcome of an HTTP status that is not 200."""
    return _BY_STATUS.get(status, Outcome.HTTP_OTHER)


def of_finish(reason: str) -> Outcome:
    """Outcome of the `finish_reason` that a complete stream carried."""
    return _BY_FINISH.get(reason, Outcome.OTHER_FINISH)


_LOG = "read the engine's log at that time"
_CUT = "read the engine's log for a crash, and check time-outs of proxies in between"
_MEANING = {
    Outcome.STOP: ("ended by itself", ""),
    Outcome.LENGTH: ("reached max_tokens", ""),
    Outcome.TOOL_CALLS: ("ended with a tool call", ""),
    Outcome.ABORTED: ("the engine aborted the request", _LOG),
    Outcome.OTHER_FINISH: ("ended for a reason this client does not know", "read `finish_reason` in the records"),
    Outcome.ERROR_EVENT: ("the stream carried an error object", _LOG),
    Outcome.NO_FINISH: ("the stream ended without a finish_reason", _LOG),
    Outcome.MISSING_DONE: ("the stream ended without [DONE]", "check proxies that cut the end of responses"),
    Outcome.CUT_OFF: ("the stream was cut off", _CUT),
    Outcome.RESET: ("the connection was reset", _CUT),
    Outcome.STALLED: (
        "no byte came for idle_timeout_s",
        "raise the idle time-out only if such pauses are expected",
    ),
    Outcome.MALFORMED_JSON: ("an event was not JSON", "look at the server's raw stream"),
    Outcome.NOT_UTF8: ("an event was not UTF-8", "look at the server's raw stream"),
    Outcome.EVENT_TOO_LARGE: ("an event exceeded 8 MiB", "switch off logprobs and similar extras"),
    Outcome.TOKENS_WITHOUT_TEXT: (
        "usage counts tokens but no delta carried any",
        "the server uses a delta field that this client does not know: report it with a raw stream",
    ),
    Outcome.NOT_A_STREAM: ("the answer was not an event stream", "use an endpoint that supports `stream: true`"),
    Outcome.PROTOCOL: ("the answer was not HTTP/1.1", "check scheme and port of the URL"),
    Outcome.BAD_REQUEST: (
        "the server refused the request (400/422)",
        "read the error text; if it names stream_options, use `--usage final`; if it names ignore_eos, drop it",
    ),
    Outcome.UNAUTHORIZED: ("the server wants another key (401/403)", "give --api-key-file"),
    Outcome.NOT_FOUND: ("no such model or path (404)", "compare --model with the server's /v1/models"),
    Outcome.RATE_LIMITED: ("the server limits the rate (429)", "lower the load or raise the server's limit"),
    Outcome.SERVER_ERROR: ("the server failed (500)", _LOG),
    Outcome.UNAVAILABLE: ("the server is not ready (503)", "wait until its health path answers 200"),
    Outcome.HTTP_OTHER: ("an unexpected HTTP status", "read the error text"),
    Outcome.REFUSED: ("nothing listens at the address", "start the server or correct the URL"),
    Outcome.UNRESOLVED: ("the host name does not resolve", "correct the URL"),
    Outcome.UNREACHABLE: ("the host cannot be reached", "check address and network"),
    Outcome.CONNECT_TIMEOUT: ("no connection within the time-out", "check address and firewall"),
    Outcome.TLS: ("the TLS handshake failed", "check scheme, certificate and trust store (SSL_CERT_FILE)"),
    Outcome.CANCELLED: ("cancelled by the load test", ""),
}
