"""The only reader of time: everything else is handed a ``Clock``."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a part of the program may know of time."""

    def now(self) -> datetime:
        """Wall time, aware, UTC. For people and logs only: no rule on rows uses it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for waits and watchdogs."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)
