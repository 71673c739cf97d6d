"""When a pass is due (D62 to D65): pure, with times and chance handed in."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.runner.schedule import Past, jittered, next_at, remaining_seconds


def due(past: Past, interval: float = 3600.0, random: Callable[[], float] = lambda: 0.5) -> float | None:
    return next_at(past, interval_seconds=interval, started_at=100.0, startup_seconds=10.0, random=random)


def test_d62_the_first_run_comes_ten_seconds_after_the_start() -> None:
    assert due(Past()) == 110.0


def test_d63_an_interval_of_0_turns_it_off() -> None:
    assert due(Past(), interval=0) is None
    assert due(Past(finished_at=500.0), interval=0) is None


@pytest.mark.parametrize(("random", "wait"), [(0.0, 3240.0), (0.5, 3600.0), (0.999999, 3959.99928)])
def test_d64_the_interval_counts_from_the_end_and_is_moved_by_up_to_a_tenth(random: float, wait: float) -> None:
    assert due(Past(finished_at=1000.0), random=lambda: random) == pytest.approx(1000.0 + wait)


@pytest.mark.parametrize(("failures", "minutes"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (6, 15), (60, 15)])
def test_d65_failures_are_retried_after_1_2_4_8_then_15_minutes(failures: int, minutes: int) -> None:
    assert due(Past(finished_at=1000.0, failures=failures)) == 1000.0 + minutes * 60


def test_d65_a_retry_is_never_later_than_the_regular_run() -> None:
    assert due(Past(finished_at=1000.0, failures=5), interval=30.0) == 1030.0


@given(st.floats(0.001, 1e7), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_a_tenth(seconds: float, chance: float) -> None:
    assert 0.9 * seconds <= jittered(seconds, lambda: chance) <= 1.1 * seconds * (1 + 1e-9)


def test_the_remaining_time_is_told_only_when_something_can_be_said() -> None:
    assert remaining_seconds(done=0, total=10, seconds=5.0) is None
    assert remaining_seconds(done=10, total=10, seconds=5.0) is None
    assert remaining_seconds(done=2, total=10, seconds=5.0) == 20.0
