"""The whole queue against a plain model: any order of observations, claims, endings, requests and acts of people."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resweep.queue import admin, intake, leases, outcomes, requests, sources
from resweep.schema.records import Completion, Observation, State, TimeState
from tests.property.queue_model import Model, Seen, Target, in_range

START = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(seconds=60)
MAX_ATTEMPTS = 3
WORKER = UUID(int=7)
# RESWEEP_TEST_PROFILE=long does more.
PROFILE = os.environ.get("RESWEEP_TEST_PROFILE", "")
EXAMPLES, STEPS = {"long": (600, 80)}.get(PROFILE, (150, 50))

number = st.integers(0, 4)
hours = st.integers(-4, 4)
times = st.one_of(
    hours.map(lambda hour: START + timedelta(hours=hour)),
    st.sampled_from([None, datetime(1980, 1, 1, tzinfo=UTC), "future"]),
)
feed = st.lists(st.tuples(number, number, times), max_size=4, unique_by=(lambda item: item[0], lambda item: item[1]))
digests = st.lists(st.tuples(number, st.binary(min_size=1, max_size=1)), max_size=4, unique_by=lambda item: item[0])
some = st.sets(st.integers(0, 9), min_size=1, max_size=4)


class QueueMachine(RuleBasedStateMachine):
    """One source with ids and times of its own, one that observes digests; one transaction an example."""

    conn: psycopg.Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        self.conn.rollback()
        self.now = START
        self.model = Model()
        self.claims: list[tuple[int, int]] = []

    @initialize()
    def begin(self) -> None:
        self.feed = sources.register(self.conn, name="feed", kind="github")
        self.git = sources.register(self.conn, name="git", kind="git")

    @rule(step=st.sampled_from([1, 30, 61, 600, 7 * 3600]))
    def time_passes(self, step: int) -> None:
        self.now += timedelta(seconds=step)

    # -- intake

    @rule(page=feed)
    def observe_feed(self, page: list[tuple[int, int, Any]]) -> None:
        """Ids under names: new, known, renamed, swapped, taken over; times of every kind."""
        records = [
            Seen(
                name=f"o/r{name}",
                provider_id=f"p{who}",
                time=self.now + timedelta(hours=1) if time == "future" else time,
            )
            for who, name, time in page
        ]
        self._observe(self.feed, records)

    @rule(page=digests)
    def observe_digests(self, page: list[tuple[int, bytes]]) -> None:
        self._observe(self.git, [Seen(name=f"g{name}", revision=digest) for name, digest in page])

    def _observe(self, source: int, page: list[Seen]) -> None:
        model, now = self.model, self.now
        older = invalid = missing = 0
        for seen in page:
            row = model.identified(source, seen.provider_id) or model.named(source, seen.name)
            mine = row if row is not None and row.provider_id in {None, seen.provider_id} else None
            if seen.revision is None:
                missing += seen.time is None
                invalid += seen.time is not None and not in_range(seen.time, now)
                older += bool(
                    seen.time and in_range(seen.time, now) and mine and mine.remote and seen.time < mine.remote
                )
        counts = intake.observe(self.conn, source, [_record(seen) for seen in page], now=now)
        model.rename(source, page, now)
        moved = new = 0
        for seen in page:
            row = model.identified(source, seen.provider_id) or model.named(source, seen.name)
            if row is None:
                new += 1
                model.admit(self._id_of(source, seen.name), source, seen, now)
            else:
                moved += model.take(row, seen, now)
        assert (counts.fetched_count, counts.queued_new_count, counts.moved_count) == (len(page), new, moved)
        told = (counts.missing_timestamp_count, counts.invalid_timestamp_count, counts.older_timestamp_count)
        assert told == (missing, invalid, older)

    def _id_of(self, source: int, name: str) -> int:
        row = self.conn.execute(
            "SELECT id FROM target WHERE source_id = %s AND normalized_target = %s", (source, name)
        ).fetchone()
        assert row is not None, f"{name} was not admitted"
        return int(row[0])

    @rule(git=st.booleans(), limit=st.integers(-1, 3), rest=st.sampled_from([0, 6]))
    def requeue(self, git: bool, limit: int, rest: int) -> None:
        """T32, T33: never more than the cap, never a row that has not changed or has not rested."""
        source, cooldown = (self.git if git else self.feed), timedelta(hours=rest)
        free = self.model.requeueable(source, cooldown, self.now)
        count = intake.requeue_changed(self.conn, source, limit=limit, cooldown=cooldown, now=self.now)
        assert count == min(max(0, limit), len(free))
        taken = {row[0] for row in self.conn.execute("SELECT id FROM target_hot WHERE state = 'pending'")}
        chosen = [row for row in free if row.number in taken]
        assert len(chosen) == count
        for row in chosen:
            row.state, row.admission, row.attempts, row.not_before = State.PENDING, "updated", 0, self.now

    # -- claims

    @rule(both=st.booleans(), git=st.booleans(), limit=st.integers(1, 4))
    def claim(self, both: bool, git: bool, limit: int) -> None:
        asked = [self.feed, self.git] if both else [self.git if git else self.feed]
        wanted = self.model.choose(asked, limit, self.now)
        got = leases.claim(self.conn, WORKER, sources=None if both else asked, limit=limit, lease=LEASE, now=self.now)
        assert {one.target_id for one in got} == {row.number for row in wanted}
        for row in wanted:
            self.model.lease(row, self.now, LEASE)
        for one in got:
            row = self.model.targets[one.target_id]
            assert (one.lease_token, one.attempts, one.name, one.admission.value) == (
                row.token,
                row.attempts,
                row.name,
                row.admission,
            )
            assert (one.scan_remote_modified_at, one.scan_request_no, one.observed_revision) == (
                row.remote,
                row.request_no,
                row.revision,
            )
            self.claims.append((one.target_id, one.lease_token))

    @precondition(lambda self: self.claims)
    @rule()
    def heartbeat(self) -> None:
        """All claims ever handed out: exactly those that are held come back."""
        alive = leases.heartbeat(self.conn, WORKER, self.claims, LEASE, now=self.now)
        rows = {claim: row for claim in self.claims if (row := self.model.held(*claim)) is not None}
        assert alive == set(rows)
        for row in rows.values():
            row.lease_until = max(row.lease_until or self.now, self.now + LEASE)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), act=st.sampled_from(["complete", "complete", "owe", "fail", "permanent", "defer", "release"]))
    def end(self, data: st.DataObject, act: str) -> None:
        """Claims end, the stale ones among them: at most one ending of each is accepted."""
        handed = data.draw(st.lists(st.sampled_from(self.claims), min_size=1, max_size=4, unique=True))
        delay = timedelta(minutes=5) if act in {"defer", "release"} else timedelta(0)
        settled = self._hand_in(handed, act, delay)
        assert [(each.target_id, each.lease_token) for each in settled] == handed
        for claim, each in zip(handed, settled, strict=True):
            row = self.model.held(*claim)
            assert each.accepted == (row is not None)
            if row is not None:
                self.model.end(row, act, self.now, max_attempts=MAX_ATTEMPTS, delay=delay)
                assert each.state is row.state

    def _hand_in(self, handed: list[tuple[int, int]], act: str, delay: timedelta) -> list[Any]:
        conn, now = self.conn, self.now
        if act in {"complete", "owe"}:
            owes = ("kingfisher",) if act == "owe" else ()
            done = [Completion(target_id=one, lease_token=token, reports=(), owes=owes) for one, token in handed]
            return outcomes.complete(conn, done, max_attempts=MAX_ATTEMPTS, random=lambda: 0.0, now=now)
        if act in {"fail", "permanent"}:
            failed = [
                outcomes.Failure(
                    target_id=one, lease_token=token, code="x", message="x", permanent=act == "permanent", delay=delay
                )
                for one, token in handed
            ]
            return outcomes.fail(conn, failed, max_attempts=MAX_ATTEMPTS, now=now)
        if act == "defer":
            put_off = [
                outcomes.Deferral(target_id=one, lease_token=token, reason="x", delay=delay) for one, token in handed
            ]
            return outcomes.defer(conn, put_off, now=now)
        given = [outcomes.Release(target_id=one, lease_token=token, delay=delay) for one, token in handed]
        return outcomes.release(conn, given, now=now)

    @rule()
    def reap(self) -> None:
        expired = [
            row for row in self.model.targets.values() if row.lease_until is not None and row.lease_until < self.now
        ]
        counts = leases.reap(self.conn, max_attempts=MAX_ATTEMPTS, now=self.now)
        assert counts.leases == len(expired)
        for row in expired:
            self.model.end(row, "expire", self.now, max_attempts=MAX_ATTEMPTS)
        for row in self.model.targets.values():
            if row.reserved_until is not None and row.reserved_until < self.now:
                row.reserved_until = None

    # -- people

    def _rows(self, which: set[int]) -> list[Target]:
        rows = list(self.model.targets.values())
        return [rows[index] for index in sorted(which) if index < len(rows)]

    @rule(which=some, at_once=st.booleans())
    def request(self, which: set[int], at_once: bool) -> None:
        rows = self._rows(which)
        answers = requests.request(self.conn, [row.number for row in rows], now_flag=at_once, now=self.now)
        told = {each.target_id: each for each in answers}
        for row in rows:
            accepted, waited = row.state is not State.UNRESOLVED, row.owed
            self.model.request(row, self.now, at_once=at_once)
            assert (told[row.number].accepted, told[row.number].coalesced) == (accepted, waited)
            assert told[row.number].state is row.state

    @rule(which=some)
    def retire(self, which: set[int]) -> None:
        rows = self._rows(which)
        admin.retire(self.conn, [row.number for row in rows], reason="test", now=self.now)
        for row in rows:
            self.model.retire(row)

    @rule(which=some, minutes=st.sampled_from([1, 60]))
    def reserve(self, which: set[int], minutes: int) -> None:
        rows = self._rows(which)
        period = timedelta(minutes=minutes)
        held = admin.reserve(self.conn, [row.number for row in rows], by="me", period=period, now=self.now)
        may = [row for row in rows if row.state not in {State.IN_PROGRESS, State.RETIRED}]
        assert held == sorted(row.number for row in may)
        for row in may:
            row.reserved_until = self.now + period

    @rule(which=some)
    def unreserve(self, which: set[int]) -> None:
        rows = self._rows(which)
        admin.unreserve(self.conn, [row.number for row in rows])
        for row in rows:
            row.reserved_until = None

    @rule(which=some)
    def retry(self, which: set[int]) -> None:
        rows = self._rows(which)
        admin.retry(self.conn, [row.number for row in rows], now=self.now)
        for row in rows:
            if row.state is State.FAILED:
                row.state, row.attempts, row.not_before = State.PENDING, 0, self.now

    @rule(which=some, priority=st.integers(0, 2))
    def prioritise(self, which: set[int], priority: int) -> None:
        rows = self._rows(which)
        admin.set_priority(self.conn, [row.number for row in rows], priority=priority)
        for row in rows:
            row.priority = priority

    # -- what holds after every step

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        rows = self.conn.execute(
            """
            SELECT id, source_id, normalized_target, provider_id, state::text, not_before, remote_modified_at,
                observed_revision, admission::text, priority, attempts, lease_token, lease_expires_at,
                scan_remote_modified_at, scan_started_at, request_no, scan_request_no, completed_at, reserved_until,
                retire_reason IS NOT NULL
            FROM target_queue ORDER BY id
            """
        ).fetchall()
        assert rows == [
            (
                row.number,
                row.source,
                row.name,
                row.provider_id,
                row.state.value,
                row.not_before,
                row.remote,
                row.revision,
                row.admission,
                row.priority,
                row.attempts,
                row.token,
                row.lease_until,
                row.scan_remote,
                row.scan_started,
                row.request_no,
                row.scan_request_no,
                row.completed,
                row.reserved_until,
                row.retire_reason is not None,
            )
            for row in sorted(self.model.targets.values(), key=lambda row: row.number)
        ]

    @invariant()
    def every_ended_claim_has_one_history_row(self) -> None:
        row = self.conn.execute(
            "SELECT count(*), count(DISTINCT (target_id, lease_token)) FROM target_history"
        ).fetchone()
        ended = sum(self.model.held(*claim) is None for claim in self.claims)
        assert row == (ended, ended)


def _record(seen: Seen) -> Observation:
    state = TimeState.VALID if seen.time is not None else TimeState.MISSING
    return Observation(
        name=seen.name,
        display_name=seen.name,
        address=seen.name,
        provider_id=seen.provider_id,
        remote_modified_at=seen.time,
        time_state=state,
        revision=seen.revision,
    )


def test_f18_queue_does_what_the_model_does(conn: psycopg.Connection[Any]) -> None:
    machine = type("Bound", (QueueMachine,), {"conn": conn})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=PROFILE != "mutant",
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
