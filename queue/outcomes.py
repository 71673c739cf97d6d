"""Outcomes: how claims end. Complete with findings, fail, defer, release: all fenced by the lease token.

Every function takes a batch, answers per item, and never raises for a lost lease: its ``Settled`` says
``accepted=False`` and nothing of it was written (queue.md, "Claiming").
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import random as _random
from typing import Any

from ..schema.records import Completion, ScanReport, Settled, State
from .arrays import blobs, flags, ints, reals, texts, times
from .backoff import backoff
from .findings import store
from .findings_model import tells
from .statements import Conn, change, fetch, together

MAX_ATTEMPTS = 5
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that failed. ``permanent``: trying again is useless; ``delay`` None = full-jitter backoff."""

    target_id: int
    lease_token: int
    code: str
    message: str
    permanent: bool = False
    attempts: int = 1  # of the claim: chooses the backoff
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral:
    """Put off by a rule, no attempt counted. One of ``delay`` (from the database's now) and ``until`` is set."""

    target_id: int
    lease_token: int
    reason: str
    message: str = ""
    delay: timedelta | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Given back unworked, no attempt counted; ``delay`` keeps a worker from claiming at once what it cannot do."""

    target_id: int
    lease_token: int
    reason: str = "interrupted"
    delay: timedelta = timedelta(0)


def complete(
    conn: Conn,
    completions: Sequence[Completion],
    *,
    max_attempts: int = MAX_ATTEMPTS,
    random: Callable[[], float] = _random,
    attempts: Sequence[int] | None = None,
    now: datetime | None = None,
) -> list[Settled]:
    """Accept completions with their findings, coverage and history, all in the caller's transaction.

    The answer follows the order of ``completions``. Afterwards a row is ``done``; ``pending`` when a newer request
    came or a scanner still owes work (then after a backoff by ``attempts``, one a completion; none given = the first
    step); ``failed`` when it owes after ``max_attempts``; ``retired`` when that was waiting for the claim's end.
    Findings are stored by the same rules for each of these. Two statements for a batch without reports, a fixed
    number otherwise.
    """
    if not completions:
        return []
    tries = attempts if attempts is not None else [1] * len(completions)
    handed = completions
    if len({each.target_id for each in completions}) < len(completions):
        # Of two claims of one target only the later can still be held: tokens only grow.
        newest: dict[int, int] = {}
        for index, each in enumerate(completions):
            before = newest.get(each.target_id)
            if before is None or completions[before].lease_token < each.lease_token:
                newest[each.target_id] = index
        handed = [completions[index] for index in newest.values()]
        tries = [tries[index] for index in newest.values()]
    values: dict[str, object] = {
        "ids": ints([each.target_id for each in handed]),
        "tokens": ints([each.lease_token for each in handed]),
        "covered": _said(blobs, [each.covered_revision for each in handed]),
        "recheck": _said(times, [each.recheck_at for each in handed]),
        "owing": None,
        "delays": None,
        "findings": None,
        "results": None,
        "max_attempts": max_attempts,
        "now": now,
    }
    if any([each.owes for each in handed]):  # noqa: C419 - a list is walked faster than a generator
        values["owing"] = flags([bool(each.owes) for each in handed])
        values["delays"] = reals([backoff(max(1, tried), random) / _SECOND for tried in tries])
    tells_more = False
    if any([each.reports for each in handed]):  # noqa: C419 - as above
        values["findings"] = ints([sum([len(report.findings) for report in each.reports]) for each in handed])
        values["results"] = texts([_result(each.reports) for each in handed])
        tells_more = any(report.coverage is not None or tells(report) for each in handed for report in each.reports)
    with together(conn) if tells_more else nullcontext():
        states = {(row[0], row[1]): State(row[2]) for row in fetch(conn, "complete", values)}
        if tells_more:
            accepted = [each for each in handed if each.reports and (each.target_id, each.lease_token) in states]
            if accepted:
                _store(conn, accepted, now)
    return _settle([(each.target_id, each.lease_token) for each in completions], states)


def fail(
    conn: Conn,
    failures: Sequence[Failure],
    *,
    max_attempts: int = MAX_ATTEMPTS,
    random: Callable[[], float] = _random,
    now: datetime | None = None,
) -> list[Settled]:
    """End claims whose attempt failed: ``pending`` after a backoff; ``failed`` when permanent or out of attempts.

    Faults of a provider or of the network are no attempts: ``defer`` those.
    """
    return _end(
        conn,
        [
            (
                each.target_id,
                each.lease_token,
                "permanent" if each.permanent else "fail",
                (backoff(max(1, each.attempts), random) if each.delay is None else each.delay) / _SECOND,
                None,
                each.code,
                each.message,
            )
            for each in failures
        ],
        max_attempts,
        now,
    )


def defer(conn: Conn, deferrals: Sequence[Deferral], *, now: datetime | None = None) -> list[Settled]:
    """Put claims off until a time, by a rule; the attempt is given back, the deferral counted."""
    return _end(
        conn,
        [
            (
                each.target_id,
                each.lease_token,
                "defer",
                (each.delay or timedelta(0)) / _SECOND,
                each.until,
                each.reason,
                each.message,
            )
            for each in deferrals
        ],
        MAX_ATTEMPTS,
        now,
    )


def release(conn: Conn, releases: Sequence[Release], *, now: datetime | None = None) -> list[Settled]:
    """Give claims back unworked; the attempt is given back, nothing is noted as an error."""
    return _end(
        conn,
        [
            (each.target_id, each.lease_token, "release", each.delay / _SECOND, None, each.reason, "")
            for each in releases
        ],
        MAX_ATTEMPTS,
        now,
    )


def _end(
    conn: Conn,
    items: Sequence[tuple[int, int, str, float, datetime | None, str, str]],
    max_attempts: int,
    now: datetime | None,
) -> list[Settled]:
    if not items:
        return []
    unique = {(item[0], item[1]): item for item in reversed(items)}
    ids, tokens, acts, delays, untils, codes, messages = zip(*unique.values(), strict=True)
    rows = fetch(
        conn,
        "end_claim",
        {
            "ids": ints(ids),
            "tokens": ints(tokens),
            "acts": texts(acts),
            "delays": reals(delays),
            "untils": times(untils),
            "codes": texts(codes),
            "messages": texts(messages),
            "max_attempts": max_attempts,
            "now": now,
        },
    )
    return _settle([(item[0], item[1]) for item in items], {(row[0], row[1]): State(row[2]) for row in rows})


def _settle(handed: Sequence[tuple[int, int]], states: dict[tuple[int, int], State]) -> list[Settled]:
    """Answer per item, in order; a claim handed in twice is accepted once. Uses ``states`` up."""
    settled: list[Settled] = []
    for target_id, lease_token in handed:
        state = states.pop((target_id, lease_token), None)
        settled.append(Settled(target_id=target_id, lease_token=lease_token, accepted=state is not None, state=state))
    return settled


def _said(literal: Callable[[list[Any]], str], values: list[Any]) -> str | None:
    """The array literal, or NULL for the whole array when no value is set: nothing to parse, nothing to send."""
    return literal(values) if any(value is not None for value in values) else None


def _result(reports: Sequence[ScanReport]) -> str | None:
    """The scans' outcome words for the history, without repetition."""
    return ",".join(dict.fromkeys(report.outcome.value for report in reports)) or None


def _store(conn: Conn, accepted: Sequence[Completion], now: datetime | None) -> None:
    """Write coverage and findings of accepted completions."""
    covered = (
        sorted(
            (each.target_id, report.scanner, report.coverage)
            for each in accepted
            for report in each.reports
            if report.coverage is not None
        )
        if any(report.coverage for each in accepted for report in each.reports)
        else []
    )
    if covered:
        change(
            conn,
            "coverage_write",
            {
                "ids": [target_id for target_id, _, _ in covered],
                "scanners": [scanner for _, scanner, _ in covered],
                "revisions": [item.revision for _, _, item in covered],
                "fingerprints": [item.fingerprint for _, _, item in covered],
                "tips": [" ".join(item.tips) for _, _, item in covered],
                "now": now,
            },
        )
    counts = store(conn, accepted, now=now)
    fresh = [(each, counts[each.target_id].new_count) for each in accepted if counts[each.target_id].new_count]
    if fresh:
        change(
            conn,
            "complete_new_findings",
            {
                "ids": [each.target_id for each, _ in fresh],
                "tokens": [each.lease_token for each, _ in fresh],
                "new": [new for _, new in fresh],
            },
        )
