"""How long to wait before the next attempt: full jitter, doubling, capped. Pure; the randomness is handed in."""

from collections.abc import Callable
from datetime import timedelta

FIRST = timedelta(seconds=30)
LONGEST = timedelta(hours=1)


def ceiling(attempts: int, *, first: timedelta = FIRST, longest: timedelta = LONGEST) -> timedelta:
    """The longest wait after the ``attempts``-th attempt (from 1): 30 s doubling to 1 h (queue.md, "Claiming")."""
    if attempts < 1:
        message = f"attempts start at 1, not {attempts}"
        raise ValueError(message)
    doublings = min(attempts - 1, 40)  # beyond any cap; keeps the product far from overflow
    return longest if first >= longest / 2**doublings else first * 2**doublings


def backoff(
    attempts: int, random: Callable[[], float], *, first: timedelta = FIRST, longest: timedelta = LONGEST
) -> timedelta:
    """A wait anywhere between nothing and ``ceiling`` (full jitter). ``random`` gives numbers in [0, 1)."""
    return ceiling(attempts, first=first, longest=longest) * random()
