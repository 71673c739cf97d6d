"""Backoff: full jitter, 30 s doubling to 1 h."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.queue.backoff import backoff, ceiling


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 30), (2, 60), (3, 120), (7, 1920), (8, 3600), (9, 3600), (10**9, 3600)]
)
def test_the_ceiling_doubles_to_an_hour(attempts: int, seconds: int) -> None:
    assert ceiling(attempts) == timedelta(seconds=seconds)


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_a_wait_lies_anywhere_below_the_ceiling(attempts: int, chance: float) -> None:
    assert timedelta(0) <= backoff(attempts, lambda: chance) <= ceiling(attempts)
    assert backoff(attempts, lambda: 0.0) == timedelta(0)


def test_attempts_start_at_one() -> None:
    with pytest.raises(ValueError, match="start at 1"):
        ceiling(0)
