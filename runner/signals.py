"""Signals: the first asks for an orderly end, the second for one at once (product.md, "Command line")."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from .running import Stop

_ENDINGS = frozenset({signal.SIGINT, signal.SIGTERM})
_NUMBERS = (*sorted(_ENDINGS), *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Signals:
    """Takes SIGINT, SIGTERM and SIGHUP for the length of a block, and a timer that does what SIGTERM does.

    A terminal that goes away is no reason to leave leases behind: SIGHUP ends in order too, unless whoever started
    this process had it ignored (nohup).
    """

    def __init__(self, stop: Stop) -> None:
        """``stop`` is set by what arrives."""
        self._stop = stop
        self._before: dict[int, Any] = {}
        self._timer: threading.Timer | None = None
        self.interrupted = False  # by SIGINT: exit code 130
        self.terminated = False  # by SIGTERM, SIGHUP or the timer: exit code 0

    def __enter__(self) -> Self:
        """Take the signals; only the main thread may."""
        for number in _NUMBERS:
            if number not in _ENDINGS and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        if self._timer is not None:
            self._timer.cancel()
        for number, before in self._before.items():
            signal.signal(number, before)

    def end_after(self, seconds: float) -> None:
        """Ask for an orderly end after ``seconds``."""
        self._timer = threading.Timer(seconds, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def _time_is_up(self) -> None:
        self.terminated = True
        self._stop.asked.set()

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self._stop.asked.is_set():
            self._stop.at_once.set()
        if number == signal.SIGINT:
            self.interrupted = True
        else:
            self.terminated = True
        self._stop.asked.set()
