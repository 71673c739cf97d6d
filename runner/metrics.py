"""Metrics in OpenMetrics form: counters fed by events, gauges read from the database when somebody asks.

Names and labels are those of product.md, "Metrics"; every label comes from a closed set or from configured names.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest  # pyright: ignore[reportUnknownVariableType]

from ..queue import census
from ..schema.clock import Clock
from ..schema.database import Database, retryable
from ..schema.records import ScanOutcome, State
from .events import Claimed, CycleEnded, Event, LeaseWasLost, Reaped, ScanEnded, ScanStarted
from .log import logger
from .wiring import ActiveSource

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800)
_RECLAIM_SECONDS = (0.5, 1, 2.5, 5, 10, 15, 30, 60, 120)
_CACHED_SECONDS = 1.0
_LIVE = timedelta(minutes=2)


class Metrics:
    """The counters of this process, and a registry that also reads the queue."""

    def __init__(self, clock: Clock) -> None:
        """Make every metric; nothing is counted yet."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, which no query here needs
        self.registry = CollectorRegistry(auto_describe=False)
        registry = self.registry
        self._clock = clock
        self._busy_since: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()
        self._busy = Counter(
            "resweep_worker_busy_seconds", "Seconds that slots of this process worked.", registry=registry
        )
        self._slots = Gauge("resweep_worker_slots", "Scans that may run beside each other here.", registry=registry)
        self._claims = Counter("resweep_claims", "Targets leased to this process.", registry=registry)
        self._scans = Counter(
            "resweep_scans",
            "Scans by how they ended.",
            ("source", "scanner", "outcome", "admission"),
            registry=registry,
        )
        self._seconds = Histogram(
            "resweep_scan_seconds", "Seconds of one claim's scan.", buckets=_SECONDS, registry=registry
        )
        self._findings = Counter(
            "resweep_findings", "Findings that scans reported.", ("source", "scanner", "admission"), registry=registry
        )
        self._endings = Counter(
            "resweep_claim_endings", "Claims by how they ended.", ("source", "ending"), registry=registry
        )
        self._cycles = Counter(
            "resweep_cycles", "Discovery cycles.", ("source", "trigger", "status"), registry=registry
        )
        self._queued_new = Counter("resweep_queued_new", "New targets admitted.", ("source",), registry=registry)
        self._queued_updated = Counter(
            "resweep_queued_updated", "Changed targets admitted again.", ("source",), registry=registry
        )
        self._invalid = Counter(
            "resweep_invalid_timestamps",
            "Provider times refused as malformed or out of range.",
            ("source",),
            registry=registry,
        )
        self._requests = Counter(
            "resweep_provider_requests", "Requests to providers.", ("source", "outcome"), registry=registry
        )
        self._not_modified = Counter("resweep_not_modified", "Answers that said: nothing changed.", registry=registry)
        self._lost = Counter("resweep_lease_lost", "Leases that were lost while work went on.", registry=registry)
        self._reclaimed = Counter("resweep_leases_reclaimed", "Expired leases that were taken back.", registry=registry)
        self._reclaim_seconds = Histogram(
            "resweep_reclaim_seconds",
            "How long after its end a lease was taken back.",
            buckets=_RECLAIM_SECONDS,
            registry=registry,
        )
        self._features = Gauge(
            "resweep_feature_enabled", "Rollout switches by source: 1 is on.", ("feature", "source"), registry=registry
        )

    def set_slots(self, slots: int) -> None:
        """How many scans may run at once here."""
        self._slots.set(slots)

    def set_sources(self, sources: Sequence[ActiveSource]) -> None:
        """Show the rollout switches, and every source's counters from the start."""
        for source in sources:
            name = source.config.name
            self._features.labels("updated_rescan", name).set(source.config.updated_rescan_enabled)
            self._features.labels("refresh_registry", name).set(source.config.refresh_registry)
            self._features.labels("rescan_on_upgrade", name).set(source.config.rescan_on_upgrade_max_per_cycle > 0)
            for counter in (self._queued_new, self._queued_updated, self._invalid):
                counter.labels(name)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Claimed():
                self._claims.inc(len(event.claims))
            case ScanStarted():
                with self._lock:
                    self._busy_since[_key(event)] = self._clock.monotonic()
            case ScanEnded():
                self._ended(event)
            case LeaseWasLost():
                self._lost.inc()
            case Reaped():
                self._reclaimed.inc(event.pending + event.failed)
                for late in event.late:
                    self._reclaim_seconds.observe(late.total_seconds())
            case CycleEnded():
                self._cycle(event)
            case _:
                pass

    def _ended(self, event: ScanEnded) -> None:
        with self._lock:
            self._busy_since.pop(_key(event), None)
        self._busy.inc(event.seconds)
        claim = event.claim
        self._endings.labels(claim.source, event.ending if event.accepted else "lost").inc()
        if not event.accepted:
            return
        self._seconds.observe(event.seconds)
        for report in event.reports:
            admission = claim.admission.value
            self._scans.labels(claim.source, report.scanner, report.outcome.value, admission).inc()
            if report.findings:
                self._findings.labels(claim.source, report.scanner, admission).inc(len(report.findings))
        if not event.reports and event.ending == "failed":
            self._scans.labels(claim.source, "none", ScanOutcome.FAILED.value, claim.admission.value).inc()

    def _cycle(self, event: CycleEnded) -> None:
        self._cycles.labels(event.source, event.trigger, event.status).inc()
        self._queued_new.labels(event.source).inc(event.queued_new)
        self._queued_updated.labels(event.source).inc(event.queued_updated)
        self._invalid.labels(event.source).inc(event.invalid_timestamps)
        if event.requests:
            self._requests.labels(event.source, "good" if event.status == "success" else "mixed").inc(event.requests)
        if event.not_modified:
            self._not_modified.inc(event.not_modified)

    def read_queue(self, database: Database) -> None:
        """From now on the exposition also holds the queue's gauges."""
        self.registry.register(_QueueGauges(database, self._clock.monotonic))

    def exposition(self) -> bytes:
        """Everything in OpenMetrics text."""
        return cast("bytes", generate_latest(self.registry))  # type: ignore[no-untyped-call]


