"""One process of figures 4 to 7: claims batches and completes them as no-op scans, until nothing is left.

    python -m benchmarks.drainer CONNINFO BATCH

Prints ``ready``, waits for a line, drains, and prints the seconds, the targets and a digest of who was handed what.
While one batch is being completed the next claim is in flight on a connection of its own, as in a worker pool.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg

from resweep.queue.leases import LowWater, claim
from resweep.queue.outcomes import complete
from resweep.schema.database import Database
from resweep.schema.records import Claim, Completion, ScanOutcome, ScanReport, Settled

_LEASE = timedelta(seconds=60)
_NOTHING_NEW = ScanReport(scanner="kingfisher", outcome=ScanOutcome.UNCHANGED, complete=True, coverage=None)


def _hand_in(done: Sequence[Completion], conn: psycopg.Connection[Any]) -> list[Settled]:
    return complete(conn, done)


def drain(database: Database, claiming: psycopg.Connection[Any], batch: int) -> Iterator[Claim]:
    """Claim and complete until nothing is claimable; yields every claim whose completion was accepted."""
    worker, low_water = uuid4(), LowWater()

    def take() -> list[Claim]:
        return claim(claiming, worker, limit=batch, lease=_LEASE, low_water=low_water)

    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(take)
        while claims := coming.result():
            coming = pool.submit(take)
            done = [
                Completion(target_id=held.target_id, lease_token=held.lease_token, reports=(_NOTHING_NEW,))
                for held in claims
            ]
            settled = database.run(partial(_hand_in, done))
            yield from (held for held, end in zip(claims, settled, strict=True) if end.accepted)


def main() -> None:
    """Drain once the parent says so."""
    conninfo, batch = sys.argv[1], int(sys.argv[2])
    database = Database(conninfo, pool_size=1)
    # Without max_in_progress a claim is one statement, a transaction of its own.
    with psycopg.connect(conninfo, autocommit=True) as claiming:
        with database.connection() as conn:
            conn.execute("SELECT 1")
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.perf_counter()
        handed = [held.target_id for held in drain(database, claiming, batch)]
        seconds = time.perf_counter() - started
    database.close()
    print(json.dumps({"seconds": seconds, "handed": handed}))


if __name__ == "__main__":
    main()
