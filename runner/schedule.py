"""When a pass is due: pure rules over its last run (D62 to D65). Nothing here reads a clock or a database."""

from collections.abc import Callable
from dataclasses import dataclass

STARTUP_SECONDS = 10.0
RETRY_SECONDS = (60.0, 120.0, 240.0, 480.0, 900.0)
JITTER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is known of a pass: monotonic seconds of the process. None: it did not run yet."""

    finished_at: float | None = None
    failures: int = 0  # in a row, the last run included


def next_at(
    past: Past,
    *,
    interval_seconds: float,
    started_at: float,
    startup_seconds: float,
    random: Callable[[], float],
) -> float | None:
    """When the pass is due next; None when it is switched off and was never asked for.

    The first run comes ``startup_seconds`` after the start (D62), each further one an interval after the preceding one
    ended, moved by up to a tenth either way (D64). After failures it is retried after 1, 2, 4, 8, then 15 minutes, but
    never later than the regular run (D65). ``random`` gives numbers in [0, 1).
    """
    if interval_seconds <= 0:
        return None
    if past.finished_at is None:
        return started_at + startup_seconds
    regular = past.finished_at + jittered(interval_seconds, random)
    if past.failures < 1:
        return regular
    retry = RETRY_SECONDS[min(past.failures, len(RETRY_SECONDS)) - 1]
    return min(regular, past.finished_at + retry)


def jittered(seconds: float, random: Callable[[], float]) -> float:
    """``seconds``, moved by up to a tenth either way."""
    return seconds * (1 - JITTER + 2 * JITTER * random())


def remaining_seconds(*, done: int, total: int, seconds: float) -> float | None:
    """How long the rest takes at the rate so far; None while nothing can be said yet."""
    if done < 1 or total <= done or seconds <= 0:
        return None
    return (total - done) * seconds / done