def _key(event: ScanStarted | ScanEnded) -> tuple[int, int]:
    return event.claim.target_id, event.claim.lease_token


class _QueueGauges:
    """Reads the queue when the metrics are asked for; at most once a second, and nothing while the database is away."""

    def __init__(self, database: Database, monotonic: Callable[[], float]) -> None:
        self._database = database
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._last: tuple[Metric, ...] = ()

    def describe(self) -> Iterator[Metric]:
        """Say nothing at registration: that would ask the database."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The gauges, one read of the hot table."""
        with self._lock:
            if self._monotonic() - self._read_at >= _CACHED_SECONDS:
                self._last = self._read()
                self._read_at = self._monotonic()
            return iter(self._last)

    def _read(self) -> tuple[Metric, ...]:
        up = GaugeMetricFamily("resweep_database_up", "1 while the database answers.")
        try:
            with self._database.connection() as conn:
                counts = census.counts(conn)
                workers = census.workers(conn, seen_within=_LIVE)
        except Exception as error:  # noqa: BLE001 - a scrape must not fail with the database
            if not retryable(error):
                logger().error("metrics could not be read", error=f"{type(error).__name__}: {error}")
            up.add_metric((), 0)
            return (up,)
        up.add_metric((), 1)
        targets = GaugeMetricFamily("resweep_targets", "Targets by state.", labels=("source", "state"))
        oldest = GaugeMetricFamily(
            "resweep_oldest_pending_seconds", "How long the oldest claimable target has waited.", labels=("source",)
        )
        changed = GaugeMetricFamily(
            "resweep_changed_waiting", "Finished targets that changed and wait for the cap.", labels=("source",)
        )
        for each in counts:
            for state in State:
                targets.add_metric((each.source, state.value), each.by_state[state])
            oldest.add_metric((each.source,), each.oldest_waiting.total_seconds() if each.oldest_waiting else 0)
            changed.add_metric((each.source,), each.changed_waiting)
        live = GaugeMetricFamily("resweep_workers", "Worker slots by what they do.", labels=("state",))
        running = [worker for worker in workers if worker.get("stopped_at") is None]
        busy = sum(int(worker["leases"]) for worker in running)
        slots = sum(int(worker["slots"]) for worker in running)
        live.add_metric(("busy",), busy)
        live.add_metric(("idle",), max(0, slots - busy))
        return up, targets, oldest, changed, live
