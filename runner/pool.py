"""A worker pool and the upkeep it needs, for whoever runs scans: the runtime, ``work``, ``scan``."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from ..queue import leases
from ..schema.clock import Clock, SystemClock
from ..schema.database import Database
from ..schema.records import WorkerIdentity
from .attempt import Attempts
from .config import Configuration
from .events import Listener, Reaped
from .passes import Pass, Passes
from .wiring import ActiveSource, Scanning, identity
from .workers import PoolSettings, WorkerPool


def make_pool(  # noqa: PLR0913 - what a pool is made of
    configuration: Configuration,
    database: Database,
    scanning: Scanning,
    active: Sequence[ActiveSource],
    *,
    tell: Listener,
    worker: WorkerIdentity,
    clock: Clock,
    only: Sequence[int] | None,
) -> WorkerPool:
    """A pool as configured; ``only`` are ids of sources that it claims from, None = all."""
    settings = configuration.settings
    attempts = Attempts(
        scanning,
        adapters={source.config.name: source.adapter for source in active},
        scanners={source.config.name: source.config.scanners for source in active},
        default_scanners=settings.defaults.scanners or ("kingfisher",),
    )
    ids = list(only) if only is not None else None
    return WorkerPool(
        database,
        attempts,
        worker,
        PoolSettings(
            slots=settings.workers.concurrency,
            lease=timedelta(seconds=settings.workers.lease_seconds),
            max_attempts=settings.workers.max_attempts,
            max_in_progress=settings.workers.max_in_progress,
        ),
        tell=tell,
        clock=clock,
        sources=lambda: ids,
    )


def sweep(configuration: Configuration, database: Database, tell: Listener) -> Pass:
    """The pass that takes expired leases back; safe in any number of processes."""

    def run(_trigger: str) -> bool:
        counts = database.run(lambda conn: leases.reap(conn, max_attempts=configuration.settings.workers.max_attempts))
        if counts.leases:
            tell(Reaped(pending=counts.pending, failed=counts.failed, late=counts.late))
        return True

    return Pass(name="sweep", interval_seconds=configuration.sweep_seconds, run=run)


@contextmanager
def open_pool(
    configuration: Configuration,
    database: Database,
    scanning: Scanning,
    active: Sequence[ActiveSource],
    *,
    tell: Listener,
    at_once: threading.Event,
) -> Generator[WorkerPool, None, None]:
    """A pool for the sources ``active`` alone, with the sweep, stopped in order at the end of the block."""
    clock = SystemClock()
    pool = make_pool(
        configuration,
        database,
        scanning,
        active,
        tell=tell,
        worker=identity(),
        clock=clock,
        only=[source.source_id for source in active],
    )
    passes = Passes([sweep(configuration, database, tell)], clock=clock, tell=tell)
    pool.start()
    passes.start()
    try:
        yield pool
    finally:
        passes.stop(5.0)
        pool.stop(configuration.settings.workers.grace_seconds, at_once=at_once)
