"""How patient the client of the Hub is: it would wait for an answer, or as long as it is told to, for ever."""

import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from huggingface_hub import get_session
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]  # it is exported lazily

from dci_metrics.hub.refusals import find, is_lost_connection, seconds_asked

T = TypeVar("T")

CONNECT_SECONDS = 30.0
ANSWER_SECONDS = 300.0
"""Without a byte; a commit of many files takes the Hub a minute."""
LONGEST_WAIT = 600
"""Seconds that are waited when the Hub asks for it; it counts requests by five minutes."""
WAITS = (2.0, 8.0)
"""Seconds before a call is tried again that the client itself tries only once."""
AGAIN = (429, 500, 502, 503, 504)


@contextmanager
def patient() -> Iterator[None]:
    """In here the client gives up on a dead connection and on long waits, and uploads in threads end on Ctrl-C."""
    client: Any = get_session()
    before = client.timeout, client.event_hooks
    stopped = threading.Event()

    def refuse_when_stopped(request: Any) -> None:
        # Threads that upload know nothing of Ctrl-C; each ends with its next request.
        if stopped.is_set():
            raise InterruptedError("interrupted")

    def refuse_long_wait(response: Any) -> None:
        # Raised from in here, the client does not wait and try again.
        if response.status_code == 429 and (seconds_asked(response) or 0) > LONGEST_WAIT:
            hf_raise_for_status(response)

    client.timeout = type(client.timeout)(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    client.event_hooks = {
        "request": [refuse_when_stopped, *before[1].get("request", [])],
        "response": [*before[1].get("response", []), refuse_long_wait],
    }
    try:
        with _on_interrupt(stopped.set):
            yield
    finally:
        client.timeout, client.event_hooks = before


@contextmanager
def _on_interrupt(call: Callable[[], None]) -> Iterator[None]:
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return

    def interrupted(number: int, frame: types.FrameType | None) -> Any:
        call()
        return usual(number, frame)

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def trying(call: Callable[[], T]) -> T:
    """Call, and call again when the Hub asks for that, stumbles, or loses the connection."""
    for wait in (*WAITS, None):
        try:
            return call()
        except Exception as error:
            seconds = _seconds_until_next(find(error), wait)
            if seconds is None:
                raise
        time.sleep(seconds)
    raise AssertionError  # the last round returns or raises


def _seconds_until_next(error: BaseException, wait: float | None) -> float | None:
    if wait is None:
        return None
    if isinstance(error, HfHubHTTPError) and error.response.status_code in AGAIN:
        asked = seconds_asked(error.response)
        return wait if asked is None else asked if asked <= LONGEST_WAIT else None
    # Where no connection can be made at all, there is no network.
    return wait if is_lost_connection(error) and type(error).__name__ != "ConnectError" else None
